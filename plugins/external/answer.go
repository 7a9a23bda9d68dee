package external

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/muster-dev/muster/plugins/gpu"
)

const (
	maxReply = 16 << 20
	// Three bytes of JSON can become a struct of half a kilobyte. No machine needs more
	// than some thousand objects.
	maxObjects  = 32 << 10
	maxElements = 256 << 10
	// longestRefusal is how much is shown of a plugin's own error.
	longestRefusal = 2000
)

// read decodes and checks an answer, and completes it: its source, and a reason for each
// value that has none.
func (p Program) read(data []byte) (*gpu.Inventory, error) {
	g, err := decode[gpu.Inventory](data)
	if err == nil {
		err = Check(g)
	}
	if err != nil {
		return nil, p.fault(KindAnswer, err, "its answer makes no sense: %v", err)
	}
	g.Source = cmp.Or(g.Source, p.Name)
	g.Explain("the plugin does not tell")
	for i := range g.GPUs {
		g.GPUs[i].Explain("the plugin does not tell")
	}
	return g, nil
}

// readEvents decodes and checks what a watch has told.
func (p Program) readEvents(data []byte) (*gpu.Events, error) {
	e, err := decode[gpu.Events](data)
	if err == nil {
		err = checkEvents(e)
	}
	if err != nil {
		return nil, p.fault(KindAnswer, err, "its answer makes no sense: %v", err)
	}
	return e, nil
}

func decode[T any](data []byte) (*T, error) {
	if bytes.Count(data, []byte("{")) > maxObjects || bytes.Count(data, []byte("[")) > maxObjects || bytes.Count(data, []byte(",")) > maxElements {
		return nil, fmt.Errorf("it has more elements than any machine has parts (%d bytes)", len(data))
	}
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("not a JSON object: %s", quote(string(data[:min(len(data), longestQuote)])))
	}
	found := new(T)
	if err := json.Unmarshal(data, found); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			from := max(0, min(int(syntax.Offset)-20, len(data)))
			return nil, fmt.Errorf("%w, near %s", err, quote(string(data[from:min(from+40, len(data))])))
		}
		return nil, err
	}
	return found, nil
}

var (
	linkForm     = regexp.MustCompile(`^(|PIX|PXB|PHB|NODE|SYS|NV[1-9][0-9]{0,3})$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	uuidForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`) // it goes into a list with commas
	states       = []string{gpu.StateOK, gpu.StateLost, gpu.StateNeedsReset, gpu.StateUnknown}
)

// Check says what is inconsistent in what a plugin found, all of it; nil: nothing.
func Check(g *gpu.Inventory) error {
	if g.GPUs == nil {
		return errors.New("it has no list of gpus (an empty one says that there are none)")
	}
	var wrong []error
	for i := range g.GPUs {
		for _, err := range checkGPU(&g.GPUs[i], g.Visibility) {
			wrong = append(wrong, fmt.Errorf("gpus[%d]: %w", i, err))
		}
	}
	wrong = append(wrong, checkOrder(g.GPUs)...)
	wrong = append(wrong, checkLinks(g.Links, len(g.GPUs))...)
	wrong = append(wrong, checkVisibility(g.Visibility)...)
	if text := controlIn(reflect.ValueOf(g)); text != "" {
		wrong = append(wrong, fmt.Errorf("a text has control characters: %s", quote(text)))
	}
	if len(wrong) > 5 {
		wrong = append(wrong[:5], fmt.Errorf("and %d more", len(wrong)-5))
	}
	var texts []string
	for _, err := range wrong {
		texts = append(texts, err.Error())
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// largestXid is more than any number of NVIDIA's driver.
const largestXid = 99_999

var kinds = []string{gpu.EventXid, gpu.EventSingleBit, gpu.EventDoubleBit, gpu.EventLost}

// checkEvents takes out events of unknown kinds, and says what is inconsistent in others.
func checkEvents(e *gpu.Events) error {
	e.Events = slices.DeleteFunc(e.Events, func(e gpu.Event) bool { return !slices.Contains(kinds, e.Kind) })
	for i, event := range e.Events {
		pci, is := gpu.SysfsPCI(event.PCI)
		switch {
		case event.PCI != "" && (!is || pci != event.PCI):
			return fmt.Errorf("events[%d]: pci %s is not as in sysfs, such as 0000:0f:00.0", i, quote(event.PCI))
		case event.UUID != "" && !uuidForm.MatchString(event.UUID):
			return fmt.Errorf("events[%d]: uuid %s has other signs than letters, digits and ._/:-", i, quote(event.UUID))
		case event.Kind == gpu.EventXid && (event.Xid < 1 || event.Xid > largestXid):
			return fmt.Errorf("events[%d]: xid %d is no number of NVIDIA's driver", i, event.Xid)
		}
	}
	if text := controlIn(reflect.ValueOf(e)); text != "" {
		return fmt.Errorf("a text has control characters: %s", quote(text))
	}
	return nil
}

func checkGPU(g *gpu.GPU, v gpu.Visibility) (wrong []error) {
	if g.Index < 0 {
		wrong = append(wrong, fmt.Errorf("index %d is negative", g.Index))
	}
	if !slices.Contains(states, g.State) {
		wrong = append(wrong, fmt.Errorf("state %s is none of %s", quote(g.State), strings.Join(states, ", ")))
	}
	if pci, is := gpu.SysfsPCI(g.PCI); g.PCI != "" && (!is || pci != g.PCI) {
		wrong = append(wrong, fmt.Errorf("pci %s is not as in sysfs, such as 0000:0f:00.0", quote(g.PCI)))
	}
	if g.UUID != "" && !uuidForm.MatchString(g.UUID) {
		wrong = append(wrong, fmt.Errorf("uuid %s has other signs than letters, digits and ._/:-", quote(g.UUID)))
	}
	if g.UUID == "" && g.State == gpu.StateOK && v.Names != "index" {
		wrong = append(wrong, errors.New(`it has no uuid, by which processes are told their devices (unless visibility.names is "index")`))
	}
	for _, p := range g.Processes {
		if p.PID <= 0 {
			wrong = append(wrong, fmt.Errorf("a process has pid %d", p.PID))
		}
	}
	return wrong
}

// controlIn finds a text that could command a terminal.
func controlIn(v reflect.Value) (found string) {
	switch v.Kind() {
	case reflect.String:
		if strings.ContainsFunc(v.String(), unicode.IsControl) {
			found = v.String()
		}
	case reflect.Pointer:
		if !v.IsNil() {
			found = controlIn(v.Elem())
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && found == ""; i++ {
			found = controlIn(v.Field(i))
		}
	case reflect.Slice:
		for i := 0; i < v.Len() && found == ""; i++ {
			found = controlIn(v.Index(i))
		}
	case reflect.Map:
		for keys := v.MapRange(); keys.Next() && found == ""; {
			found = cmp.Or(controlIn(keys.Key()), controlIn(keys.Value()))
		}
	}
	return found
}

func checkOrder(gpus []gpu.GPU) (wrong []error) {
	seen := map[string]int{}
	for i, g := range gpus {
		if i > 0 && g.Index == gpus[i-1].Index {
			wrong = append(wrong, fmt.Errorf("index %d is there twice", g.Index))
		} else if i > 0 && g.Index < gpus[i-1].Index {
			wrong = append(wrong, fmt.Errorf("index %d stands after %d: list gpus by index", g.Index, gpus[i-1].Index))
		}
		if other, is := seen[g.UUID]; is && g.UUID != "" {
			wrong = append(wrong, fmt.Errorf("indices %d and %d have the same uuid %s", other, g.Index, quote(g.UUID)))
		}
		seen[g.UUID] = g.Index
	}
	return wrong
}

func checkLinks(links [][]gpu.Link, gpus int) (wrong []error) {
	if len(links) != gpus {
		return []error{fmt.Errorf("links have %d rows for %d gpus: a row for each, with a cell for each", len(links), gpus)}
	}
	for i, row := range links {
		if len(row) != gpus {
			wrong = append(wrong, fmt.Errorf("links[%d] has %d cells for %d gpus", i, len(row), gpus))
			continue
		}
		for j, link := range row {
			if i == j && (link == "X" || link == "") || i != j && linkForm.MatchString(string(link)) {
				continue
			}
			wrong = append(wrong, fmt.Errorf("links[%d][%d] is %s", i, j, quote(string(link))))
		}
	}
	return wrong
}

func checkVisibility(v gpu.Visibility) (wrong []error) {
	if v.Variable != "" && !variableForm.MatchString(v.Variable) {
		wrong = append(wrong, fmt.Errorf("visibility.variable %s is no name of an environment variable", quote(v.Variable)))
	}
	if v.Names != "" && v.Names != "uuid" && v.Names != "index" {
		wrong = append(wrong, fmt.Errorf(`visibility.names is %s, not "uuid" or "index"`, quote(v.Names)))
	}
	return wrong
}
