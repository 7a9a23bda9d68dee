package check

import (
	"encoding/json"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
)

func TestAJobFileHasTheLastWordOnFindings(t *testing.T) {
	found := []Finding{{Code: codes.GPULost, Severity: Fail}, {Code: codes.PCIeNarrow, Severity: Warn}, {Code: codes.ECCHistory, Severity: Info}}
	got := Apply(found, config.Check{Ignore: []string{codes.GPULost}, Severity: map[string]Severity{codes.ECCHistory: Fail, codes.PCIeNarrow: Info}})
	if len(got) != 2 || got[0].Code != codes.ECCHistory || got[0].Severity != Fail || got[1].Severity != Info || Verdict(got) != Failed {
		t.Error(listing(got))
	}
	if got := Apply(found, config.Check{}); len(got) != 3 || Verdict(got) != Failed {
		t.Error(listing(got))
	}
	if found[0].Severity != Fail || Verdict(found[1:]) != Warned || Verdict(found[2:]) != Passed || Verdict(nil) != Passed {
		t.Error("verdicts, or the findings given are changed")
	}
}

func TestRefusalsOfAPlanAreFindings(t *testing.T) {
	p := &plan.Plan{Warnings: []plan.Problem{{Code: "slow_group", Host: "a", Message: "a: slow"}, {Code: "busy_device", Message: "said by gpu_in_use"}}}
	if got := Refused(p.Warnings); len(got) != 2 || Verdict(got) != Failed {
		t.Error(listing(got))
	}
}

// Every warning of the plan can be ignored by its code.
func TestThePlansWarningsHaveCodes(t *testing.T) {
	for _, name := range []string{"busy_device", "device_order", "group_size", "logout_kills", "logout_removes_shm", "memory_does_not_fit", "memory_layout", "not_bound", "slow_group", "visibility"} {
		if c, known := codes.Find(name); !known || c.When != codes.Planning {
			t.Errorf("%s is not in the table", name)
		}
	}
}

func TestAFindingsJSONIsThatOfTheContract(t *testing.T) {
	got, err := json.Marshal(Finding{Code: codes.GPULost, Severity: Fail, Host: "a", GPU: ptr(3), Message: "m"})
	if want := `{"code":"gpu_lost","severity":"fail","host":"a","gpu":3,"rank":null,"message":"m","fix":"","attempt":0,"at":0}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}

// The same thing in other words is the same thing.
func TestAFindingIsKnownByWhatItIsAbout(t *testing.T) {
	a, b := Finding{Code: "a", Host: "h", GPU: ptr(1), Message: "x"}, Finding{Code: "a", Host: "h", GPU: ptr(1), Message: "y"}
	if Key(a) != Key(b) || Key(a) == Key(Finding{Code: "a", Host: "h", Rank: ptr(1)}) {
		t.Errorf("%q and %q", Key(a), Key(b))
	}
}
