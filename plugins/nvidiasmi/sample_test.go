package nvidiasmi

import (
	"errors"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// sampling is a runner with these answers to the two commands of a sample.
func sampling(devices, processes answer) *replay {
	return &replay{outputs: map[string]answer{sampleQuery + " " + sampleFormat: devices, sampleProcesses + " " + sampleFormat: processes}}
}

func TestASampleIsReadFromTwoTables(t *testing.T) {
	r := sampling(
		said("0, GPU-a, 81559 MiB, 70000 MiB, 100 %, 43 %\n", "1, GPU-b, 81559 MiB, 5 MiB, [N/A], [N/A]\n",
			"Unable to determine the device handle for GPU0000:0F:00.0: GPU is lost.  Reboot the system to recover this GPU\n"),
		said("GPU-a, 4711, 69000 MiB, /usr/bin/python, with a comma\n", "GPU-b, 12, [N/A], [Not Found]\n", "GPU-x, 1, 1 MiB, stranger\n"))
	got, err := New(r).Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "GPUs and period", []any{len(got.GPUs), got.Every > 10}, []any{2, true})
	a, b := got.GPUs[0], got.GPUs[1]
	same(t, "first", []any{a.UUID, a.State, *a.Memory.Used >> 20, *a.Memory.Total >> 20, *a.Utilization.GPU, *a.Utilization.Memory},
		[]any{"GPU-a", gpu.StateOK, uint64(70000), uint64(81559), 100, 43})
	same(t, "its process", []any{a.Processes[0].PID, a.Processes[0].Name, *a.Processes[0].Memory >> 20}, []any{4711, "/usr/bin/python, with a comma", uint64(69000)})
	same(t, "second", []any{b.Utilization.GPU == nil, b.Why["utilization.gpu"] != "", b.Processes[0].Memory == nil, b.Why["processes.memory"] != ""}, []any{true, true, true, true})
	same(t, "asked", len(r.asked), 2)
}

func TestASampleWithoutProcessesSaysWhy(t *testing.T) {
	got, err := New(sampling(said("0, GPU-a, 81559 MiB, 70000 MiB, 100 %, 43 %\n"), answer{err: errHangs})).Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "processes", []any{got.GPUs[0].Processes == nil, got.GPUs[0].Why["processes"]}, []any{true, errHangs.Error()})
}

func TestASampleWithoutADriverIsAnError(t *testing.T) {
	bad := said("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n").exit(9)
	if _, err := New(sampling(bad, bad)).Sample(t.Context()); err == nil {
		t.Error("no error")
	}
}

var errHangs = errors.New("no end within 5s, killed")
