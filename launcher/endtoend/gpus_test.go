//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// machines are hosts that each look like another machine, called after it.
var machines = []struct {
	name  string
	looks func() *gpus.Scenario
}{
	{"dgx-a100", gpus.DGXA100},
	{"islands", gpus.TwoIslands},
	{"l40s", gpus.L40S},
	{"mixed", gpus.Mixed},
	{"mig", idleMIG},
	{"busy", gpus.Busy},
	{"exclusive", gpus.Exclusive},
	{"lost", gpus.Lost},
	{"no-driver", gpus.NoDriver},
	{"crashing", crashing},
	{"nothing-installed", gpus.NoLibrary},
	{"no-gpu", func() *gpus.Scenario { return nil }},
}

// idleMIG is the machine with MIG without anybody on it.
func idleMIG() *gpus.Scenario {
	s := gpus.MIG()
	s.GPUs[0].Processes = nil
	return s
}

// crashing has a library that kills who calls it, while nvidia-smi works.
func crashing() *gpus.Scenario {
	s := gpus.BridgedA6000()
	s.Faults = []gpus.Fault{{Function: "nvmlDeviceGetCount_v2", Do: "crash"}}
	return s
}

var machineRoom room

// theMachines is the bed of machines. Tests use it one after the other.
func theMachines(t *testing.T) *testbed.Bed {
	t.Helper()
	var names []string
	for _, m := range machines {
		names = append(names, m.name)
	}
	return machineRoom.borrow(t, testbed.Options{Hosts: len(machines), Names: names, Each: func(i int, h *testbed.HostOptions) {
		if here := onThisMachine(t, machines[i].looks()); here != nil {
			h.GPUs = here.OwnCards(i)
		}
	}})
}

// onThisMachine gives the nodes of a scenario CPUs that there are here, so that processes
// can be bound to them.
func onThisMachine(t *testing.T, s *gpus.Scenario) *gpus.Scenario {
	t.Helper()
	if s == nil {
		return nil
	}
	here, err := s.OnThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	return here
}

// cards are the GPUs of one of the machines.
func cards(t *testing.T, name string) []gpus.GPU {
	t.Helper()
	return theMachines(t).Host(name).GPUs().GPUs
}

// gpuJob writes a job on hosts whose workers behave as CUDA processes do. ranks is what
// stands in its ranks block; more is put in the job.
func (u *user) gpuJob(hosts []string, ranks string, more ...string) string {
	u.t.Helper()
	return u.gpuJobFor("100ms", hosts, ranks, more...)
}

func (u *user) gpuJobFor(stay string, hosts []string, ranks string, more ...string) string {
	u.t.Helper()
	return u.file("gpus.hcl", fmt.Sprintf("job \"g\" {\n  command = [\"cudaworker\", \"-for\", %q]\n  %s\n  hosts \"ssh\" {\n    names = %s\n  }\n  ranks {\n%s\n  }\n}\n",
		stay, strings.Join(more, "\n"), hclList(hosts), ranks))
}

// landed is where a worker says that it is.
type landed struct {
	Rank      string
	LocalRank string   `json:"local_rank"`
	Visible   []string // UUIDs
	UUID, PCI string
	Index     int
	CPUs      string
	Mempolicy *struct {
		Mode  string
		Nodes []int
	}
}

// landings are those of a run, by host and rank.
func landings(t testing.TB, r result) map[string]landed {
	t.Helper()
	found := map[string]landed{}
	for line := range strings.Lines(r.stdout) {
		who, text, _ := strings.Cut(line, "| ")
		var l landed
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("a worker said %q", line)
		}
		found[who] = l
	}
	return found
}

// plannedGPU is a rank of muster plan --json.
type plannedRank struct {
	Rank      int
	LocalRank int `json:"local_rank"`
	Host      string
	GPU       *struct {
		Index     int
		UUID, PCI string
		SeenAs    int `json:"seen_as"`
	}
	CPUs []int
	NUMA *int
	NIC  string
	Env  map[string]struct{ Value, Source string }
}

func (u *user) planned(path string) (ranks []plannedRank) {
	u.t.Helper()
	var plan struct{ Ranks []plannedRank }
	if err := json.Unmarshal([]byte(u.run("plan", path, "--json").exits(0).stdout), &plan); err != nil {
		u.t.Fatal(err)
	}
	return plan.Ranks
}

// mustLandAsPlanned runs a job and compares where its workers are with its plan.
func (u *user) mustLandAsPlanned(path string) map[string]landed {
	u.t.Helper()
	planned := u.planned(path)
	found := landings(u.t, u.run("run", path, "--no-check").exits(0)) // machines of one bed are not alike
	if len(found) != len(planned) {
		u.t.Errorf("%d workers have told where they are, %d were planned", len(found), len(planned))
	}
	for _, p := range planned {
		who := fmt.Sprintf("%s:%d", p.Host, p.Rank)
		l := found[who]
		if p.GPU == nil || l.UUID != p.GPU.UUID || l.PCI != p.GPU.PCI || l.Index != p.GPU.Index {
			u.t.Errorf("%s is on GPU %d (%s, %s), the plan says %+v", who, l.Index, l.UUID, l.PCI, p.GPU)
			continue
		}
		if l.LocalRank != fmt.Sprint(p.GPU.SeenAs) || p.Env["MUSTER_DEVICE"].Value != l.UUID {
			u.t.Errorf("%s has LOCAL_RANK %s and MUSTER_DEVICE %s, the plan says cuda:%d", who, l.LocalRank, p.Env["MUSTER_DEVICE"].Value, p.GPU.SeenAs)
		}
		if len(p.CPUs) > 0 && l.CPUs != spansOf(p.CPUs) {
			u.t.Errorf("%s may run on CPUs %s, the plan says %v", who, l.CPUs, p.CPUs)
		}
	}
	return found
}

// spansOf writes numbers as the kernel writes lists of CPUs.
func spansOf(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := fmt.Sprint(numbers[i])
		if j > i {
			part += fmt.Sprint("-", numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

type probedHost struct {
	Name string
	GPUs []struct {
		Index int
		UUID  string
		State string
		NUMA  *int
	}
	Links   [][]string
	Islands [][]int
	Source  string `json:"gpu_source"`
}

func TestEachMachineIsSeenAsItIs(t *testing.T) {
	u := newUser(t, theMachines(t))
	var names []string
	for _, m := range machines {
		names = append(names, m.name)
	}
	r := u.run("probe", "-H", strings.Join(names, ","), "--json").exits(0)
	var probe struct{ Hosts []probedHost }
	if err := json.Unmarshal([]byte(r.stdout), &probe); err != nil {
		t.Fatal(err)
	}
	if len(probe.Hosts) != len(machines) {
		t.Fatalf("%d hosts were probed", len(probe.Hosts))
	}
	for _, h := range probe.Hosts {
		want := theMachines(t).Host(h.Name).GPUs()
		if want == nil || want.Init != "" {
			if len(h.GPUs) > 0 {
				t.Errorf("%s shows %d GPUs", h.Name, len(h.GPUs))
			}
			continue
		}
		if len(h.GPUs) != len(want.GPUs) {
			t.Errorf("%s shows %d GPUs, it has %d", h.Name, len(h.GPUs), len(want.GPUs))
			continue
		}
		for g := range h.GPUs {
			if got := h.GPUs[g]; got.State == "ok" && (got.UUID != want.GPUs[g].UUID || got.NUMA == nil || *got.NUMA != want.GPUs[g].Slot.NUMA) {
				t.Errorf("%s shows GPU %d as %+v", h.Name, g, got)
			}
		}
	}
	islands := probe.Hosts[slices.IndexFunc(probe.Hosts, func(h probedHost) bool { return h.Name == "islands" })]
	if len(islands.Islands) != 2 || len(islands.Islands[0]) != 4 {
		t.Errorf("islands %v", islands.Islands)
	}
	text := u.run("probe", "-H", strings.Join(names, ",")).exits(0)
	text.prints("GPU 1", "lost, fallen off the bus", "2 islands of NVLink", "there is no NVIDIA GPU", "MIG", "looked at by nvidia-smi, because plugin nvml")
}

// prints checks the standard output.
func (r result) prints(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout, text) {
			r.t.Errorf("%q is not in:\n%s", text, r.stdout)
		}
	}
	return r
}

func TestEveryRankLandsOnTheGPUThatThePlanShows(t *testing.T) {
	u := newUser(t, theMachines(t))
	path := u.gpuJob([]string{"islands", "dgx-a100", "mixed", "crashing"}, "groups = { tensor = 2 }")
	found := u.mustLandAsPlanned(path)
	if len(found) < 8+8+2+2 {
		t.Errorf("only %d workers: %v", len(found), slices.Collect(maps.Keys(found)))
	}
	bound := 0
	for who, l := range found {
		if l.CPUs == "" {
			t.Errorf("%s tells no CPUs", who)
		}
		if l.Mempolicy != nil && strings.Contains(strings.ToLower(l.Mempolicy.Mode), "prefer") {
			bound++
		}
	}
	t.Logf("%d of %d workers prefer memory of a node", bound, len(found))
}

func TestDevicesAreChosenByAnyOfTheirNames(t *testing.T) {
	u := newUser(t, theMachines(t))
	want := cards(t, "l40s")
	for ranks, indices := range map[string][]int{
		"devices = [3, 1]":                          {3, 1},
		fmt.Sprintf("devices = [%q]", want[2].UUID): {2},
		fmt.Sprintf("devices = [%q]", "00000000"+strings.ToUpper(want[1].PCI[4:])): {1},
		"devices = 2":                                                       {0, 1},
		"per_host = 3\nvisibility = \"rank\"":                               {0, 1, 2},
		"devices = [2, 0]\ndevice_names = \"index\"":                        {2, 0},
		"devices = [3, 0]\nvisibility = \"rank\"\ndevice_names = \"index\"": {3, 0},
	} {
		found := u.mustLandAsPlanned(u.gpuJob([]string{"l40s"}, ranks))
		for rank, index := range indices {
			if got := found[fmt.Sprintf("l40s:%d", rank)].Index; got != index {
				t.Errorf("%s: rank %d is on GPU %d, want %d", ranks, rank, got, index)
			}
		}
		if len(found) != len(indices) {
			t.Errorf("%s: %d ranks", ranks, len(found))
		}
	}
}

// A rank that touches cuda:0 before it chooses would keep the owner of GPU 0 out.
func TestInExclusiveModeEachRankSeesItsOwnGPUOnly(t *testing.T) {
	u := newUser(t, theMachines(t))
	for who, l := range u.mustLandAsPlanned(u.gpuJob([]string{"exclusive"}, "")) {
		if len(l.Visible) != 1 || l.LocalRank != "0" {
			t.Errorf("%s sees %v with LOCAL_RANK %s", who, l.Visible, l.LocalRank)
		}
	}
	u.run("plan", u.gpuJob([]string{"exclusive"}, "")).exits(0).prints("exclusive process", "visibility rank")
}

func TestAMIGInstanceIsADevice(t *testing.T) {
	u := newUser(t, theMachines(t))
	instances := cards(t, "mig")[0].MIG.Instances
	found := u.mustLandAsPlanned(u.gpuJob([]string{"mig"}, ""))
	for i, instance := range instances {
		if l := found[fmt.Sprintf("mig:%d", i)]; l.UUID != instance.UUID || len(l.Visible) != 1 {
			t.Errorf("rank %d is on %s and sees %v, want %s", i, l.UUID, l.Visible, instance.UUID)
		}
	}
	u.run("run", u.gpuJob([]string{"mig"}, "devices = [0]")).exits(75).says("GPU 0 has MIG on", instances[0].UUID)
	u.run("run", u.gpuJob([]string{"mig"}, `visibility = "host"`)).exits(75).says("one MIG device only")
}

// What is refused by the plan alone is tested there; here it is what hosts report.
func TestWhatCannotBePlacedIsRefusedBeforeAnythingStarts(t *testing.T) {
	u := newUser(t, theMachines(t))
	for _, test := range []struct {
		hosts []string
		ranks string
		says  []string
	}{
		{[]string{"busy"}, "devices = 3", []string{"only 2 of its 4 GPUs can be had", "GPU 0 is busy", "GPU 1 is busy", "no process here explains"}},
		{[]string{"no-driver"}, "", []string{"no-driver should have GPUs (4 NVIDIA devices on the PCI bus", "nvml: the NVIDIA driver is not loaded", `devices = "none"`}},
		{[]string{"nothing-installed"}, "", []string{"nothing-installed should have GPUs", "nvidia-smi is not installed"}},
	} {
		r := u.run("run", u.gpuJob(test.hosts, test.ranks)).exits(75).says(test.says...)
		if r.stdout != "" {
			t.Errorf("%v: a worker ran: %s", test, r.stdout)
		}
	}
	found := u.mustLandAsPlanned(u.gpuJob([]string{"busy"}, "devices = 2"))
	if found["busy:0"].Index != 2 || found["busy:1"].Index != 3 {
		t.Errorf("of busy GPUs were chosen %+v", found)
	}
	u.mustLandAsPlanned(u.gpuJob([]string{"lost"}, "devices = 2"))
}

func TestRunsAtTheSameMomentTakeDifferentGPUs(t *testing.T) {
	u := newUser(t, theMachines(t))
	job := func(name string) string {
		path := u.gpuJobFor("1h", []string{"l40s"}, "devices = 2", "stop { grace = \"1s\" }")
		text := strings.Replace(u.read("gpus.hcl"), `job "g"`, fmt.Sprintf("job %q", name), 1)
		return u.file(name+filepath.Ext(path), text)
	}
	first, second := u.start("run", job("one")), u.start("run", job("two"))
	var used []string
	eventually(t, "four workers hold memory", func() bool {
		used = nil
		for _, h := range holdings(t, u.bed.Host("l40s")) {
			used = append(used, h.UUID)
		}
		return len(used) == 4
	})
	slices.Sort(used)
	if len(slices.Compact(used)) != 4 {
		t.Errorf("GPUs are shared: %v", used)
	}
	u.run("run", job("three")).exits(75).says("only 0 of its 4 GPUs can be had", "muster's run one-", "muster's run two-")
	for _, l := range []*launch{first, second} {
		l.signal(15)
		l.wait().exits(143)
	}
	nothingLeft(t, u.bed)
	u.mustLandAsPlanned(u.gpuJob([]string{"l40s"}, ""))
}

// holdings are the processes that hold memory of a host's GPUs.
func holdings(t *testing.T, h *testbed.Host) []gpus.Holding {
	t.Helper()
	var held []gpus.Holding
	if err := h.Do(func() (err error) { held, err = gpus.Held(testbed.GPUFolder); return err }); err != nil {
		t.Fatal(err)
	}
	return held
}

// sweep is what a task does here: the first keeps its GPU to the end, the second leaves a
// process behind that holds all memory and heeds no SIGTERM, and the third stays for a while.
const sweep = `cd %s
nvidia-smi --query-compute-apps=gpu_uuid,used_memory --format=csv,noheader | grep "$CUDA_VISIBLE_DEVICES" >beside-$MUSTER_RANK
echo "$*" >words-$MUSTER_RANK
touch begun-$MUSTER_RANK
case $MUSTER_RANK in
0) exec cudaworker -bytes 40GiB -until end ;;
1)
  setsid cudaworker -bytes 40GiB -for 4s -deaf >left-behind 2>&1 </dev/null &
  until [ -s left-behind ]; do sleep 0.05; done
  cat left-behind ;;
2) exec cudaworker -bytes 40GiB -until go ;;
*) exec cudaworker -bytes 40GiB -for 100ms ;;
esac
`

// Tasks find the GPU of their place as cuda:0, and find it empty: the memory of one task and
// the next together is more than a card has.
func TestEachTaskHasItsPlacesGPUForItselfOnceTheTaskBeforeHasLeftIt(t *testing.T) {
	u := newUser(t, theMachines(t))
	host, own := u.bed.Host("l40s"), cards(t, "l40s")
	u.file("tasks.txt", "# seeds\n--seed 0\n\n--seed 1\n--seed 2\n--seed 3 --name \"the last one\"\n")
	path := u.file("sweep.hcl", fmt.Sprintf("job \"sweep\" {\n  command = [\"sh\", %q]\n  mode = \"independent\"\n  tasks_file = \"tasks.txt\"\n"+
		"  hosts \"ssh\" {\n    names = [\"l40s\"]\n  }\n  ranks {\n    devices = [2, 0]\n  }\n  stop { grace = \"1s\" }\n%s\n}\n",
		u.file("sweep.sh", fmt.Sprintf(sweep, u.dir)), machinesOwn))
	places := u.planned(path)
	for i, card := range []gpus.GPU{own[2], own[0]} {
		if len(places) != 2 || places[i].GPU == nil || places[i].GPU.UUID != card.UUID || places[i].GPU.SeenAs != 0 {
			t.Fatalf("the places are %+v", places)
		}
	}
	u.run("plan", path).exits(0).prints("PLACE", "TASK", `--seed 3 --name "the last one"`, "tasks.txt:6")

	l := u.start("run", path)
	l.waitToSay("4 tasks, 2 at a time")
	u.waitFor("begun-0", "begun-2")
	eventually(t, "the third task holds memory", func() bool { return holds(t, host, own[0].UUID) })
	leave := alien(t, host, own[0].UUID, "3GiB") // and stays when the task ends
	u.file("go", "")
	eventually(t, "the third task has ended", func() bool {
		return !slices.ContainsFunc(holdings(t, host), func(h gpus.Holding) bool { return h.UUID == own[0].UUID && h.Bytes > 4<<30 })
	})
	time.Sleep(1500 * time.Millisecond)
	if u.exists("begun-3") {
		t.Error("a task was started on a GPU of which somebody holds memory")
	}
	leave()
	u.waitFor("begun-3")
	u.file("end", "")
	found := landings(t, l.wait().exits(0))
	for task, card := range []gpus.GPU{own[2], own[0], own[0], own[0]} {
		l := found[fmt.Sprintf("l40s:%d", task)]
		if l.UUID != card.UUID || len(l.Visible) != 1 || l.LocalRank != "" {
			t.Errorf("task %d is on %s and sees %v with LOCAL_RANK %q, want %s alone", task, l.UUID, l.Visible, l.LocalRank, card.UUID)
		}
		if beside := u.read(fmt.Sprintf("beside-%d", task)); beside != "" {
			t.Errorf("task %d found on its GPU: %s", task, beside)
		}
	}
	if got := u.read("words-3"); got != "--seed 3 --name the last one\n" {
		t.Errorf("the last task was given %q", got)
	}
}
