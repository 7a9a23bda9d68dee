package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/muster-dev/muster/plugins/gpu"
)

const (
	maxReply = 16 << 20
	// maxRefusal is how much is shown of a plugin's own error.
	maxRefusal = 2000
)

// read decodes and checks an answer.
func read[T any](p Program, data []byte, check func(*T) error) (*T, error) {
	found, err := decode[T](data)
	if err == nil {
		err = check(found)
	}
	if err != nil {
		return nil, p.fault(err, "its answer makes no sense: %v", err)
	}
	return found, nil
}

func decode[T any](data []byte) (*T, error) {
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("not a JSON object: %s", quote(string(data[:min(len(data), maxQuote)])))
	}
	found := new(T)
	if err := json.Unmarshal(data, found); err != nil {
		return nil, err
	}
	if text := controlIn(data); text != "" {
		return nil, fmt.Errorf("a text has control characters: %s", quote(text))
	}
	return found, nil
}

// controlIn finds a text in JSON that could command a terminal.
func controlIn(data []byte) string {
	suspect := func(r rune) bool { return r == '\\' || unicode.IsControl(r) && !unicode.IsSpace(r) }
	if !bytes.ContainsFunc(data, suspect) {
		return ""
	}
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		if text, is := token.(string); is && strings.ContainsFunc(text, unicode.IsControl) {
			return text
		}
	}
}

var (
	linkForm     = regexp.MustCompile(`^(|PIX|PXB|PHB|NODE|SYS|NV[1-9][0-9]{0,3})$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	uuidForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`) // it goes into a list with commas
	states       = []string{gpu.StateOK, gpu.StateLost, gpu.StateNeedsReset, gpu.StateUnknown}
	eventKinds   = []string{gpu.EventXid, gpu.EventSingleBit, gpu.EventDoubleBit, gpu.EventLost}
)

// faults are what is inconsistent in an answer.
type faults []string

func (f *faults) require(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

// maxFaults is how many faults an error shows.
const maxFaults = 5

func (f faults) err() error {
	switch n := len(f); {
	case n == 0:
		return nil
	case n > maxFaults:
		f = append(f[:maxFaults:maxFaults], fmt.Sprintf("and %d more", n-maxFaults))
	}
	return errors.New(strings.Join(f, "; "))
}

// Check says what is inconsistent in what a plugin found, all of it; nil: nothing.
func Check(g *gpu.Inventory) error {
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if text := controlIn(data); text != "" {
		return fmt.Errorf("a text has control characters: %s", quote(text))
	}
	return checkInventory(g)
}

func checkInventory(g *gpu.Inventory) error {
	if g.GPUs == nil {
		return errors.New("it has no list of gpus (an empty one says that there are none)")
	}
	var f faults
	seen := map[string]int{}
	for i, d := range g.GPUs {
		at := fmt.Sprintf("gpus[%d]: ", i)
		f.require(d.Index >= 0, at+"index %d is negative", d.Index)
		f.identity(at, d.UUID, d.PCI)
		f.use(at, d.State, d.Processes)
		f.require(d.UUID != "" || d.State != gpu.StateOK || g.Visibility.Names == "index", "%sit has no uuid, by which "+
			`processes are told their devices (unless visibility.names is "index")`, at)
		if i > 0 {
			before := g.GPUs[i-1].Index
			f.require(d.Index != before, "index %d is there twice", d.Index)
			f.require(d.Index >= before, "index %d stands after %d: list gpus by index", d.Index, before)
		}
		other, is := seen[d.UUID]
		f.require(!is || d.UUID == "", "indices %d and %d have the same uuid %s", other, d.Index, quote(d.UUID))
		seen[d.UUID] = d.Index
	}
	f.links(g.Links, len(g.GPUs))
	v := g.Visibility
	f.require(v.Variable == "" || variableForm.MatchString(v.Variable),
		"visibility.variable %s is no name of an environment variable", quote(v.Variable))
	f.require(slices.Contains([]string{"", "uuid", "index"}, v.Names), `visibility.names is %s, not "uuid" or "index"`, quote(v.Names))
	return f.err()
}

// identity checks how a device is named.
func (f *faults) identity(at, uuid, pci string) {
	sysfs, is := gpu.SysfsPCI(pci)
	f.require(pci == "" || is && pci == sysfs, at+"pci %s is not as in sysfs, such as 0000:0f:00.0", quote(pci))
	f.require(uuid == "" || uuidForm.MatchString(uuid), at+"uuid %s has other signs than letters, digits and ._/:-", quote(uuid))
}

// use checks the state of a device and who uses it.
func (f *faults) use(at, state string, processes []gpu.Process) {
	f.require(slices.Contains(states, state), at+"state %s is none of %s", quote(state), strings.Join(states, ", "))
	for _, p := range processes {
		f.require(p.PID > 0, at+"a process has pid %d", p.PID)
	}
}

func (f *faults) links(links [][]gpu.Link, gpus int) {
	f.require(len(links) == gpus, "links have %d rows for %d gpus: a row for each, with a cell for each", len(links), gpus)
	for i, row := range links {
		f.require(len(row) == gpus, "links[%d] has %d cells for %d gpus", i, len(row), gpus)
		for j, link := range row {
			ok := i == j && link == "X" || link == "" || i != j && linkForm.MatchString(string(link))
			f.require(ok, "links[%d][%d] is %s", i, j, quote(string(link)))
		}
	}
}

func checkSamples(s *gpu.Samples) error {
	if s.GPUs == nil {
		return errors.New("it has no list of gpus (an empty one says that there are none)")
	}
	var f faults
	f.require(s.Every >= 0 && s.Every <= 3600, "every_s is %v, not 0 to 3600", s.Every)
	for i, d := range s.GPUs {
		at := fmt.Sprintf("gpus[%d]: ", i)
		f.use(at, d.State, d.Processes)
		for _, percent := range []*int{d.Utilization.GPU, d.Utilization.Memory} {
			f.require(percent == nil || *percent >= 0 && *percent <= 100, at+"a utilization of %d %%", gpu.OrZero(percent))
		}
	}
	return f.err()
}

// maxXid is more than any error number of NVIDIA's driver.
const maxXid = 99_999

// checkEvents removes events of unknown kinds, and says what is inconsistent in others.
func checkEvents(e *gpu.Events) error {
	e.Events = slices.DeleteFunc(e.Events, func(e gpu.Event) bool { return !slices.Contains(eventKinds, e.Kind) })
	var f faults
	for i, event := range e.Events {
		at := fmt.Sprintf("events[%d]: ", i)
		f.identity(at, event.UUID, event.PCI)
		f.require(event.Kind != gpu.EventXid || event.Xid >= 1 && event.Xid <= maxXid,
			at+"xid %d is no number of NVIDIA's driver", event.Xid)
	}
	return f.err()
}
