package nvidiasmi

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// bare takes a value out of the brackets that some versions put round what is no value.
func bare(text string) string { return strings.TrimSpace(strings.Trim(text, "[] ")) }

func isError(text string) bool {
	lower := strings.ToLower(bare(text))
	return strings.Contains(lower, "unknown error") || lower == "err!"
}

// isNothing knows the words that stand where a word would.
func isNothing(text string) bool {
	switch lower := strings.ToLower(bare(text)); lower {
	case "", "n/a", "not supported", "not available", "not found", "insufficient permissions":
		return true
	default:
		return isError(text) || strings.HasPrefix(lower, "requested functionality") ||
			strings.HasPrefix(lower, "gpu is lost") || strings.HasPrefix(lower, "gpu requires reset")
	}
}

// values reads the elements of a GPU and notes why one is nil.
type values struct {
	e      *element
	why    map[string]string
	absent string // reason for what is not there
}

func newValues(e *element, absent string) *values {
	return &values{e: e, why: map[string]string{}, absent: absent}
}

// text finds the text of the first path that is there.
func (v *values) text(name string, paths ...string) (string, bool) {
	for _, path := range paths {
		if found := v.e.at(path); found != nil {
			return found.text(), true
		}
		// What a GPU lacks as a whole has no parts: <remapped_rows>N/A</remapped_rows>.
		if parent, _, nested := strings.Cut(path, "/"); nested {
			if found := v.e.kid(parent); found != nil && len(found.Kids) == 0 && found.text() != "" {
				return found.text(), true
			}
		}
	}
	v.why[name] = v.absent
	return "", false
}

// says notes that nvidia-smi says something else than a value.
func (v *values) says(name, text string) { v.why[name] = says(text) }

func says(text string) string { return fmt.Sprintf("nvidia-smi says %q", plaintext.Clip(text, 120)) }

// optional is a text that may be missing.
func (v *values) optional(path string) string {
	if found := v.e.at(path); found != nil && !isNothing(found.text()) {
		return found.text()
	}
	return ""
}

// valueOf reads a value of any type; where it cannot, why says what nvidia-smi says instead.
func valueOf[T any](why map[string]string, name, text string, parse func(string) (T, bool)) *T {
	value, ok := parse(text)
	if !ok {
		why[name] = says(text)
		return nil
	}
	return &value
}

func read[T any](v *values, name string, parse func(string) (T, bool), paths []string) *T {
	if text, told := v.text(name, paths...); told {
		return valueOf(v.why, name, text, parse)
	}
	return nil
}

func (v *values) number(name string, paths ...string) *int { return read(v, name, parseNumber, paths) }

func (v *values) bytes(name string, paths ...string) *uint64 { return read(v, name, parseBytes, paths) }

func (v *values) yes(name string, paths ...string) *bool { return read(v, name, parseYes, paths) }

func (v *values) word(name string, paths ...string) *string { return read(v, name, parseWord, paths) }

func (v *values) version(name string, paths ...string) *string {
	return read(v, name, func(text string) (string, bool) { return text, versionForm.MatchString(text) }, paths)
}

var (
	// quantity is a number with its unit: "81920 MiB", "16x", "5".
	quantity    = regexp.MustCompile(`^(\d{1,19}) ?([A-Za-z]*)$`)
	versionForm = regexp.MustCompile(`^\d{1,6}(\.\d{1,6}){1,5}$`)
	units       = map[string]uint64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "MB": 1 << 20, "GiB": 1 << 30}
)

func parseNumber(text string) (int, bool) {
	m := quantity.FindStringSubmatch(text)
	if m == nil || m[2] != "" && m[2] != "x" {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	return int(n), err == nil
}

func parseBytes(text string) (uint64, bool) {
	m := quantity.FindStringSubmatch(text)
	if m == nil || units[m[2]] == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n * units[m[2]], err == nil && n <= math.MaxUint64/units[m[2]]
}

func parseYes(text string) (yes, known bool) {
	switch strings.ToLower(text) {
	case "yes", "enabled", "active", "on":
		return true, true
	case "no", "disabled", "not active", "off":
		return false, true
	}
	return false, false
}

// parseWord writes a name as muster does: "Exclusive_Process" and "In Progress" are
// exclusive_process and in_progress.
func parseWord(text string) (string, bool) {
	return strings.ReplaceAll(strings.ToLower(plaintext.Clip(bare(text), 60)), " ", "_"), !isNothing(text)
}

// sum adds up those of the counters that the GPU has. One that is there and cannot be
// read makes the sum unknown.
func (v *values) sum(name string, paths ...string) *uint64 {
	var sum *uint64
	said := ""
	for _, path := range paths {
		text, told := v.text(name, path)
		if !told {
			continue
		}
		if n, err := strconv.ParseUint(text, 10, 63); err == nil {
			if sum == nil {
				sum = new(uint64)
			}
			*sum += n
		} else if said = text; !isNothing(text) || isError(text) {
			sum = nil
			break
		}
	}
	switch {
	case sum != nil:
		delete(v.why, name)
	case said != "":
		v.says(name, said)
	}
	return sum
}
