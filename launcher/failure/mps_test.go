package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

func TestWhatMPSSaysThroughCUDAHasItsClass(t *testing.T) {
	for said, want := range map[string]string{
		"CUDA error: the remote procedural call between the MPS server and the MPS client failed":                    class.MPSPeer,
		"CUDA error: the MPS client has been terminated by the server":                                               class.MPSPeer,
		"CUDA error: MPS server is not ready to accept new MPS client requests":                                      class.MPSPeer,
		"CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server":                       class.MPSLost,
		"CUDA error: the hardware resources required to create MPS client have been exhausted":                       class.MPSFull,
		"RuntimeError: cudaErrorMpsMaxConnectionsReached":                                                            class.MPSFull,
		"CUDA error: the hardware resources required to support device connections have been exhausted, says cuInit": class.MPSFull,
	} {
		v := Classify(Evidence{Code: 1, Worker: evidence.Worker{Stderr: []byte("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\ntorch.AcceleratorError: " + said + "\n")}})
		if v.Class != want {
			t.Errorf("%q is %s, want %s", said, v.Class, want)
		}
	}
}

func TestADaemonThatDiedComesBeforeWhatItsClientsMakeOfIt(t *testing.T) {
	client := Evidence{Code: 1, At: 5, Worker: evidence.Worker{Stderr: []byte("torch.AcceleratorError: CUDA error: the remote procedural call between the MPS server and the MPS client failed\n")}}
	found, ok := First([]RankEvidence{{Rank: 0, Host: "a", Evidence: client}, {Rank: 1, Host: "a", Evidence: Evidence{Signal: "SIGKILL", Sent: "SIGKILL", At: 5.1}}},
		[]Event{{Class: class.MPSLost, Message: "the MPS daemon of GPU 0 (pid 7) has ended", Host: "a", Rank: NoRank, At: 5.05, Evidence: []string{"control.log: x"}}})
	if !ok || found.Rank != NoRank || found.Verdict.Class != class.MPSLost || !strings.Contains(strings.Join(found.Verdict.Evidence, " "), "control.log") {
		t.Errorf("%+v", found)
	}
}

func TestTheClientWithTheFaultComesBeforeTheServersWord(t *testing.T) {
	guilty := Evidence{Code: 1, At: 5.2, Worker: evidence.Worker{Stderr: []byte("torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n")}}
	found, ok := First([]RankEvidence{{Rank: 2, Host: "a", Evidence: guilty}}, []Event{{Class: class.MPSFault, Message: "a fault", Host: "a", Rank: NoRank, At: 5}})
	if !ok || found.Rank != 2 || found.Verdict.Class != class.GPUAppFault {
		t.Errorf("%+v", found)
	}
	alone, ok := First([]RankEvidence{{Rank: 2, Host: "a", Evidence: Evidence{Signal: "SIGKILL", Sent: "SIGKILL", At: 6}}}, []Event{{Class: class.MPSFault, Message: "a fault", Host: "a", Rank: NoRank, At: 5}})
	if !ok || alone.Verdict.Class != class.MPSFault {
		t.Errorf("nobody says what it was: %+v", alone)
	}
}
