package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
)

// maxDevices bounds how many devices one host is asked for; their numbers begin at 0.
const maxDevices = 1024

// devices decodes which devices of a host are used; def where nothing is written. What
// is wrong has no Kind, so that nothing is concluded from it.
func (d *decoder) devices(attr *hclsyntax.Attribute, def Devices) Devices {
	if attr == nil {
		return def
	}
	known := len(d.diags)
	devices := Devices{Range: attr.Expr.Range()}
	if elements, ok := d.elements(attr.Expr); ok && slices.ContainsFunc(elements, isProfile) {
		devices.Kind, devices.List = DevicesProfiles, d.profileList(attr, elements)
	} else if ok {
		devices.Kind, devices.List = DevicesList, d.deviceList(attr, elements)
		if len(elements) == 0 {
			devices.Kind = DevicesNone
		}
	} else if value, ok := d.value(attr.Expr); ok && value.IsNull() {
		return def
	} else if ok && value.Type() == cty.String && profileForm.MatchString(strings.TrimSpace(value.AsString())) {
		devices.Kind, devices.List = DevicesProfile, []DeviceRef{{profileName(value.AsString()), devices.Range}}
	} else if ok {
		devices.Kind, devices.Count = d.deviceWord(attr, value)
	}
	if d.diags[known:].HasErrors() {
		return Devices{Range: devices.Range}
	}
	return devices
}

// deviceWord is a value of devices that is no list.
func (d *decoder) deviceWord(attr *hclsyntax.Attribute, value cty.Value) (kind string, count int) {
	if value.Type() == cty.String {
		switch value.AsString() {
		case DevicesAll, DevicesNone:
			return value.AsString(), 0
		}
	}
	n, ok := d.wholeNumber(value)
	switch {
	case ok && n == 0:
		return DevicesNone, 0
	case ok && n > 0 && n <= maxDevices:
		return DevicesCount, n
	}
	advice := ""
	if value.Type() == cty.String {
		advice = listAdvice(strings.TrimSpace(value.AsString()))
	}
	d.error(attr.Expr.Range(), "Invalid devices",
		"devices cannot be %s.%s It is \"all\", \"none\", how many GPUs of each host, from 1 to %d, a list of them such as [0, 1], or a profile of MIG such as \"1g.10gb\".",
		describe(value), advice, maxDevices)
	return "", 0
}

// listAdvice is what to write for text that should be a list, or another word.
func listAdvice(written string) string {
	if several, ok := severalDevices(written); ok {
		return " Write devices = " + several + "."
	}
	if device, ok := oneDevice(written); ok {
		return " Write devices = [" + device + "]."
	}
	if profile, ok := meantProfile(written); ok {
		return fmt.Sprintf(" Write devices = %q for all MIG devices of that profile, or [%[1]q, %[1]q] for two.", profile)
	}
	if near := text.Nearest(written, []string{DevicesAll, DevicesNone}, 2); near != "" {
		return fmt.Sprintf(" Did you mean %q?", near)
	}
	return ""
}

// deviceList decodes the elements of a list of devices, each of which is named once.
func (d *decoder) deviceList(attr *hclsyntax.Attribute, elements []element) []DeviceRef {
	if len(elements) > maxDevices {
		d.error(attr.Expr.Range(), "Too many devices", "devices has %d elements; a host has at most %d devices. Leave devices out to use all.", len(elements), maxDevices)
		return nil
	}
	var found []DeviceRef
	earlier := map[string]DeviceRef{}
	for _, e := range elements {
		device, ok := d.device(e)
		if !ok {
			continue
		}
		key, _ := deviceKey(device.Text)
		if same, twice := earlier[key]; twice {
			d.errorAlso(device.Range, same.Range, "Device listed twice",
				"%s is the same device as %s at %s. Name each device once; shared = true gives one device to several ranks.",
				device.Text, same.Text, same.Range)
			continue
		}
		earlier[key] = device
		found = append(found, device)
	}
	return found
}

// device is one element of a list of devices.
func (d *decoder) device(e element) (DeviceRef, bool) {
	at := e.expr.Range()
	if e.value.IsNull() || e.value.Type() != cty.String {
		n, ok := 0, false
		if !e.value.IsNull() {
			n, ok = d.wholeNumber(e.value)
		}
		if !ok || n < 0 || n >= maxDevices {
			d.error(at, "Invalid device", "A device cannot be %s. %s", describe(e.value), deviceForms)
			return DeviceRef{}, false
		}
		return DeviceRef{strconv.Itoa(n), at}, true
	}
	text := strings.TrimSpace(e.value.AsString())
	if _, ok := deviceKey(text); !ok {
		d.error(at, "Invalid device", "%s", deviceAdvice(text))
		return DeviceRef{}, false
	}
	if n, ok := deviceNumber(text); ok {
		text = strconv.Itoa(n)
	}
	return DeviceRef{text, at}, true
}
