package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// devices are the variables that show a rank its devices.
func (p *Plan) devices(r Rank, m Meeting) []Var {
	h := p.Hosts[r.Host]
	switch {
	case h.Hidden:
		return []Var{{Name: h.Variable, Value: "", Source: `devices = "none"`}}
	case r.Device == nil:
		return nil
	}
	names, why := p.namesOf(r.Host, m)
	if why != "" {
		why = "; by number, since " + why
	}
	shown := h.shown(r, names)
	if p.Config.MPS != nil && names == "index" { // a client counts in the daemon's list
		number, _ := p.daemonNumber(r.Host, *r.Device)
		shown, why = []string{strconv.Itoa(number)}, why+"; the number is its MPS daemon's for it"
	}
	vars := []Var{
		{Name: h.Variable, Value: strings.Join(shown, ","), Source: h.shownWhy(r) + why},
		{Name: "MUSTER_DEVICE", Value: r.Device.UUID, Source: fmt.Sprintf("%s, PCI %s", r.Device, r.Device.PCI)},
	}
	if h.Variable == "CUDA_VISIBLE_DEVICES" {
		vars = append(vars, Var{Name: "CUDA_DEVICE_ORDER", Value: "PCI_BUS_ID", Source: "so that numbers are those of nvidia-smi"})
	}
	return vars
}

// shown are the names of the devices that a rank sees, in order. With "host" they are one
// for each local rank, none twice.
func (h Host) shown(r Rank, names string) []string {
	devices := h.Devices
	if h.Visibility == "rank" {
		devices = []Device{*r.Device}
	}
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = d.UUID
		if names == "index" {
			list[i] = strconv.Itoa(d.Index)
		}
	}
	return list
}

func (h Host) shownWhy(r Rank) string {
	if h.Visibility == "rank" {
		return fmt.Sprintf("%s of %s alone: %s", r.Device, h.Name, h.VisibleWhy)
	}
	return fmt.Sprintf("the devices of the ranks on %s, in their order: number %d is %s", h.Name, r.Local, r.Device)
}

// localRank is the number of the rank's device among those that it sees.
func (p *Plan) localRank(r Rank) Var {
	if p.Hosts[r.Host].Visibility == "rank" {
		return Var{Name: "LOCAL_RANK", Value: "0", Source: "the rank sees one device, as number 0; MUSTER_LOCAL_RANK is its number on the host"}
	}
	return Var{Name: "LOCAL_RANK", Value: strconv.Itoa(r.Local), Source: contract}
}

// firstTorchWithUUIDs is the first version of PyTorch that counts devices that are named by
// UUID; 1.13 counts none (pytorch issue 90543).
const firstTorchWithUUIDs = 2

// namesOf is how devices of a host are named to its ranks: by UUID, unless the torch there
// is too old for that and the job file leaves it open.
func (p *Plan) namesOf(host int, m Meeting) (names, why string) {
	h := p.Hosts[host]
	torch := p.softwareOf(host, m).Torch
	major, err := strconv.Atoi(before(torch, "."))
	old := err == nil && major < firstTorchWithUUIDs
	isInstance := slices.ContainsFunc(h.Devices, Device.IsInstance)
	if h.Names == "uuid" && old && p.Config.Placement.DeviceNames == "" && !isInstance {
		return "index", fmt.Sprintf("torch %s knows no UUIDs", torch)
	}
	return h.Names, ""
}

// Named is how devices of a host are named to its ranks, as far as that is known before
// setup was run, and why it is not as the job file has it.
func (p *Plan) Named(host int) (names, why string) { return p.namesOf(host, Meeting{}) }

func before(text, mark string) string {
	first, _, _ := strings.Cut(text, mark)
	return first
}
