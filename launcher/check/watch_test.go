package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/plugins/gpu"
)

// holder makes what a rank's leader holds.
func holder(rank int, uuid string, bytes uint64) gpu.Holder {
	return gpu.Holder{UUID: uuid, PID: 1000 + rank, Rank: rank, Kind: "compute", Bytes: &bytes, Command: "python"}
}

func child(rank, pid int, uuid string) gpu.Holder {
	return gpu.Holder{UUID: uuid, PID: pid, Rank: rank, Child: true, Kind: "compute", Bytes: ptr(uint64(500 << 20)), Command: "python"}
}

func stranger(pid int, uuid string) gpu.Holder {
	return gpu.Holder{UUID: uuid, PID: pid, Rank: gpu.Nobody, Kind: "compute", Bytes: ptr(uint64(10 << 30)), User: "bob", Command: "/usr/bin/python3 serve.py"}
}

// inPlace is a host whose ranks are all on their GPUs.
func inPlace(host int, at float64) Sight {
	s := Sight{Host: host, At: at}
	for i := range 8 {
		s.Holders = append(s.Holders, holder(host*8+i, uuid(host, i), 20<<30))
	}
	return s
}

// says checks that findings are of these codes, and hold these words in this order.
func says(t *testing.T, found []Finding, want ...string) {
	t.Helper()
	ok := len(found) == len(want)/2
	for i := 0; ok && i < len(found); i++ {
		ok = found[i].Code == want[2*i] && strings.Contains(found[i].Message, want[2*i+1])
	}
	if !ok {
		t.Errorf("want %q, got\n%s", want, listing(found))
	}
}

func TestRanksOnTheirGPUsAreProvenAndSilent(t *testing.T) {
	w := NewWatch(healthy(t, 2, "").Plan)
	if got := w.Unproven(); len(got) != 16 {
		t.Errorf("unproven: %v", got)
	}
	says(t, w.See(inPlace(0, 3)))
	if w.Proven() || !slices.Equal(w.Unproven(), []int{8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Errorf("unproven: %v", w.Unproven())
	}
	says(t, w.See(inPlace(1, 4)))
	says(t, w.See(inPlace(0, 400)))
	says(t, w.See(Sight{Host: 0, At: 500})) // between epochs, say
	if !w.Proven() {
		t.Errorf("unproven: %v", w.Unproven())
	}
}

// The classic: a rank opens the first GPU that it sees before it has chosen its own.
func TestARankThatOpenedGPU0IsToldTheFix(t *testing.T) {
	w := NewWatch(healthy(t, 2, "").Plan)
	s := inPlace(1, 3)
	s.Holders = append(s.Holders, holder(11, uuid(1, 0), 512<<20))
	found := w.See(s)
	says(t, found, codes.ExtraGPU, "rank 11 on gpu02 opened GPU 0 (0000:18:00.0), which is rank 8's: memory of it is taken (0.5 GiB)")
	f := found[0]
	if f.Severity != Warn || f.Host != "gpu02" || *f.GPU != 0 || *f.Rank != 11 || !strings.Contains(f.Fix, "call torch.cuda.set_device(LOCAL_RANK) before the first CUDA call") {
		t.Error(listing(found))
	}
	says(t, w.See(s)) // once
	for _, rank := range []int{9, 10, 12, 13, 14, 15} {
		s.Holders = append(s.Holders, holder(rank, uuid(1, 0), 512<<20))
	}
	says(t, w.See(s), codes.ExtraGPU, "ranks 9-10,12-15 on gpu02 opened GPU 0 (0000:18:00.0), which is rank 8's: memory of it is taken (3.0 GiB)")
	if len(w.Unproven()) != 8 {
		t.Errorf("unproven: %v", w.Unproven())
	}
}

// NCCL's peer-to-peer mappings make ranks show on each other's GPUs.
func TestPeerToPeerIsNoContext(t *testing.T) {
	for _, amount := range []*uint64{ptr(uint64(0)), ptr(uint64(2 << 20)), nil} {
		w := NewWatch(healthy(t, 1, "").Plan)
		s := inPlace(0, 10)
		for rank := range 8 {
			for other := range 8 {
				h := holder(rank, uuid(0, other), 0)
				h.Bytes = amount
				if s.Holders[rank].Bytes = amount; other != rank {
					s.Holders = append(s.Holders, h)
				}
			}
		}
		if says(t, w.See(s)); !w.Proven() {
			t.Errorf("unproven: %v", w.Unproven())
		}
	}
	w := NewWatch(healthy(t, 1, "").Plan)
	s := inPlace(0, 10)
	s.Holders = append(s.Holders, gpu.Holder{UUID: uuid(0, 0), PID: 1003, Rank: 3, Kind: "compute"})
	says(t, w.See(s), codes.ExtraGPU, "rank 3 on gpu01 opened GPU 0 (0000:18:00.0), which is rank 0's: memory of it is taken, and")
}

// On its way to its own a rank may open GPU 0; if it stays there it is on the wrong one.
func TestARankThatIgnoresItsNumberIsOnTheWrongGPU(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := Sight{At: 2}
	for rank := range 8 {
		s.Holders = append(s.Holders, holder(rank, uuid(0, 0), 5<<30))
	}
	says(t, w.See(s), codes.ExtraGPU, "ranks 1-7 on gpu01 opened GPU 0")
	s.At = 3.5
	says(t, w.See(s))
	s.At = 4.5
	found := w.See(s)
	says(t, found, codes.SharedGPU, "ranks 0-7 on gpu01 are all on GPU 0 (0000:18:00.0), which is rank 0's: NCCL refuses", codes.WrongGPU, "ranks 1-7 on gpu01 run on GPU 0 (0000:18:00.0), which is rank 0's; the plan gave each another")
	s.At = 60
	says(t, w.See(s))
	if !slices.Equal(w.Unproven(), []int{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("unproven: %v", w.Unproven())
	}
	stopped := Apply(found, config.Check{WrongGPU: config.WrongGPUStop})
	lenient := Apply(found, config.Check{WrongGPU: config.WrongGPUStop, Ignore: []string{codes.SharedGPU}, Severity: map[string]Severity{codes.WrongGPU: Info}})
	if Verdict(found) != Warned || Verdict(stopped) != Failed || len(lenient) != 1 || Verdict(lenient) != Passed {
		t.Errorf("%s%s", listing(stopped), listing(lenient))
	}
}

func TestARankOnAnotherRanksGPUIsSaidAtOnce(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := inPlace(0, 1)
	s.Holders[5].UUID = uuid(0, 6)
	found := w.See(s)
	says(t, found, codes.SharedGPU, "ranks 5-6 on gpu01 are all on GPU 6", codes.WrongGPU, "rank 5 on gpu01 runs on GPU 6 (0000:78:00.0), which is rank 6's; the plan gave it GPU 5 (0000:68:00.0)")
	if !strings.Contains(found[1].Fix, "cuda:LOCAL_RANK, not cuda:RANK") {
		t.Error(listing(found))
	}
}

// Two ranks that have changed places share nothing.
func TestRanksThatHaveChangedPlaces(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := inPlace(0, 1)
	s.Holders[5].UUID, s.Holders[6].UUID = uuid(0, 6), uuid(0, 5)
	says(t, w.See(s), codes.WrongGPU, "rank 5 on gpu01 runs on GPU 6", codes.WrongGPU, "rank 6 on gpu01 runs on GPU 5")
}

// A script that sets CUDA_VISIBLE_DEVICES itself leaves the plan.
func TestARankOutsideThePlan(t *testing.T) {
	w := NewWatch(healthy(t, 1, "devices = [2, 3]").Plan)
	found := w.See(Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, uuid(0, 2), 1<<30), holder(1, uuid(0, 7), 1<<30)}}})
	says(t, found, codes.WrongGPU, "rank 1 on gpu01 runs on a GPU that the plan does not have ("+uuid(0, 7)+"); the plan gave it GPU 3")
	if !strings.Contains(found[0].Fix, "CUDA_VISIBLE_DEVICES") || found[0].GPU != nil {
		t.Error(listing(found))
	}
}

// Where a rank is to spread over several, those that are no rank's are anybody's.
func TestRanksMaySpreadOverGPUsThatAreNobodys(t *testing.T) {
	c := healthy(t, 1, "per_host = 2\ndevices = [0, 1, 2, 3]")
	w := NewWatch(c.Plan)
	s := Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, uuid(0, 0), 1<<30), holder(0, uuid(0, 2), 1<<30), holder(1, uuid(0, 1), 1<<30), holder(1, uuid(0, 3), 1<<30)}}}
	says(t, w.See(s))
	if !w.Proven() {
		t.Error("not proven")
	}
}

// Ranks that the plan has put on one GPU may be there.
func TestRanksThatShareByPlanAreSilent(t *testing.T) {
	w := NewWatch(healthy(t, 1, "per_host = 4\ndevices = 2\nshared = true\nbackend = \"gloo\"").Plan)
	s := Sight{At: 1}
	for rank := range 4 {
		s.Holders = append(s.Holders, holder(rank, uuid(0, rank/2), 1<<30))
	}
	s.Holders = append(s.Holders, stranger(77, uuid(0, 0)))
	found := w.See(s)
	says(t, found, codes.ForeignProcess, "python3 (pid 77, bob")
	if !w.Proven() || found[0].Severity != Info {
		t.Error(listing(found))
	}
}

// A launcher script within the rank is not the rank: the process that holds the GPU is.
func TestARankBehindAWrapperIsTheChildThatHoldsTheGPU(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := Sight{At: 1}
	for rank := range 8 {
		s.Holders = append(s.Holders, child(rank, 2000+10*rank, uuid(0, rank)))
	}
	says(t, w.See(s))
	if !w.Proven() {
		t.Error("not proven")
	}
	s.Holders = append([]gpu.Holder{child(3, 100, uuid(0, 3))}, s.Holders...) // pids begin anew
	found := w.See(s)
	says(t, found, codes.ChildOnGPU, "a child process of rank 3 on gpu01 holds memory of GPUs by itself (0.5 GiB): python (pid 100, 0.5 GiB)")
}

func TestDataLoadersOnGPUsAreSaidPerRankOnceUntilTheyDouble(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := inPlace(0, 5)
	for rank := range 2 {
		for n := range 4 {
			s.Holders = append(s.Holders, child(rank, 3000+10*rank+n, uuid(0, 0)))
		}
	}
	found := w.See(s)
	says(t, found, codes.ChildOnGPU, "8 child processes of ranks 0-1 on gpu01 hold memory of GPUs by themselves (3.9 GiB): python (pid 3000, 0.5 GiB) and 7 more")
	if !strings.Contains(found[0].Fix, "data loader workers should not touch CUDA") || found[0].Rank != nil {
		t.Error(listing(found))
	}
	s.Holders = append(s.Holders, child(1, 3100, uuid(0, 1)))
	says(t, w.See(s))
	for n := range 3 {
		s.Holders = append(s.Holders, child(1, 3101+n, uuid(0, 1)))
	}
	found = w.See(s)
	says(t, found, codes.ChildOnGPU, "8 child processes of rank 1")
}

func TestARankWithoutAGPUIsSaidAfterAWhile(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := inPlace(0, 59)
	s.Holders = s.Holders[:5]
	says(t, w.See(s))
	w.Ended(7) // with nothing to do
	s.At = 61
	found := w.See(s)
	says(t, found, codes.RankWithoutGPU, "ranks 5-6 on gpu01 have opened no GPU 61 s after the start")
	if found[0].Severity != Info {
		t.Error(listing(found))
	}
	s.Holders = append(s.Holders, holder(6, uuid(0, 6), 1<<30))
	says(t, w.See(s))
	s.At = 301
	found = w.See(s)
	says(t, found, codes.RankWithoutGPU, "rank 5 on gpu01 has opened no GPU 301 s after the start; the plan gave it GPU 5 (0000:68:00.0)")
	if found[0].Severity != Warn || *found[0].Rank != 5 || *found[0].GPU != 5 {
		t.Error(listing(found))
	}
	says(t, w.See(s))
}

// Who was there when the plan was made was said then.
func TestOnlyForeignProcessesThatCameLaterAreSaid(t *testing.T) {
	c := healthy(t, 1, "devices = [0, 1]")
	inUse(bobs)(c.card(0, 1))
	c.plan("devices = [0, 1]")
	w := NewWatch(c.Plan)
	s := Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, uuid(0, 0), 1<<30), holder(1, uuid(0, 1), 1<<30), stranger(bobs.PID, uuid(0, 1)),
		{UUID: uuid(0, 0), PID: 5, Rank: gpu.Nobody, Kind: "graphics", Command: "Xorg"}, stranger(6, uuid(0, 5))}}}
	says(t, w.See(s))
	s.Holders = append(s.Holders, stranger(4343, uuid(0, 1)))
	found := w.See(s)
	says(t, found, codes.ForeignProcess, "gpu01 GPU 1: a process that is not of this run has come to GPU 1 (0000:28:00.0), which is rank 1's: python3 (pid 4343, bob, 10.0 GiB)")
	if found[0].Severity != Warn || *found[0].Rank != 1 {
		t.Error(listing(found))
	}
	says(t, w.See(s))
}

// MPS's server holds the GPU for its clients, which may not show.
func TestAServerOfMPSIsOurs(t *testing.T) {
	w := NewWatch(healthy(t, 1, "devices = [0]").Plan)
	server := gpu.Holder{UUID: uuid(0, 0), PID: 9, Rank: gpu.Nobody, Kind: "compute", Command: "/usr/bin/nvidia-cuda-mps-server"}
	says(t, w.See(Sight{At: 400, Usage: gpu.Usage{Holders: []gpu.Holder{server}}}))
	if !w.Proven() {
		t.Error("not proven")
	}
}

// partitioned is a host with a GPU in two parts.
func partitioned(t *testing.T) *cluster {
	c := healthy(t, 1, "")
	c.cut(0, 1)
	g := c.card(0, 0)
	g.MIG.Enabled = ptr(true)
	for i := range 2 {
		g.MIG.Instances = append(g.MIG.Instances, gpu.MIGInstance{Index: i, UUID: part(i), GI: ptr(i + 1), CI: ptr(0), Memory: ptr(uint64(39 << 30)), Used: ptr(uint64(0))})
	}
	c.plan("backend = \"gloo\"")
	return c
}

// part is the UUID of a part.
func part(i int) string { return fmt.Sprintf("MIG-00000000-0000-0000-0000-00000000000%d", i) }

func TestPartsOfAGPUAreToldApartWhereTheDriverTells(t *testing.T) {
	w := NewWatch(partitioned(t).Plan)
	says(t, w.See(Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, part(0), 1<<30), holder(1, part(0), 1<<30)}}}), codes.SharedGPU, "ranks 0-1 on gpu01 are all on MIG device 0 of GPU 0", codes.WrongGPU, "rank 1 on gpu01 runs on MIG device 0 of GPU 0 (0000:18:00.0), which is rank 0's; the plan gave it MIG device 1 of GPU 0")
	w = NewWatch(partitioned(t).Plan)
	says(t, w.See(Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, uuid(0, 0), 1<<30), holder(1, uuid(0, 0), 1<<30)}}}))
	if !w.Proven() {
		t.Error("not proven by the GPU")
	}
}

func TestAPartBesideThePlanIsNotTakenForTheRanksOwn(t *testing.T) {
	c := partitioned(t)
	own, other := part(1), part(0)
	c.plan("backend = \"gloo\"\ndevices = [\"" + own + "\"]")
	w := NewWatch(c.Plan)
	says(t, w.See(Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, other, 1<<30)}}}), codes.WrongGPU,
		"rank 0 on gpu01 runs on MIG device 0 of GPU 0 ("+other+"), which the plan does not have; the plan gave it MIG device 1 of GPU 0")
	if w.Proven() {
		t.Error("proven by another part")
	}
	// Somebody else's run on the other part is nobody's business here.
	w = NewWatch(c.Plan)
	says(t, w.See(Sight{At: 1, Usage: gpu.Usage{Holders: []gpu.Holder{holder(0, own, 1<<30), stranger(70000, other)}}}))
	if !w.Proven() {
		t.Error("not proven by its own")
	}
}

// In a container whose process numbers are its own nobody is taken for a stranger, and
// what cannot be seen is said once.
func TestWhatCannotBeSeenIsSaidOnce(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	s := Sight{At: 5, Usage: gpu.Usage{Blind: "muster runs in a container", Used: map[string]uint64{}}}
	for i := range 8 {
		s.Used[uuid(0, i)] = 5 << 30
		s.Holders = append(s.Holders, stranger(70000+i, uuid(0, i)))
	}
	says(t, w.See(s), codes.CannotSee, "gpu01: which rank is on which GPU cannot be seen there: muster runs in a container")
	s.At = 100
	says(t, w.See(s))
	if len(w.Unproven()) != 8 {
		t.Errorf("unproven: %v", w.Unproven())
	}
	for i := range 7 { // the classic, as it shows there
		s.Holders = append(s.Holders, stranger(70001+i, uuid(0, 0)))
	}
	s.Used[uuid(0, 3)] = 4 << 20
	found := w.See(s)
	says(t, found, codes.CrowdedGPU, "gpu01 GPU 0: 8 processes hold memory of GPU 0 (0000:18:00.0), which is rank 0's", codes.RankWithoutGPU, "rank 3 on gpu01 has opened no GPU 100 s after the start")
	if !strings.Contains(found[0].Fix, "set_device(LOCAL_RANK)") {
		t.Error(listing(found))
	}
}

func TestADriverThatDoesNotAnswerIsSaidOnce(t *testing.T) {
	w := NewWatch(healthy(t, 1, "").Plan)
	found := w.See(Sight{At: 100, Usage: gpu.Usage{Error: "no answer within 20s"}})
	says(t, found, codes.CannotSee, "gpu01: its GPUs cannot be looked at (no answer within 20s)")
	if found[0].Severity != Warn {
		t.Error(listing(found))
	}
	says(t, w.See(Sight{At: 110, Usage: gpu.Usage{Error: "no answer within 20s"}}))
	none := NewWatch(healthy(t, 1, "per_host = 2\ndevices = \"none\"").Plan)
	if says(t, none.See(Sight{At: 100, Usage: gpu.Usage{Error: "x"}})); !none.Proven() {
		t.Error("ranks without devices have nothing to prove")
	}
}
