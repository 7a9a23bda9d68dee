package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// deviceForms says how a device can be named.
const deviceForms = `A device is its number in nvidia-smi (0), a UUID or the beginning of one ("GPU-8932f937"), ` +
	`a PCI address ("0000:0f:00.0"), the UUID of a MIG device or the beginning of one ("MIG-f90ac100"), or a profile of MIG ("1g.10gb") for any of it; nvidia-smi -L lists them.`

const wholeUUID = `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`

var (
	numberForm = regexp.MustCompile(`^[0-9]{1,9}$`)
	gpuForm    = regexp.MustCompile(`^GPU-[0-9A-Fa-f][0-9A-Fa-f-]{0,35}$`)
	migForm    = regexp.MustCompile(`^MIG-(?:[0-9A-Fa-f][0-9A-Fa-f-]{0,35}|GPU-[0-9A-Fa-f][0-9A-Fa-f-]{0,35}(?:/[0-9]{1,3}/[0-9]{1,3})?)$`) // the second until R470
	bareForm   = regexp.MustCompile(`^` + wholeUUID + `$`)
	spanForm   = regexp.MustCompile(`^([0-9]{1,9})-([0-9]{1,9})$`)
	// nickname is what programs call a device that they know by its number.
	nickname = regexp.MustCompile(`(?i)^(?:/dev/)?(?:cuda|gpu|nvidia|hip|xpu)[: ]?([0-9]{1,9})$`)
)

// deviceNumber is text as a device's number, where it is one.
func deviceNumber(text string) (int, bool) {
	if !numberForm.MatchString(text) {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n < maxDevices
}

// deviceKey is the same for all ways to write one name of a device. False: text has no
// form that names a device.
func deviceKey(text string) (string, bool) {
	if n, ok := deviceNumber(text); ok {
		return strconv.Itoa(n), true
	}
	if address, ok := gpu.SysfsPCI(text); ok {
		return address, true
	}
	return strings.ToLower(text), gpuForm.MatchString(text) || migForm.MatchString(text)
}

// deviceAdvice is what is wrong with an element of devices that has no good form, and what
// to write.
func deviceAdvice(text string) string {
	if several, ok := severalDevices(text); ok {
		return fmt.Sprintf("%s names several devices: write each by itself, as in devices = %s.", quoted(text), several)
	}
	if device, ok := oneDevice(text); ok {
		return fmt.Sprintf("%s names no device: write %s.", quoted(text), device)
	}
	if profile, ok := meantProfile(text); ok {
		return fmt.Sprintf("%s names no device: write %q, as nvidia-smi -L shows the profile.", quoted(text), profile)
	}
	switch lower := strings.ToLower(text); {
	case text == "":
		return "The text is empty; for no devices write devices = \"none\". " + deviceForms
	case lower == DevicesAll || lower == DevicesNone:
		return fmt.Sprintf("%s is no device of a list: write devices = %q, without brackets.", quoted(text), lower)
	case bareForm.MatchString(text):
		return fmt.Sprintf("%s lacks its beginning: write \"GPU-%s\", or \"MIG-%s\" for a MIG instance.", quoted(text), text, text)
	case strings.HasPrefix(lower, "mig-"):
		return quoted(text) + " is no UUID of a MIG device: write it, or its beginning, as nvidia-smi -L lists it."
	case strings.HasPrefix(lower, "gpu-"):
		return quoted(text) + " is no UUID: after GPU- come hex digits and dashes, 36 at most. nvidia-smi -L lists UUIDs."
	case numberForm.MatchString(text):
		return fmt.Sprintf("There is no device %s: numbers go from 0 to %d, as nvidia-smi shows them.", text, maxDevices-1)
	}
	return quoted(text) + " names no device. " + deviceForms
}

// oneDevice is text that means one device as an element of devices: 0 for "cuda:0".
func oneDevice(text string) (string, bool) {
	if _, ok := deviceKey(text); ok {
		return deviceElement(text), true
	}
	if parts := nickname.FindStringSubmatch(text); parts != nil {
		if n, ok := deviceNumber(parts[1]); ok {
			return strconv.Itoa(n), true
		}
	}
	if len(text) > 4 {
		upper := strings.ToUpper(text[:4]) + text[4:]
		if _, ok := deviceKey(upper); ok {
			return deviceElement(upper), true
		}
	}
	return "", false
}

// deviceElement is a good name of a device as a job file has it.
func deviceElement(text string) string {
	if n, ok := deviceNumber(text); ok {
		return strconv.Itoa(n)
	}
	return quoted(text)
}

// maxSpelled is how many devices an advice names one by one.
const maxSpelled = 16

// severalDevices is text that means several devices, such as "0-3" or "0,1", as a list.
func severalDevices(text string) (string, bool) {
	if low, high, ok := deviceSpan(text); ok && high-low >= maxSpelled {
		return fmt.Sprintf("range(%d, %d)", low, high+1), true
	}
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", ;", r) })
	var found []string
	for _, part := range parts {
		low, high, isSpan := deviceSpan(part)
		device, isDevice := oneDevice(part)
		switch {
		case isSpan && high-low < maxSpelled:
			for n := low; n <= high; n++ {
				found = append(found, strconv.Itoa(n))
			}
		case isDevice:
			found = append(found, device)
		default:
			return "", false
		}
	}
	return "[" + strings.Join(found, ", ") + "]", len(found) > 1 && len(found) <= maxSpelled
}

// deviceSpan is the first and the last number of text such as "0-3".
func deviceSpan(text string) (low, high int, ok bool) {
	parts := spanForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, false
	}
	low, lowOK := deviceNumber(parts[1])
	high, highOK := deviceNumber(parts[2])
	return low, high, lowOK && highOK && low < high
}
