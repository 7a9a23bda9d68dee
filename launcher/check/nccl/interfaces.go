package nccl

import (
	"slices"
	"strings"
)

// interfaces: what NCCL_SOCKET_IFNAME and NCCL_IB_HCA take on this host.
func (a *advice) interfaces() {
	if a.vars["NCCL_SOCKET_IFNAME"].Value != "" && a.host.Interfaces != nil {
		a.socketInterfaces(ParseNames(a.vars["NCCL_SOCKET_IFNAME"].Value))
	}
	disabled, _ := a.number("NCCL_IB_DISABLE")
	if a.vars["NCCL_IB_HCA"].Value != "" && a.host.Adapters != nil && disabled == 0 && a.host.Hosts > 1 {
		a.adapters(ParseNames(a.vars["NCCL_IB_HCA"].Value))
	}
}

func (a *advice) socketInterfaces(list Names) {
	const name = "NCCL_SOCKET_IFNAME"
	var taken []Interface
	var present []string
	for _, i := range a.host.Interfaces {
		present = append(present, i.Name)
		if list.Takes(i.Name) {
			taken = append(taken, i)
		}
	}
	if len(taken) == 0 {
		a.add(name, CodeInterface, "name an interface of this host, or leave it out: muster sets each host's own",
			"it takes no interface there; present: %s", presentNames(present))
		return
	}
	usable := slices.ContainsFunc(taken, func(i Interface) bool { return i.Up && !i.Loopback && i.Virtual == "" })
	if a.host.Hosts > 1 && !usable && !list.Without {
		a.add(name, CodeInterface, "name the interface that leads to the other hosts, or leave it out", "%s", fault(taken[0]))
	}
	if more := beyond(list, present); more != "" {
		a.add(name, CodePrefix, "write "+Names{Exact: true, Names: list.Names}.String(), "without = each name is the beginning of one, and %s is taken too", more)
	}
}

// fault is why an interface leads to no other host.
func fault(i Interface) string {
	switch {
	case i.Loopback:
		return i.Name + " is the loopback, which leads to no other host"
	case !i.Up:
		return i.Name + " is down"
	}
	return i.Name + " is a " + i.Virtual + " and leads to no other host"
}

// beyond is a device that a list without "=" takes though another is named in full.
func beyond(list Names, present []string) string {
	if list.Exact || list.Without {
		return ""
	}
	names := make([]string, len(list.Names))
	for i, entry := range list.Names {
		names[i], _, _ = strings.Cut(entry, ":")
	}
	for _, name := range names {
		if !slices.Contains(present, name) {
			continue // the beginning of names, as is meant
		}
		for _, device := range present {
			if device != name && strings.HasPrefix(device, name) && !slices.Contains(names, device) {
				return device
			}
		}
	}
	return ""
}

func (a *advice) adapters(list Names) {
	const name = "NCCL_IB_HCA"
	if !slices.ContainsFunc(a.host.Adapters, list.Takes) {
		a.add(name, CodeInterface, "name a device that is up there (`ibstat` shows them), or leave it out",
			"it takes no device there, and data between hosts goes through TCP; up: %s", presentNames(a.host.Adapters))
		return
	}
	if more := beyond(list, a.host.Adapters); more != "" {
		a.add(name, CodePrefix, "write "+Names{Exact: true, Names: list.Names}.String(), "without = each name is the beginning of one, and %s is taken too", more)
	}
}
