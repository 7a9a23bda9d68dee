package check

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/plugins/gpu"
)

// bySharing is a plan of two ranks on each of 8 GPUs of a host.
func bySharing(t *testing.T) *Watch {
	t.Helper()
	return NewWatch(healthy(t, 1, `backend = "none"`, "mps {\n ranks_per_gpu = 2\n}").Plan)
}

func TestARankThatRunsWithoutMPSIsSaidOnce(t *testing.T) {
	w := bySharing(t)
	clients := func(pids ...int) []gpu.MPSClients {
		m := gpu.MPSClients{Device: uuid(0, 0), Clients: map[int]int{}}
		for _, pid := range pids {
			m.Clients[pid] = 0
		}
		return []gpu.MPSClients{m}
	}
	on := []gpu.Holder{holder(0, uuid(0, 0), 1<<30), holder(1, uuid(0, 0), 1<<30)}
	says(t, w.See(Sight{At: 1, Usage: gpu.Usage{Holders: on, MPS: clients(1000, 1001)}}))
	says(t, w.See(Sight{At: 2, Usage: gpu.Usage{Holders: on, MPS: clients(1000)}})) // it may have ended between the two looks
	says(t, w.See(Sight{At: 4, Usage: gpu.Usage{Holders: on, MPS: clients(1000)}}), codes.NotMPSClient, "rank 1 on gpu01 is on GPU 0 and no client of its MPS daemon")
	says(t, w.See(Sight{At: 5, Usage: gpu.Usage{Holders: on, MPS: clients(1000)}}))
	says(t, w.See(Sight{At: 6, Usage: gpu.Usage{Holders: on, MPS: clients()}}))
	says(t, w.See(Sight{At: 8, Usage: gpu.Usage{Holders: on, MPS: clients()}}), codes.NotMPSClient, "rank 0 on gpu01 is on GPU 0")
	w.Ended(1)
	says(t, w.See(Sight{At: 9, Usage: gpu.Usage{Holders: on[:1], MPS: clients(1000)}}))
}

func TestADaemonThatDoesNotAnswerIsSaidOnceAndAccusesNobody(t *testing.T) {
	w := bySharing(t)
	s := Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, uuid(0, 0), 1<<30)}, MPS: []gpu.MPSClients{{Device: uuid(0, 0), Error: "no MPS daemon answers"}}}}
	says(t, w.See(s), codes.MPSUnreachable, "its MPS daemon does not answer (no MPS daemon answers)")
	says(t, w.See(s))
	blind := bySharing(t)
	s.MPS[0] = gpu.MPSClients{Device: uuid(0, 0), Clients: map[int]int{}}
	s.Blind = "numbers of another namespace"
	for _, f := range blind.See(s) {
		if f.Code == codes.NotMPSClient {
			t.Error(fmt.Sprint("where process numbers mean nothing: ", f.Message))
		}
	}
}
