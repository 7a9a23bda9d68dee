//go:build linux && cgo

package nvml

import (
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

func process(pid uint32, memory uint64) nvml.ProcessInfo {
	return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: memory, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
}

func written(processes []gpu.Process) string {
	var all []string
	for _, p := range processes {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s %s/%s %s", p.PID, p.Kind, show(p.Memory), show(p.GI), show(p.CI), p.Name)))
	}
	return strings.Join(all, "; ")
}

func TestTheListsOfProcessesAreMerged(t *testing.T) {
	m := dgx(1)
	card := m.gpus[0]
	card.GetComputeRunningProcessesFunc = told([]nvml.ProcessInfo{process(5000, 1<<20), process(17, 2<<20), process(6000, notAvailable), process(7000, 3<<20)})
	card.GetGraphicsRunningProcessesFunc = told([]nvml.ProcessInfo{process(5000, 1<<20), process(8000, 4<<20)})
	card.GetMPSComputeRunningProcessesFunc = told([]nvml.ProcessInfo{process(7000, 3<<20), process(9000, 5<<20)})
	got := probed(t, m.prober(t)).GPUs[0]
	same(t, "processes", written(got.Processes), "17 compute 2097152 nil/nil; 5000 both 1048576 nil/nil /usr/bin/program-5000; "+
		"6000 compute nil nil/nil /usr/bin/program-6000; 7000 mps 3145728 nil/nil /usr/bin/program-7000; "+
		"8000 graphics 4194304 nil/nil /usr/bin/program-8000; 9000 mps 5242880 nil/nil /usr/bin/program-9000")
	if !strings.Contains(got.Why["processes.memory"], "NVML_VALUE_NOT_AVAILABLE") {
		t.Errorf("reason %q", got.Why["processes.memory"])
	}
}

func TestWithoutTheListOfComputeProcessesNothingIsKnown(t *testing.T) {
	m := dgx(1)
	m.gpus[0].GetComputeRunningProcessesFunc = says[[]nvml.ProcessInfo](nvml.ERROR_NO_PERMISSION)
	got := probed(t, m.prober(t)).GPUs[0]
	if got.Processes != nil || !strings.Contains(got.Why["processes"], "this user may not") {
		t.Errorf("%v: %q", got.Processes, got.Why["processes"])
	}
}

func TestMIGDevicesAreToldWithTheirProfiles(t *testing.T) {
	m := dgx(2)
	const name = "NVIDIA A100-SXM4-40GB"
	parted(m.gpus[0], migDevice("MIG-a", name+" MIG 3g.20gb", 2, 0, 20<<30), nil, migDevice("MIG-b", name+" MIG 1g.5gb+me", 9, 0, 5<<30), migDevice("MIG-c", name, 1, 1, 20<<30))
	got := probed(t, m.prober(t))
	card := got.GPUs[0]
	var devices []string
	for _, mig := range card.MIG.Instances {
		devices = append(devices, fmt.Sprintf("%d %s %s %s/%s %d %d", mig.Index, mig.UUID, mig.Profile, show(mig.GI), show(mig.CI), *mig.Memory>>30, *mig.Used>>20))
	}
	same(t, "MIG devices", strings.Join(devices, "; "), "0 MIG-a 3g.20gb 2/0 20 17; 2 MIG-b 1g.5gb+me 9/0 5 17; 3 MIG-c  1/1 20 17")
	same(t, "MIG mode", show(card.MIG.Enabled)+" "+show(card.MIG.Pending), "true true")
	same(t, "NVLinks", fmt.Sprint(card.NVLinks == nil)+" "+card.Why["nvlinks"], "true MIG mode hides the NVLinks")
	same(t, "link", got.Links[0][1], "PXB")
}

func TestProcessesOfMIGDevicesAreToldWhereTheParentHidesThem(t *testing.T) {
	m := dgx(1)
	parted(m.gpus[0], migDevice("MIG-b", "X MIG 1g.5gb", 9, 0, 5<<30), migDevice("MIG-a", "X MIG 3g.20gb", 2, 0, 20<<30))
	m.gpus[0].GetComputeRunningProcessesFunc = says[[]nvml.ProcessInfo](nvml.ERROR_NO_PERMISSION)
	got := probed(t, m.prober(t)).GPUs[0]
	same(t, "processes", written(got.Processes), "2002 compute 5242880 2/0 /usr/bin/program-2002; 2009 compute 5242880 9/0 /usr/bin/program-2009")
	same(t, "reason", got.Why["processes"], "")
}

func TestAProcessOnTwoMIGDevicesIsToldTwice(t *testing.T) {
	m := dgx(1)
	parted(m.gpus[0])
	m.gpus[0].GetComputeRunningProcessesFunc = told([]nvml.ProcessInfo{{Pid: 17, UsedGpuMemory: 1, GpuInstanceId: 9}, {Pid: 17, UsedGpuMemory: 2, GpuInstanceId: 2}})
	got := probed(t, m.prober(t)).GPUs[0]
	same(t, "processes", written(got.Processes), "17 compute 2 2/0; 17 compute 1 9/0")
}
