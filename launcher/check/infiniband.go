package check

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// infiniband is about the ports that NCCL takes between hosts. A port that is down need
// not be meant to be up: it counts against those of the same name elsewhere, and those of
// the same number here.
func (h *hostJudge) infiniband() {
	if len(h.in.Hosts) < 2 {
		return
	}
	for _, p := range h.Facts.HCAs {
		if p.State == "active" {
			h.slowPort(p)
		} else {
			h.downPort(p)
		}
	}
	const noDMA = "modprobe nvidia_peermem, by root; or a kernel from 5.12 on with the open driver, which need no module"
	if !h.byNetwork() || !h.hasActive("") || len(h.part.Devices) == 0 {
		return
	}
	if gpu.IsFalse(h.Facts.Verbs) {
		h.say(codes.VerbsMissing, "", h.inContainer("docker: --device=/dev/infiniband and --cap-add=IPC_LOCK", "install rdma-core and load ib_uverbs"),
			"ports are active, but /dev/infiniband/uverbs* are not there: NCCL would go by slow sockets, or differ from the others and hang")
	}
	if gpu.IsFalse(h.Facts.PeerMemory) {
		h.say(codes.PeerMemory, "", noDMA, "InfiniBand cannot reach GPU memory by itself (no nvidia_peermem, no dma-buf): all data goes through the host's memory")
	}
}

// portName names a port that hosts of a kind have in common.
type portName struct {
	name  string
	port  int
	layer string
}

func portOf(p facts.HCA) portName { return portName{p.Name, p.Port, p.LinkLayer} }

// portSeen is a port as the host has it where it is fastest.
type portSeen struct {
	host  string
	speed int
}

// activePorts are the ports that are up on some host.
func activePorts(hosts []Host) map[portName]portSeen {
	fastest := map[portName]portSeen{}
	for _, h := range hosts {
		for _, p := range h.Facts.HCAs {
			seen, known := fastest[portOf(p)]
			if p.State == "active" && (!known || p.SpeedGbps > seen.speed) {
				fastest[portOf(p)] = portSeen{h.Name, p.SpeedGbps}
			}
		}
	}
	return fastest
}

func (h *hostJudge) downPort(p facts.HCA) {
	sisters := 0
	for _, o := range h.Facts.HCAs {
		if o.Port == p.Port && o.LinkLayer == p.LinkLayer && o.State == "active" {
			sisters++
		}
	}
	elsewhere := h.fastest[portOf(p)].host
	waiting := p.LinkLayer == "InfiniBand" && (p.State == "init" || p.State == "armed")
	// Of Ethernet ports many are not meant for the job.
	severity := lowered(Fail, p.LinkLayer != "InfiniBand" || !h.byNetwork(), lowered(Warn, !h.byNetwork(), Info))
	switch {
	case elsewhere != "":
		h.say(codes.HCADown, severity, portFix(p), "%s: the link is %s, on %s it is up", h.portName(p), downWords(p), elsewhere)
	case waiting, sisters > 0 && p.LinkLayer == "InfiniBand" && p.PhysState != "disabled":
		h.say(codes.HCADown, lowered(Warn, !h.byNetwork(), Info), portFix(p), "%s: the link is %s", h.portName(p), downWords(p))
	}
}

func portFix(p facts.HCA) string {
	if p.State == "init" || p.State == "armed" {
		return "see to the subnet manager (opensm, or the switch's own)"
	}
	return "look at its cable and its port of the switch; to go on without it: env = { NCCL_IB_HCA = \"^=" + p.Name + "\" }, on all hosts, so that rails match"
}

func downWords(p facts.HCA) string {
	switch p.State {
	case "init":
		return "init: it waits for the subnet manager"
	case "armed":
		return "armed: the subnet manager has not finished"
	}
	switch p.PhysState {
	case "polling":
		return p.State + ", polling: no cable, or nothing at its other end"
	case "", "linkup":
		return p.State
	}
	return p.State + ", " + p.PhysState
}

// portName names a port as people do: the device, with the port where it has several.
func (h *hostJudge) portName(p facts.HCA) string {
	for _, o := range h.Facts.HCAs {
		if o.Name == p.Name && o.Port != p.Port {
			return fmt.Sprintf("%s port %d", p.Name, p.Port)
		}
	}
	return p.Name
}

// slowPort compares with the ports that are as near to a GPU here, and with the same port
// elsewhere.
func (h *hostJudge) slowPort(p facts.HCA) {
	best, where := p.SpeedGbps, ""
	for _, o := range h.Facts.HCAs {
		isSister := o.State == "active" && o.LinkLayer == p.LinkLayer && besideGPU(o.Name, h.Facts.Devices)
		if isSister && o.SpeedGbps > best && besideGPU(p.Name, h.Facts.Devices) {
			best, where = o.SpeedGbps, "its sisters"
		}
	}
	if other := h.fastest[portOf(p)]; other.speed > best {
		best, where = other.speed, "that of "+other.host
	}
	if p.SpeedGbps > 0 && best > p.SpeedGbps {
		h.say(codes.HCASlow, lowered(Warn, !h.byNetwork(), Info), "look at its cable and its port of the switch (ibstat, mlxlink): a link that has lost lanes slows the whole job down",
			"%s: runs at %d Gb/s, %s at %d", h.portName(p), p.SpeedGbps, where, best)
	}
}

// besideGPU reports whether a GPU has the adapter behind a switch of its own.
func besideGPU(hca string, d *facts.Devices) bool {
	return d != nil && slices.ContainsFunc(d.Near, func(n facts.Near) bool {
		return (n.HCALink == "PIX" || n.HCALink == "PXB") && slices.Contains(n.HCAs, hca)
	})
}

// sisterHosts compares numbers of GPUs and of InfiniBand devices over the hosts that have
// GPUs of the same kind (M and G expect 8 of both).
func (j *judge) sisterHosts() {
	by := map[string][]int{}
	var order []string
	for i, h := range j.in.Hosts {
		if d := h.Facts.Devices; d != nil && d.Inventory != nil && len(d.Inventory.GPUs) > 0 && !isGivenPart(h.Facts) {
			name := d.Inventory.GPUs[0].Name
			if by[name] == nil {
				order = append(order, name)
			}
			by[name] = append(by[name], i)
		}
	}
	for _, name := range order {
		j.fewerThan(by[name], name)
	}
}

func (j *judge) fewerThan(hosts []int, kind string) {
	gpus := func(i int) int { return len(j.in.Hosts[i].Facts.Devices.Inventory.GPUs) }
	adapters := func(i int) int {
		names := map[string]bool{}
		for _, p := range j.in.Hosts[i].Facts.HCAs {
			names[p.Name] = true
		}
		return len(names)
	}
	most := slices.MaxFunc(hosts, func(a, b int) int { return gpus(a) - gpus(b) })
	mostHCAs := slices.MaxFunc(hosts, func(a, b int) int { return adapters(a) - adapters(b) })
	for _, i := range hosts {
		h := j.in.Hosts[i]
		// What is missing on the bus is said with the host.
		if n := gpus(i); n < gpus(most) && h.Facts.Devices.PCIDevices <= n && len(j.in.Plan.Hosts[i].Devices) > 0 {
			severity := lowered(Fail, !j.in.Job.Placement.Equal, Warn)
			j.add(Finding{Code: codes.FewerGPUs, Host: h.Name}, severity, "if it should have as many, a card is missing even on the PCI bus: a reboot, or its operator, may bring it back",
				"it has %s of the kind %s, %s has %d", plural.Of(n, "GPU"), kind, j.in.Hosts[most].Name, gpus(most))
		}
		if n := adapters(i); n < adapters(mostHCAs) && j.byNetwork() {
			j.add(Finding{Code: codes.HCAMissing, Host: h.Name}, "", "lspci there shows whether the adapter is on the bus; dmesg | grep mlx5 why it did not start",
				"it has %s, %s has %d: rails do not match, and the slowest path counts", plural.Of(n, "InfiniBand device"), j.in.Hosts[mostHCAs].Name, adapters(mostHCAs))
		}
	}
}
