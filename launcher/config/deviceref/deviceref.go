// Package deviceref reads names of devices as a job file has them, and says what to write for
// names that other programs use.
package deviceref

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Words that stand for devices.
const (
	All  = "all"
	None = "none"
)

// Max bounds how many devices one host is asked for; their numbers begin at 0.
const Max = 1024

// Forms says how a device can be named.
const Forms = `A device is its number in nvidia-smi (0), a UUID or the beginning of one ("GPU-8932f937"), ` +
	`a PCI address ("0000:0f:00.0"), the UUID of a MIG device or the beginning of one ("MIG-f90ac100"), or a profile of MIG ("1g.10gb") for any of it; nvidia-smi -L lists them.`

var (
	numberForm = regexp.MustCompile(`^[0-9]{1,9}$`)
	gpuForm    = regexp.MustCompile(`^GPU-[0-9A-Fa-f][0-9A-Fa-f-]{0,35}$`)
	migForm    = regexp.MustCompile(`^MIG-(?:[0-9A-Fa-f][0-9A-Fa-f-]{0,35}|GPU-[0-9A-Fa-f][0-9A-Fa-f-]{0,35}(?:/[0-9]{1,3}/[0-9]{1,3})?)$`) // the second until R470
	// severalForm is what other programs take for several devices: "0-3", "0,1".
	severalForm = regexp.MustCompile(`^[^ ,;]+(?:[,; ]+[^ ,;]+)+$|^[0-9]+-[0-9]+$`)
)

// number is text as a device's number, where it is one.
func number(text string) (int, bool) {
	if !numberForm.MatchString(text) {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n < Max
}

// IsNumber reports whether text is a device's number.
func IsNumber(text string) bool { _, is := number(text); return is }

// Key is the same for all ways to write one name of a device. False: text has no
// form that names a device.
func Key(text string) (string, bool) {
	if n, ok := number(text); ok {
		return strconv.Itoa(n), true
	}
	if address, ok := gpu.SysfsPCI(text); ok {
		return address, true
	}
	return strings.ToLower(text), gpuForm.MatchString(text) || migForm.MatchString(text)
}

// Advice is what is wrong with an element of devices that has no good form, and what
// to write.
func Advice(text string) string {
	quoted := diagnostic.Quoted(text)
	profile, isProfile := meantProfile(text)
	switch lower := strings.ToLower(text); {
	case isProfile:
		return fmt.Sprintf("%s names no device: write %q, as nvidia-smi -L shows the profile.", quoted, profile)
	case text == "":
		return "The text is empty; for no devices write devices = \"none\". " + Forms
	case lower == All || lower == None:
		return fmt.Sprintf("%s is no device of a list: write devices = %q, without brackets.", quoted, lower)
	case severalForm.MatchString(text):
		return quoted + " names several devices: write each by itself, as in devices = [0, 1], or range(0, 8) for 0 to 7."
	case strings.HasPrefix(lower, "mig-"):
		return quoted + " is no UUID of a MIG device: write it, or its beginning, as nvidia-smi -L lists it."
	case numberForm.MatchString(text):
		return fmt.Sprintf("There is no device %s: numbers go from 0 to %d, as nvidia-smi shows them.", text, Max-1)
	}
	return quoted + " names no device. " + Forms
}

// ListAdvice is what to write for text that should be a list, or another word.
func ListAdvice(written string) string {
	if _, ok := Key(written); ok || severalForm.MatchString(written) {
		return " Write each device by itself in a list, as in devices = [0, 1]."
	}
	if profile, ok := meantProfile(written); ok {
		return fmt.Sprintf(" Write devices = %q for all MIG devices of that profile, or [%[1]q, %[1]q] for two.", profile)
	}
	return text.DidYouMean(written, []string{All, None})
}

var (
	// profileForm is a profile of MIG as nvidia-smi -L shows it: compute slices where they are
	// not all, slices, memory, and what else it has or lacks ("1g.5gb+me", "1c.3g.40gb",
	// "1g.24gb+me.all", "1g.24gb-me").
	profileForm = regexp.MustCompile(`^(?i:(?:[1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(?:[+-][a-z]+(?:\.[a-z]+)*)*)$`)
	// profileWord is what others write before it: Kubernetes "nvidia.com/mig-1g.10gb",
	// nvidia-smi "MIG 1g.10gb".
	profileWord = regexp.MustCompile(`^(?i:(?:nvidia\.com/)?mig[- :]+)`)
)

// Profile is the profile of MIG that text is, in the form that drivers have it.
func Profile(text string) (string, bool) {
	text = strings.TrimSpace(text)
	return strings.ToLower(text), profileForm.MatchString(text)
}

// meantProfile is the profile that text means and does not write as one.
func meantProfile(text string) (string, bool) {
	text = strings.ReplaceAll(profileWord.ReplaceAllString(text, ""), " ", "")
	return Profile(text)
}
