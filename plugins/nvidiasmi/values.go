package nvidiasmi

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
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

// text finds the text of the first path that is there.
func (v *values) text(name string, paths ...string) (string, bool) {
	for _, path := range paths {
		if found := v.e.at(path); found != nil {
			return found.text, true
		}
		// What a GPU lacks as a whole has no parts: <remapped_rows>N/A</remapped_rows>.
		if parent, _, nested := strings.Cut(path, "/"); nested {
			if found := v.e.kid(parent); found != nil && len(found.kids) == 0 && found.text != "" {
				return found.text, true
			}
		}
	}
	v.why[name] = v.absent
	return "", false
}

// says notes that nvidia-smi says something else than a value.
func (v *values) says(name, text string) {
	v.why[name] = fmt.Sprintf("nvidia-smi says %q", clip(text, 120))
}

func clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// optional is a text that may be missing.
func (v *values) optional(path string) string {
	if found := v.e.at(path); found != nil && !isNothing(found.text) {
		return found.text
	}
	return ""
}

// quantity is a number with its unit: "81920 MiB", "16x", "5".
var quantity = regexp.MustCompile(`^(\d{1,19}) ?([A-Za-z]*)$`)

func (v *values) number(name string, paths ...string) *int {
	text, told := v.text(name, paths...)
	if !told {
		return nil
	}
	if m := quantity.FindStringSubmatch(text); m != nil && (m[2] == "" || m[2] == "x") {
		if n, err := strconv.ParseInt(m[1], 10, 32); err == nil {
			return new(int(n))
		}
	}
	v.says(name, text)
	return nil
}

var units = map[string]uint64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "MB": 1 << 20, "GiB": 1 << 30}

func (v *values) bytes(name string, paths ...string) *uint64 {
	text, told := v.text(name, paths...)
	if !told {
		return nil
	}
	if m := quantity.FindStringSubmatch(text); m != nil && units[m[2]] != 0 {
		if n, err := strconv.ParseUint(m[1], 10, 64); err == nil && n <= math.MaxUint64/units[m[2]] {
			return new(n * units[m[2]])
		}
	}
	v.says(name, text)
	return nil
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

// yes reads the words for yes and no.
func (v *values) yes(name string, paths ...string) *bool {
	text, told := v.text(name, paths...)
	switch strings.ToLower(text) {
	case "yes", "enabled", "active", "on":
		return new(true)
	case "no", "disabled", "not active", "off":
		return new(false)
	}
	if told {
		v.says(name, text)
	}
	return nil
}

// word reads a name and writes it as muster does: "Exclusive_Process" and "In Progress"
// are exclusive_process and in_progress.
func (v *values) word(name string, paths ...string) *string {
	text, told := v.text(name, paths...)
	if !told {
		return nil
	}
	if isNothing(text) {
		v.says(name, text)
		return nil
	}
	return new(strings.ReplaceAll(strings.ToLower(clip(bare(text), 60)), " ", "_"))
}

var versionForm = regexp.MustCompile(`^\d{1,6}(\.\d{1,6}){1,5}$`)

func (v *values) version(name, path string) *string {
	text, told := v.text(name, path)
	if told && versionForm.MatchString(text) {
		return &text
	}
	if told {
		v.says(name, text)
	}
	return nil
}
