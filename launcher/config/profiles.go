package config

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var (
	// profileForm is a profile of MIG as nvidia-smi -L shows it: compute slices where they are
	// not all, slices, memory, and what else it has or lacks ("1g.5gb+me", "1c.3g.40gb",
	// "1g.24gb+me.all", "1g.24gb-me").
	profileForm = regexp.MustCompile(`^(?i:(?:[1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(?:[+-][a-z]+(?:\.[a-z]+)*)*)$`)
	// profileWord is what others write before it: Kubernetes "nvidia.com/mig-1g.10gb",
	// nvidia-smi "MIG 1g.10gb".
	profileWord = regexp.MustCompile(`^(?i:(?:nvidia\.com/)?mig[- :]+)`)
)

// profileName is a profile in the form that drivers have it.
func profileName(text string) string { return strings.ToLower(strings.TrimSpace(text)) }

// isProfile reports whether an element of devices is a profile of MIG.
func isProfile(e element) bool {
	return !e.value.IsNull() && e.value.Type() == cty.String && profileForm.MatchString(strings.TrimSpace(e.value.AsString()))
}

// meantProfile is the profile that text means and does not write as one.
func meantProfile(text string) (string, bool) {
	text = strings.ReplaceAll(profileWord.ReplaceAllString(text, ""), " ", "")
	return profileName(text), profileForm.MatchString(text)
}

// profileList decodes a list with profiles: each element is one MIG device.
func (d *decoder) profileList(attr *hclsyntax.Attribute, elements []element) []DeviceRef {
	if len(elements) > maxDevices {
		d.error(attr.Expr.Range(), "Too many devices", "devices has %d elements; a host has at most %d devices.", len(elements), maxDevices)
		return nil
	}
	var found []DeviceRef
	for _, e := range elements {
		if !isProfile(e) {
			d.error(e.expr.Range(), "Invalid device",
				"%s stands beside profiles of MIG: of those any idle device is taken, and it might be one that the list names. Write profiles only, or name all devices.", describe(e.value))
			continue
		}
		found = append(found, DeviceRef{profileName(e.value.AsString()), e.expr.Range()})
	}
	return found
}
