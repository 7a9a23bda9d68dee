package check

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// interfaces is about those that the job file names: one name for all hosts is often not
// right on one of them.
func (h *hostJudge) interfaces() {
	if h.in.Plan.Backend == "none" || h.part.Ranks == 0 {
		return
	}
	for _, name := range []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} {
		if value := h.variable(h.at, name); value != "" {
			h.asked(name, value)
		}
	}
	value := h.variable(h.at, "NCCL_IB_HCA")
	if value == "" || strings.HasPrefix(value, "^") || len(h.Facts.HCAs) == 0 || !h.byNetwork() {
		return
	}
	for _, p := range h.Facts.HCAs {
		if names(value, p.Name) {
			return
		}
	}
	h.say(codes.HCAMissing, "", "name a device that is there, or leave the variable out: NCCL takes all active ones",
		"NCCL_IB_HCA=%s names no device there; present: %s", value, text.List(deviceNames(h.Facts), mostNamed))
}

func deviceNames(f facts.Host) []string {
	var found []string
	for i, p := range f.HCAs {
		if i == 0 || f.HCAs[i-1].Name != p.Name {
			found = append(found, p.Name)
		}
	}
	return found
}

// variable is what a host's first rank is given by the job file; defaults do not count, and
// secrets are not looked into, as findings quote what they are about.
func (j *judge) variable(host int, name string) string {
	part := j.in.Plan.Hosts[host]
	if part.Ranks == 0 {
		return ""
	}
	vars, err := environ.Of(j.in.Plan, part.FirstRank, plan.Meeting{})
	if err != nil {
		return "" // the plan has evaluated it before
	}
	for _, v := range vars {
		if v.Name == name && !v.Default && !v.Sensitive {
			return v.Value
		}
	}
	return ""
}

// asked looks for the interfaces that a variable names.
func (h *hostJudge) asked(name, value string) {
	if strings.HasPrefix(value, "^") {
		return // all but these
	}
	takes := names
	if name == "GLOO_SOCKET_IFNAME" {
		takes = exactly // gloo knows no beginnings
	}
	var unfit []string
	for _, nic := range h.Facts.NICs {
		if !takes(value, nic.Name) {
			continue
		}
		why := h.unfit(nic)
		if why == "" {
			return
		}
		unfit = append(unfit, why)
	}
	const fix = "leave the variable out: muster names, for each host, the interface that leads to the others; or set it per host: hosts \"ssh\" { host \"NAME\" { env = {...} } }"
	if len(unfit) == 0 {
		var present []string
		for _, nic := range h.Facts.NICs {
			present = append(present, nic.Name)
		}
		h.say(codes.InterfaceMissing, "", fix, "interface %s does not exist (%s is set); present: %s", strings.TrimPrefix(value, "="), name, text.List(present, mostNamed))
		return
	}
	h.say(codes.InterfaceUnfit, "", fix, "%s=%s: %s", name, value, strings.Join(unfit, ", "))
}

// unfit says why an interface leads to no other host; "" where it may.
func (h *hostJudge) unfit(nic facts.NIC) string {
	switch {
	case len(h.in.Hosts) == 1:
		return ""
	case nic.Loopback:
		return nic.Name + " is loopback, which leads to no other host"
	case nic.Virtual != "":
		return fmt.Sprintf("%s is %s, which leads to no other host", nic.Name, nic.Virtual)
	case !nic.Up:
		return nic.Name + " is down"
	case len(nic.Addresses) == 0:
		return nic.Name + " has no address"
	}
	return ""
}

// names reports whether a list in NCCL's form takes a name: beginnings count, unless "="
// stands first (K). Ports and what follows a colon are left out.
func names(list, name string) bool {
	if exact, is := strings.CutPrefix(list, "="); is {
		return exactly(exact, name)
	}
	for entry := range strings.SplitSeq(list, ",") {
		entry, _, _ = strings.Cut(entry, ":")
		if entry != "" && strings.HasPrefix(name, entry) {
			return true
		}
	}
	return false
}

func exactly(list, name string) bool {
	for entry := range strings.SplitSeq(list, ",") {
		if entry, _, _ = strings.Cut(entry, ":"); entry == name {
			return true
		}
	}
	return false
}
