package gpus_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi"
)

// prober is one implementation under test.
type prober struct {
	name string
	new  func(gpus.Programs) gpu.Prober
}

// probers are filled by the files of each.
var probers = []prober{{nvidiasmi.Source, func(p gpus.Programs) gpu.Prober {
	return nvidiasmi.New(&nvidiasmi.Program{Path: p.NvidiaSMI})
}}}

// scenarios are all built-in ones and some that are odd on purpose.
func scenarios() map[string]*gpus.Scenario {
	all := map[string]*gpus.Scenario{"odd": odd(), "odd-fabric": oddFabric()}
	for _, name := range gpus.Names() {
		all[name] = gpus.Named(name)
	}
	return all
}

// odd has what no built-in scenario has: each kind of process, one whose memory is not
// told, ECC off, unusual modes and recovery actions, a processor list that is nobody's.
func odd() *gpus.Scenario {
	s := gpus.L40S()
	s.GPUs[0].ECC = gpu.ECC{Enabled: new(false)}
	s.GPUs[0].ComputeMode, s.GPUs[1].ComputeMode = new("prohibited"), new("exclusive_process")
	s.GPUs[0].Recovery, s.GPUs[1].Recovery, s.GPUs[2].Recovery = new("node_reboot"), new("drain_p2p"), nil
	s.GPUs[0].Persistence, s.GPUs[0].Slot.NUMA = new(false), -1
	s.GPUs[1].Throttled = []string{"hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal", "sw_power_cap"}
	s.GPUs[2].Throttled = nil
	s.GPUs[2].PCIe = gpu.PCIe{}
	s.GPUs[3].Processes = []gpu.Process{
		{PID: 101, Name: "/usr/bin/python3", Kind: "compute", Memory: new(uint64(1 << 30))},
		{PID: 102, Name: "Xorg", Kind: "graphics", Memory: new(uint64(100 << 20))},
		{PID: 103, Name: "blender & <co>", Kind: "both", Memory: new(uint64(2 << 30))},
		{PID: 104, Name: "python", Kind: "mps", Memory: new(uint64(3 << 30))},
		{PID: 105, Name: "python", Kind: "compute"},
	}
	return s
}

func oddFabric() *gpus.Scenario {
	s := gpus.DGXH100()
	s.GPUs[0].Fabric, s.GPUs[1].Fabric, s.GPUs[2].Fabric = new("failed"), new("in_progress"), new("not_started")
	for i := range s.GPUs[4].Ports {
		s.GPUs[4].Ports[i] = gpus.Port{}
	}
	return s
}

// probeTime is far more than any probe of a stand-in takes.
const probeTime = 20 * time.Second

// hold starts a worker that holds memory of a device until the test ends.
func hold(t *testing.T, uuid string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs(t).Worker, "-device", uuid, "-bytes", "1024MiB", "-for", "1m")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil { // its line comes when it holds the memory
		t.Fatalf("worker on %s: %v", uuid, err)
	}
}

// expected is what the scenario says, with what workers hold now.
func expected(t *testing.T, s *gpus.Scenario, folder string) *gpu.Inventory {
	t.Helper()
	held, err := gpus.Held(folder)
	if err != nil {
		t.Fatal(err)
	}
	return s.Expect(held)
}

// stale leaves a note of a process whose number another one has now.
func stale(t *testing.T, folder string, s *gpus.Scenario) {
	t.Helper()
	if len(s.GPUs) == 0 {
		return
	}
	note := fmt.Sprintf(`{"pid":%d,"start":1,"uuid":%q,"bytes":1073741824,"kind":"compute","name":"gone"}`, os.Getpid(), s.GPUs[0].UUID)
	if err := os.WriteFile(filepath.Join(folder, gpus.StateFolder, "1-stale.json"), []byte(note), 0o644); err != nil {
		t.Fatal(err)
	}
}

// busied puts a worker on the last GPU, or the last MIG device of the first, where that is
// possible, so that each scenario has something that is not in its file.
func busied(t *testing.T, folder string, s *gpus.Scenario) {
	t.Helper()
	stale(t, folder, s)
	if s.Init != "" || s.NoLibrary || len(s.GPUs) == 0 {
		return
	}
	uuid := s.GPUs[len(s.GPUs)-1].UUID
	if last := s.GPUs[len(s.GPUs)-1].MIG; last.Enabled != nil && *last.Enabled && len(last.Instances) == 0 {
		uuid = s.GPUs[0].UUID // nobody can use the last
	}
	if instances := s.GPUs[0].MIG.Instances; len(instances) > 0 {
		uuid = instances[len(instances)-1].UUID
	}
	hold(t, uuid)
}

func TestProbersFindWhatTheScenarioSays(t *testing.T) {
	built := programs(t)
	for _, p := range probers {
		for name, s := range scenarios() {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				folder := machine(t, s)
				busied(t, folder, s)
				ctx, cancel := context.WithTimeout(t.Context(), probeTime)
				defer cancel()
				found, err := p.new(built).Probe(ctx)
				if s.Init != "" || s.NoLibrary {
					if err == nil {
						t.Fatalf("found %+v on a machine without a driver", found)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				compare(t, found, expected(t, s, folder))
			})
		}
	}
}

// compare holds what was found against what there is.
func compare(t *testing.T, found, want *gpu.Inventory) {
	t.Helper()
	if len(found.GPUs) != len(want.GPUs) {
		t.Fatalf("found %d GPUs, there are %d", len(found.GPUs), len(want.GPUs))
	}
	for _, name := range found.Unknown() {
		if found.Why[name] == "" {
			t.Errorf("%s is unknown without a reason", name)
		}
	}
	for i := range found.GPUs {
		compareGPU(t, &found.GPUs[i], &want.GPUs[i], found.Source)
	}
	if len(want.GPUs) == 0 {
		return
	}
	same(t, "driver", found.Driver, want.Driver)
	same(t, "cuda", found.CUDA, want.CUDA)
	compareLinks(t, found, want)
}

func compareLinks(t *testing.T, found, want *gpu.Inventory) {
	t.Helper()
	for i, row := range found.Links {
		for j, link := range row {
			lost := want.GPUs[i].State != gpu.StateOK || want.GPUs[j].State != gpu.StateOK
			if link != want.Links[i][j] && !(lost && link == "") {
				t.Errorf("link of %d and %d is %q, should be %q", i, j, link, want.Links[i][j])
			}
		}
	}
	if len(found.Links) != len(want.Links) {
		t.Errorf("%d rows of links, want %d", len(found.Links), len(want.Links))
	}
}

func compareGPU(t *testing.T, found, want *gpu.GPU, source string) {
	t.Helper()
	if found.State != want.State || found.Index != want.Index {
		t.Errorf("GPU %d is %s, should be GPU %d, %s", found.Index, found.State, want.Index, want.State)
	}
	for _, name := range found.Unknown() {
		if found.Why[name] == "" {
			t.Errorf("GPU %d: %s is unknown without a reason", want.Index, name)
		}
	}
	if want.State == gpu.StateLost {
		if found.PCI != "" && found.PCI != want.PCI || found.UUID != "" && found.UUID != want.UUID {
			t.Errorf("lost GPU %d is %s at %s, should be %s at %s", want.Index, found.UUID, found.PCI, want.UUID, want.PCI)
		}
		return
	}
	f, w := tell(found), tell(want)
	for name, value := range w {
		got, told := f[name]
		switch {
		case name == "nvlinks" && source == nvidiasmi.Source && allInactive(want.NVLinks) && allInactive(found.NVLinks):
		case !told && want.State == gpu.StateNeedsReset:
		case !told:
			t.Errorf("GPU %d: %s is not told (%s), should be %v", want.Index, name, found.Why[name], value)
		case !reflect.DeepEqual(got, value):
			t.Errorf("GPU %d: %s is %v, should be %v", want.Index, name, got, value)
		}
	}
	for name, value := range f {
		if _, is := w[name]; !is {
			t.Errorf("GPU %d: %s is %v, the GPU has none", want.Index, name, value)
		}
	}
}

// allInactive: nvidia-smi does not tell their number then.
func allInactive(links []gpu.NVLink) bool {
	return links != nil && !slices.ContainsFunc(links, func(l gpu.NVLink) bool { return l.Active })
}

// same compares two pointers to values.
func same(t *testing.T, name string, found, want *string) {
	t.Helper()
	if found == nil || *found != *want {
		t.Errorf("%s is %v, should be %q", name, found, *want)
	}
}

// tell lists all that is known of a GPU by JSON names: pointers as what they point to.
func tell(g *gpu.GPU) map[string]any {
	told := map[string]any{}
	collect(reflect.ValueOf(*g), "", told)
	for _, list := range []string{"processes"} {
		if processes, is := told[list].([]gpu.Process); is {
			sorted := slices.Clone(processes)
			slices.SortFunc(sorted, func(a, b gpu.Process) int { return a.PID - b.PID })
			told[list] = flat(sorted)
		}
	}
	if instances, is := told["mig.instances"].([]gpu.MIGInstance); is {
		told["mig.instances"] = flat(instances)
	}
	return told
}

func collect(v reflect.Value, prefix string, told map[string]any) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		switch {
		case name == "why":
		case field.Kind() == reflect.Struct:
			collect(field, prefix+name+".", told)
		case field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice:
			if !field.IsNil() {
				told[prefix+name] = reflect.Indirect(field).Interface()
			}
		default:
			told[prefix+name] = field.Interface()
		}
	}
}

// flat follows the pointers in a list of structs, so that lists can be compared and shown.
func flat[T any](list []T) []map[string]any {
	all := []map[string]any{}
	for _, item := range list {
		told := map[string]any{}
		collect(reflect.ValueOf(item), "", told)
		all = append(all, told)
	}
	return all
}
