package runs

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/plugins/gpu"
)

// twice is a run whose second attempt has failed too.
func twice(rep *report.Report) {
	rep.Attempts = []report.Attempt{
		{Attempt: 0, Started: 1000, Outcome: report.Failed, Class: "hang", Message: "nothing has moved\n  for long", Decision: "restart",
			Reason: "restart 1 of 1 after hang, with NCCL_P2P_DISABLE = 1", Changes: map[string]string{"NCCL_P2P_DISABLE": "1"}},
		{Attempt: 1, Started: 2000, Outcome: report.Failed, Class: class.Exit, Decision: "end", Reason: "1 of 1 restart used: 1 for hang"},
	}
	for i := range rep.Ranks {
		rep.Ranks[i].Ends[0].Attempt = 1
		rep.Ranks[i].Ends = append([]report.End{{Signal: "SIGTERM", StoppedByMuster: "SIGTERM"}}, rep.Ranks[i].Ends...)
	}
}

func TestAfterARestartEachRankIsToldOfOnce(t *testing.T) {
	got := reported(twice)
	if want := "  rank 0: stopped by muster (SIGTERM); rank 2: ended with status 1 afterwards; rank 3: stopped by muster (SIGKILL)\n"; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks\n%s", got, want)
	}
}

// A rank that the last attempt did not come to is none of what became of the others.
func TestARankThatWasNotStartedAgainIsLeftOut(t *testing.T) {
	got := reported(func(rep *report.Report) {
		twice(rep)
		rep.Ranks[3].Ends = rep.Ranks[3].Ends[:1]
	})
	if strings.Contains(got, "rank 3:") || strings.Contains(got, "0,3") {
		t.Errorf("%s", got)
	}
}

func TestTheReportSaysHowEachEarlierAttemptEnded(t *testing.T) {
	got := reported(twice)
	for _, want := range []string{
		"  attempt 0 (hang): nothing has moved; started again: restart 1 of 1 after hang, with NCCL_P2P_DISABLE = 1\n",
		"  not started again: 1 of 1 restart used: 1 for hang\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks\n%s", got, want)
		}
	}
	well := reported(func(rep *report.Report) {
		twice(rep)
		rep.Outcome, rep.FirstCause, rep.Attempts[1] = report.OK, nil, report.Attempt{Attempt: 1, Started: 2000, Outcome: report.OK}
	})
	if !strings.HasPrefix(well, "j-abc: all ranks ended well\n  attempt 0 (hang): nothing has moved;") {
		t.Errorf("%s", well)
	}
	if once := reported(func(*report.Report) {}); strings.Contains(once, "attempt 0") || strings.Contains(once, "started again") {
		t.Errorf("of one attempt there is nothing to tell:\n%s", once)
	}
}

func TestTheReportSaysWhyATaskWasStartedAgain(t *testing.T) {
	got := reported(func(rep *report.Report) {
		for i := range rep.Ranks {
			rep.Ranks[i].Task, rep.Ranks[i].Outcome = []string{}, report.OK
		}
		rep.Ranks[1].Outcome = report.Failed
		rep.Ranks[2].Ends = []report.End{{Class: class.Exit, Message: "task 2 on gpu1 ended with exit status 9", Decision: "restart", Reason: "restart 1 of 2"}, {Attempt: 1}}
	})
	if want := "  task 2, attempt 0 (exit): task 2 on gpu1 ended with exit status 9; started again: restart 1 of 2\n"; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks\n%s", got, want)
	}
}

func TestAFailureNamesTheCardThatTheRankCallsOtherwise(t *testing.T) {
	rank := 1
	r := &report.Report{Run: "llama-1", Outcome: report.Failed, Exit: 1,
		FirstCause: &report.Cause{Rank: &rank, Message: "rank 1 on hgx01 ended with exit status 1", Tail: "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000\n"},
		Ranks: []report.Rank{
			{Rank: 0, Host: "hgx01", GPU: &report.GPU{ID: gpu.ID{Index: 3, UUID: "GPU-c3", PCI: "0000:4b:00.0"}, Name: "GPU 3", Seen: 0}},
			{Rank: 1, Host: "hgx01", GPU: &report.GPU{ID: gpu.ID{Index: 5, UUID: "GPU-a5", PCI: "0000:6b:00.0"}, Name: "GPU 5", Seen: 1}, Ends: []report.End{{Exit: 1}}},
		}}
	text := string(failureScreen(&terminal.Stream{}, r))
	for _, part := range []string{"its device: GPU 5 of hgx01, PCI 0000:6b:00.0, GPU-a5; the rank itself calls it GPU 1 (cuda:1)",
		"0     hgx01  cuda:0    3    0000:4b:00.0  GPU-c3", "does the script choose by LOCAL_RANK?"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestAFailureOfNCCLOnMIGDevicesIsNotPutDownToTheScript(t *testing.T) {
	rank := 1
	r := &report.Report{Run: "llama-1", Outcome: report.Failed, Exit: 1,
		FirstCause: &report.Cause{Rank: &rank, Message: "rank 1 on vm7 ended with exit status 1", Tail: "NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.\n"},
		Ranks: []report.Rank{
			{Rank: 0, Host: "vm7", GPU: &report.GPU{ID: gpu.ID{Index: 3, UUID: "MIG-c3", PCI: "0000:4b:00.0"}, Name: "MIG device 0 of GPU 3"}},
			{Rank: 1, Host: "vm7", GPU: &report.GPU{ID: gpu.ID{Index: 3, UUID: "MIG-a5", PCI: "0000:4b:00.0"}, Name: "MIG device 1 of GPU 3"}, Ends: []report.End{{Exit: 1}}},
		}}
	text := string(failureScreen(&terminal.Stream{}, r))
	if !strings.Contains(text, "NCCL takes MIG devices of one GPU for one") || strings.Contains(text, "choose by LOCAL_RANK") {
		t.Error(text)
	}
}
