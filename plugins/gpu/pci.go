package gpu

import (
	"fmt"
	"regexp"
	"strconv"
)

// pciForm is a PCI address in any usual form: the domain of any width or left out, the
// function left out, either case.
var pciForm = regexp.MustCompile(`^(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})(?:\.([0-7]))?$`)

// SysfsPCI writes a PCI address as sysfs does: 00000000:0F:00.0, which NVIDIA's tools
// show, and 0f:00.0, which lspci shows, are both 0000:0f:00.0. False: not an address.
func SysfsPCI(address string) (string, bool) {
	parts := pciForm.FindStringSubmatch(address)
	if parts == nil {
		return "", false
	}
	var numbers [4]uint64
	for i, part := range parts[1:] {
		if part != "" {
			numbers[i], _ = strconv.ParseUint(part, 16, 32) // the form has nothing else
		}
	}
	if numbers[2] > 0x1f { // a device number has five bits
		return "", false
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", numbers[0], numbers[1], numbers[2], numbers[3]), true
}
