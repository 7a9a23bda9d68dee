package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/collective"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/place"
	"github.com/muster-dev/muster/plugins/gpu"
)

// measuring is what healthy hosts of two ranks each say.
func measuring(hosts int) *Measured {
	m := &Measured{Plan: &plan.Plan{}}
	var ranks []int
	for h := range hosts {
		m.Plan.Hosts = append(m.Plan.Hosts, plan.Host{Name: fmt.Sprintf("gpu%02d", h+1), FirstRank: 2 * h, Share: place.Share{Ranks: 2}})
		for r := range 2 {
			m.Plan.Ranks = append(m.Plan.Ranks, plan.Rank{Rank: 2*h + r, Host: h, Local: r, Device: &plan.Device{ID: gpu.ID{Index: r}}})
		}
		ranks = append(ranks, 2)
	}
	m.Ask = collective.For("nccl", ranks)
	for rank := range m.Plan.Ranks {
		m.Said = append(m.Said,
			collective.Said{Phase: collective.Torch, Rank: rank, State: collective.OK},
			collective.Said{Phase: collective.Compute, Rank: rank, State: collective.OK, Seconds: 0.002, Name: "H100", PCIe: &collective.PCIe{Speed: "32.0", SpeedMax: "32.0", Width: "16", WidthMax: "16"}},
			collective.Said{Phase: collective.All, Rank: rank, State: collective.OK, Bytes: 256 << 20, Seconds: 0.02})
		for number, pairs := range m.Ask.Rounds {
			for _, p := range pairs {
				if h := m.Plan.Ranks[rank].Host; h == p[0] || h == p[1] {
					m.Said = append(m.Said, collective.Said{Phase: fmt.Sprint("round ", number), Rank: rank, State: collective.OK, Bytes: 256 << 20, Seconds: 0.02})
				}
			}
		}
	}
	return m
}

// of changes what the ranks of a host say of their pairs with the others that partner takes.
func (m *Measured) of(host int, partner func(other int) bool, wrong func(s *collective.Said)) {
	for number, pairs := range m.Ask.Rounds {
		for _, p := range pairs {
			if !slices.Contains(p[:], host) || !partner(p[0]+p[1]-host) {
				continue
			}
			for i := range m.Said {
				s := &m.Said[i]
				if s.Phase == fmt.Sprint("round ", number) && slices.Contains(p[:], m.Plan.Ranks[s.Rank].Host) {
					wrong(s)
				}
			}
		}
	}
}

func (m *Measured) all(phase string, wrong func(s *collective.Said)) {
	for i := range m.Said {
		if m.Said[i].Phase == phase {
			wrong(&m.Said[i])
		}
	}
}

func anybody(int) bool { return true }

func hangs(s *collective.Said) { s.State, s.Bytes, s.Seconds = collective.Hung, 0, 0 }
func slows(s *collective.Said) { s.Seconds = 0.2 }
func errs(s *collective.Said)  { s.Wrong = 7 }

func TestHealthyRanksTellWhatTheyMeasured(t *testing.T) {
	for hosts := 1; hosts < 10; hosts++ {
		found := Collective(*measuring(hosts))
		if len(found) != 1 || found[0].Code != codes.CollectiveRate || !strings.Contains(found[0].Message, "256 MiB") && !strings.Contains(found[0].Message, "0.2 GiB") {
			t.Errorf("%d hosts:\n%s", hosts, listing(found))
		}
	}
}

// Times that differ by less than what machines do by themselves, or not by twice, are alike.
func TestAHostThatIsALittleSlowerIsNotNamed(t *testing.T) {
	m := measuring(5)
	m.of(2, anybody, func(s *collective.Said) { s.Seconds = 0.039 })
	if found := Collective(*m); len(found) != 1 {
		t.Error(listing(found))
	}
	m = measuring(5)
	m.all(collective.All, func(s *collective.Said) { s.Seconds = 0.002 })
	for i := range m.Said {
		m.Said[i].Seconds /= 10
	}
	m.of(2, anybody, func(s *collective.Said) { s.Seconds = 0.008 })
	if found := Collective(*m); len(found) != 1 {
		t.Error(listing(found))
	}
}

func TestWhoIsSlowOrWrongOrHangsIsNamed(t *testing.T) {
	for _, test := range []struct {
		name  string
		hosts int
		wrong func(m *Measured)
		code  string
		where string // the host; "" for a way or all
		says  string
	}{
		{"a host hangs", 4, func(m *Measured) {
			m.of(1, anybody, hangs)
			m.all(collective.All, hangs)
		}, codes.CollectiveHang, "gpu02", "do not get through an all-reduce with those of gpu01 and gpu03: nothing came of it within 45 s"},
		{"one of three hangs", 3, func(m *Measured) { m.of(1, anybody, hangs) }, codes.CollectiveHang, "gpu02", "gpu01 and gpu03"},
		{"the last of five hangs", 5, func(m *Measured) { m.of(4, anybody, hangs) }, codes.CollectiveHang, "gpu05", "gpu04 and gpu01"},
		{"two hosts hang", 2, func(m *Measured) { m.of(0, anybody, hangs) }, codes.CollectiveHang, "", "gpu01 and gpu02: their ranks do not get through an all-reduce together: nothing"},
		{"a way is closed", 4, func(m *Measured) { m.of(1, func(other int) bool { return other == 2 }, hangs) }, codes.CollectiveHang, "", "gpu02 and gpu03: their ranks do not get through an all-reduce together, and do so with others"},
		{"only all hang", 4, func(m *Measured) { m.all(collective.All, hangs) }, codes.CollectiveHang, "", "8 ranks do not get through an all-reduce together, though each pair of hosts does well"},
		{"one host hangs in itself", 1, func(m *Measured) { m.all(collective.All, hangs) }, codes.CollectiveHang, "", "2 ranks do not get through an all-reduce together: nothing"},
		{"an error has words", 4, func(m *Measured) {
			m.of(1, anybody, func(s *collective.Said) { s.State, s.Error = collective.Failed, "unhandled system error\nmore" })
		}, codes.CollectiveHang, "gpu02", ": unhandled system error"},
		{"a host was waited for in vain", 4, func(m *Measured) { m.of(1, anybody, func(s *collective.Said) { s.State = collective.Late }) }, codes.CollectiveHang, "gpu02", "has waited in vain"},
		{"a sum is wrong", 4, func(m *Measured) {
			m.of(3, anybody, errs)
			m.all(collective.All, errs)
		}, codes.CollectiveWrong, "gpu04", "wrong sum from an all-reduce with those of gpu03 and gpu01: 7 numbers are wrong"},
		{"only the sum of all is wrong", 4, func(m *Measured) { m.all(collective.All, errs) }, codes.CollectiveWrong, "", "8 ranks get a wrong sum"},
		{"a host is slow", 4, func(m *Measured) { m.of(2, anybody, slows) }, codes.CollectiveSlow, "gpu03", "1.3 GB/s with those of another host at best, the median host's 13 GB/s"},
		{"one of three is slow", 3, func(m *Measured) { m.of(2, anybody, slows) }, codes.CollectiveSlow, "gpu03", "median"},
		{"a way is slow", 6, func(m *Measured) { m.of(2, func(other int) bool { return other == 3 }, slows) }, codes.CollectiveSlow, "", "gpu03 and gpu04: their ranks sum"},
		{"a GPU is wrong", 3, func(m *Measured) { m.Said[1].Wrong = 1 }, codes.ComputeWrong, "gpu01", "gpu01 GPU 0: rank 0 multiplied matrices, and 1 number is wrong"},
		{"a GPU hangs", 3, func(m *Measured) { hangs(&m.Said[1]) }, codes.ComputeWrong, "gpu01", "could not multiply"},
		{"a GPU is slow", 3, func(m *Measured) { m.Said[1].Seconds = 0.005 }, codes.ComputeSlow, "gpu01", "in 5 ms, the median of its kind is 2 ms"},
		{"a link is slow", 3, func(m *Measured) {
			m.Said[1].PCIe = &collective.PCIe{Speed: "8.0", SpeedMax: "32.0", Width: "4", WidthMax: "16"}
		}, codes.PCIeUnderLoad, "gpu01", "x4 of x16, 8.0 of 32.0 GT/s"},
		{"the run failed", 3, func(m *Measured) {
			m.Failed, m.Said = &RunFailed{Host: "gpu02", Message: "rank 2 ended with status 1"}, nil
		}, codes.CollectiveFailed, "gpu02", "rank 2 ended"},
		{"nobody says anything", 3, func(m *Measured) { m.Said = nil }, codes.CollectiveFailed, "", "nothing"},
	} {
		m := measuring(test.hosts)
		test.wrong(m)
		found := slices.DeleteFunc(Collective(*m), func(f Finding) bool { return f.Code == codes.CollectiveRate })
		if len(found) != 1 || found[0].Code != test.code || found[0].Host != test.where || !strings.Contains(found[0].Message, test.says) {
			t.Errorf("%s: want %s of %q with %q, got\n%s", test.name, test.code, test.where, test.says, listing(found))
		}
	}
}

// cannot has ranks of these hosts say an error of their own, and the others nothing of what
// they would have measured with them.
func (m *Measured) cannot(phase, fault, text string, hosts ...int) {
	m.Said = slices.DeleteFunc(m.Said, func(s collective.Said) bool {
		return s.Phase != collective.Torch && (s.Phase != collective.Compute || slices.Contains(hosts, m.Plan.Ranks[s.Rank].Host))
	})
	for rank, r := range m.Plan.Ranks {
		if slices.Contains(hosts, r.Host) {
			m.Said = append(m.Said, collective.Said{Phase: phase, Rank: rank, State: collective.Failed, Fault: fault, Error: text})
		}
	}
}

// What keeps ranks from measuring is their program's error then, and no cable's.
func TestAnErrorOfTheRanksProgramIsTheOneFindingAndNoHang(t *testing.T) {
	const noDriver = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU.\nmore"
	for _, test := range []struct {
		name  string
		hosts int
		wrong func(m *Measured)
		where string
		rank  bool
		says  string
		fix   string
	}{
		{"no driver anywhere", 3, func(m *Measured) { m.cannot(collective.Compute, collective.Unusable, noDriver, 0, 1, 2) }, "", false,
			"torch cannot use CUDA on all 3 hosts: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU.", "torch.version.cuda"},
		{"a torch for CPUs on one", 3, func(m *Measured) {
			m.cannot(collective.Compute, collective.Unusable, "Torch not compiled with CUDA enabled", 1)
		}, "gpu02", false, "gpu02: torch cannot use CUDA there: Torch not compiled with CUDA enabled", "without CUDA"},
		{"two of four", 4, func(m *Measured) { m.cannot(collective.Compute, collective.Unusable, noDriver, 3, 1) }, "", false,
			"torch cannot use CUDA on gpu02, gpu04: Found", "nvidia-smi"},
		{"one rank", 3, func(m *Measured) {
			m.cannot(collective.Compute, collective.Unusable, "CUDA-capable device(s) is/are busy or unavailable", 1)
			m.Said = m.Said[:len(m.Said)-1]
		}, "gpu02", true, "gpu02 GPU 0: torch cannot use CUDA in rank 2: CUDA-capable", "nvidia-smi"},
		{"no torch, as JAX jobs have", 2, func(m *Measured) {
			m.Said = nil
			m.cannot(collective.Torch, "ModuleNotFoundError", "No module named 'torch'", 0, 1)
			m.Failed = &RunFailed{Host: "gpu01", Message: "rank 0 on gpu01 ended with status 1", Tail: "torch cannot be loaded"}
		}, "", false, "torch, by which ranks measure whatever the job's own program is, cannot be loaded on all 2 hosts: No module named 'torch'", "python = "},
		{"an exception in the midst", 4, func(m *Measured) { m.cannot(collective.All, "ValueError", "group size", 2) }, "gpu03", false,
			"gpu03: ranks could not measure there: ValueError: group size", "error of the program"},
		{"no memory left", 1, func(m *Measured) {
			m.cannot(collective.Compute, "OutOfMemoryError", "CUDA out of memory. Tried to allocate 64.00 MiB.", 0)
		}, "gpu01", false, "OutOfMemoryError: CUDA out of memory.", ""},
	} {
		m := measuring(test.hosts)
		test.wrong(m)
		found := Collective(*m)
		if len(found) != 1 || found[0].Code != codes.CollectiveFailed || found[0].Host != test.where || (found[0].Rank != nil) != test.rank ||
			!strings.Contains(found[0].Message, test.says) || !strings.Contains(found[0].Fix, test.fix) {
			t.Errorf("%s: got\n%s", test.name, listing(found))
		}
	}
}
