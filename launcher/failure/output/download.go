package output

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/pattern"
)

// connecting are exceptions of Python itself that any connection may end with: to a hub, to
// another rank, or to a server of the user's own.
const connecting = " ConnectionError ConnectionRefusedError ConnectionResetError ConnectionAbortedError BrokenPipeError TimeoutError timeout OSError EnvironmentError "

var (
	// clients are packages that fetch things; nothing of torch connects ranks through them.
	clients = pattern.New(`/(?:site|dist)-packages/(?:huggingface_hub|urllib3|requests|httpx|httpcore|aiohttp|boto3|botocore|gcsfs|s3fs)/|/python[0-9.]+/urllib/request\.py$`)
	// unreached are the words of transformers, datasets and the hub for it.
	unreached = pattern.New(`(?i)could ?n[o']t (?:connect to|reach) '?https?://|error happened while trying to locate the file on the hub|https?connectionpool\(host=|max retries exceeded with url`)
)

// ofDownload is whether the exception ended a download: its own text says so, or it is one of
// a connection and came up within a client. A refused connection alone may be another rank's.
func (e *ending) ofDownload(name string) bool {
	if !strings.Contains(connecting, " "+name+" ") {
		return false
	}
	if unreached.MatchString(e.Message) {
		return true
	}
	if (name == "OSError" || name == "EnvironmentError") && !strings.Contains(e.Message, "onnect") && !strings.Contains(e.Message, "unreachable") {
		return false // of a file that the client wrote, for one
	}
	for _, f := range e.Frames {
		if clients.MatchString(f.File) {
			return true
		}
	}
	return false
}
