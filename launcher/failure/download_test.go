package failure

import (
	"testing"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// within is a traceback whose innermost frame is of the file.
func within(file, last string) string {
	return "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 12, in <module>\n    main()\n  File \"" + file + "\", line 40, in get\n    return f(x)\n" + last + "\n"
}

func TestOnlyADownloadThatFailedIsTheNetworks(t *testing.T) {
	const (
		packages = "/usr/lib/python3.11/site-packages/"
		hub      = packages + "huggingface_hub/file_download.py"
		refused  = "ConnectionRefusedError: [Errno 111] Connection refused"
	)
	chain := "\nDuring handling of the above exception, another exception occurred:\n\n"
	run(t, []row{
		{"refused, within the hub's client", wrote(within(hub, refused)), class.Network, verdict.Likely, class.Yes, "not reached", refused},
		{"in time, within urllib3", wrote(within(packages+"urllib3/connection.py", "TimeoutError: [Errno 110] Connection timed out")), class.Network, "", class.Yes, "", ""},
		{"the older name of a time-out", wrote(within(packages+"urllib3/connection.py", "socket.timeout: The read operation timed out")), class.Network, "", "", "", ""},
		{"reset, within requests", wrote(within(packages+"requests/adapters.py", "ConnectionResetError: [Errno 104] Connection reset by peer")), class.Network, "", "", "", ""},
		{"requests' own", wrote(within(packages+"requests/adapters.py", "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\"), 1)")), class.Network, "", "", "", ""},
		{"at the end of a chain", wrote(within(packages+"urllib3/connection.py", refused) + chain + within(packages+"requests/adapters.py", "requests.exceptions.ConnectionError: x")), class.Network, "", "", "", refused},
		{"by Python's own client", wrote(within("/usr/lib/python3.11/urllib/request.py", refused)), class.Network, "", "", "", ""},
		{"by the words of transformers", wrote(traceback("OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.")), class.Network, "", "", "", ""},
		{"by those of datasets", wrote(traceback("ConnectionError: Couldn't reach https://example.org/data.csv (ConnectTimeout)")), class.Network, "", "", "", ""},
		{"refused by a server of the user's own", wrote(traceback(refused)), class.UserError, verdict.Certain, class.No, refused, ""},
		{"a time-out of the program's own", wrote(traceback("TimeoutError: no batch within 60 s")), class.UserError, "", "", "no batch", ""},
		{"a ConnectionError of the program's own", wrote(traceback("ConnectionError: no leader")), class.UserError, "", "", "no leader", ""},
		{"a value that the client did not like", wrote(within(hub, "ValueError: no such revision")), class.UserError, "", "", "no such revision", ""},
		{"a file that the client could not write", wrote(within(hub, "OSError: [Errno 30] Read-only file system: '/models'")), class.UserError, "", "", "Read-only", ""},
		{"a peer that has gone", wrote(traceback("ConnectionResetError: [Errno 104] Connection reset by peer")), class.PeerLost, "", "", "", ""},
	})
}

func TestAMappingThatFindsNoMemoryIsTheHostsToo(t *testing.T) {
	run(t, []row{
		{"a weight file", wrote(traceback("RuntimeError: unable to mmap 4294967296 bytes from file </data/model.safetensors>: Cannot allocate memory (12)")), class.OOMHost, verdict.Likely, class.No, "to map a file", "vm.max_map_count"},
		{"Python's own words", wrote(traceback("OSError: [Errno 12] Cannot allocate memory")), class.OOMHost, verdict.Likely, class.No, "", ""},
		{"for another reason it is the program's", wrote(traceback("RuntimeError: unable to mmap 8 bytes from file </data/m>: Invalid argument (22)")), class.UserError, "", "", "", ""},
	})
}
