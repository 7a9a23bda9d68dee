package hosts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// isOneHost reports whether a job stays on one host, so that no port matters.
func isOneHost(h *rule.Host) bool { return h.In.Plan != nil && len(h.In.Hosts) < 2 }

// usesInfiniBand reports whether NCCL takes GPUs' data to other hosts by it.
func usesInfiniBand(h *rule.Host) bool {
	return h.In.ByNetwork() && hasActive(h, "") && h.UsesGPUs()
}

func verbs(h *rule.Host) rule.Findings {
	if !gpu.IsFalse(h.Facts.Verbs) || !usesInfiniBand(h) {
		return nil
	}
	return h.Find(h.InContainer("docker: --device=/dev/infiniband and --cap-add=IPC_LOCK", "install rdma-core and load ib_uverbs"),
		"ports are active, but /dev/infiniband/uverbs* are not there: NCCL would go by slow sockets, or differ from the others and hang")
}

func peerMemory(h *rule.Host) rule.Findings {
	if !gpu.IsFalse(h.Facts.PeerMemory) || !usesInfiniBand(h) {
		return nil
	}
	return h.Find("modprobe nvidia_peermem, by root; or a kernel from 5.12 on with the open driver, which need no module",
		"InfiniBand cannot reach GPU memory by itself (no nvidia_peermem, no dma-buf): all data goes through the host's memory")
}

// fastest is the other host that has the port of the same name active, and how fast at best; "" for none.
func fastest(h *rule.Host, p facts.HCA) (host string, speed int) {
	for _, o := range h.In.Hosts {
		for _, other := range o.Facts.HCAs {
			same := o.Name != h.Name && other.Name == p.Name && other.Port == p.Port && other.LinkLayer == p.LinkLayer
			if same && other.State == "active" && (host == "" || other.SpeedGbps > speed) {
				host, speed = o.Name, other.SpeedGbps
			}
		}
	}
	return host, speed
}

// portsDown: a port that is down need not be meant to be up. It counts against those of the same name elsewhere, and
// those of the same number here. Of Ethernet ports many are not meant for the job.
func portsDown(h *rule.Host) (found rule.Findings) {
	if isOneHost(h) {
		return nil
	}
	for _, p := range h.Facts.HCAs {
		sisters := slices.ContainsFunc(h.Facts.HCAs, func(o facts.HCA) bool {
			return o.Port == p.Port && o.LinkLayer == p.LinkLayer && o.State == "active"
		})
		isInfiniBand := p.LinkLayer == "InfiniBand"
		waits := isInfiniBand && (p.State == "init" || p.State == "armed")
		elsewhere, _ := fastest(h, p)
		fix := "look at its cable and its port of the switch; to go on without it: env = { NCCL_IB_HCA = \"^=" + p.Name + "\" }, on all hosts, so that rails match"
		if p.State == "init" || p.State == "armed" {
			fix = "see to the subnet manager (opensm, or the switch's own)"
		}
		switch {
		case p.State == "active":
		case elsewhere != "":
			found = append(found, h.Find(fix, "%s: the link is %s, on %s it is up", portName(h, p), describeDown(p), elsewhere).
				AsIf(isInfiniBand, rule.Fail).AsIf(!h.In.ByNetwork(), rule.Info)...)
		case waits, sisters && isInfiniBand && p.PhysState != "disabled":
			found = append(found, h.Find(fix, "%s: the link is %s", portName(h, p), describeDown(p)).AsIf(!h.In.ByNetwork(), rule.Info)...)
		}
	}
	return found
}

func describeDown(p facts.HCA) string {
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
func portName(h *rule.Host, p facts.HCA) string {
	for _, o := range h.Facts.HCAs {
		if o.Name == p.Name && o.Port != p.Port {
			return fmt.Sprintf("%s port %d", p.Name, p.Port)
		}
	}
	return p.Name
}

// portsSlow compares with the ports that are as near to a GPU here, and with the same port elsewhere.
func portsSlow(h *rule.Host) (found rule.Findings) {
	for _, p := range h.Facts.HCAs {
		if p.State != "active" || isOneHost(h) {
			continue
		}
		best, where := p.SpeedGbps, ""
		for _, o := range h.Facts.HCAs {
			isSister := o.State == "active" && o.LinkLayer == p.LinkLayer && besideGPU(o.Name, h.Facts.Devices)
			if isSister && o.SpeedGbps > best && besideGPU(p.Name, h.Facts.Devices) {
				best, where = o.SpeedGbps, "its sisters"
			}
		}
		if host, speed := fastest(h, p); speed > best {
			best, where = speed, "that of "+host
		}
		if p.SpeedGbps > 0 && best > p.SpeedGbps {
			found = append(found, h.Find("look at its cable and its port of the switch (ibstat, mlxlink): a link that has lost lanes slows the whole job down",
				"%s: runs at %d Gb/s, %s at %d", portName(h, p), p.SpeedGbps, where, best).AsIf(!h.In.ByNetwork(), rule.Info)...)
		}
	}
	return found
}

// besideGPU reports whether a GPU has the adapter behind a switch of its own.
func besideGPU(hca string, d *facts.Devices) bool {
	return d != nil && slices.ContainsFunc(d.Near, func(n facts.Near) bool {
		return (n.HCALink == "PIX" || n.HCALink == "PXB") && slices.Contains(n.HCAs, hca)
	})
}

func adapters(h *rule.Host) []string {
	var found []string
	for _, p := range h.Facts.HCAs {
		if !slices.Contains(found, p.Name) {
			found = append(found, p.Name)
		}
	}
	return found
}

// fewerAdapters compares numbers over the hosts that have GPUs of the same kind (M and G expect 8).
func fewerAdapters(h *rule.Host) rule.Findings {
	best := h
	for i := range h.In.Hosts {
		if o := &h.In.Hosts[i]; h.IsSister(o) && len(adapters(o)) > len(adapters(best)) {
			best = o
		}
	}
	if best == h || !h.In.ByNetwork() {
		return nil
	}
	return h.Find("lspci there shows whether the adapter is on the bus; dmesg | grep mlx5 why it did not start",
		"it has %s, %s has %d: rails do not match, and the slowest path counts", plural.Of(len(adapters(h)), "InfiniBand device"), best.Name, len(adapters(best)))
}

// namedAdapter is about devices that the job file names.
func namedAdapter(h *rule.Host) rule.Findings {
	value := ""
	if h.In.Plan.Backend != "none" && len(h.Facts.HCAs) > 0 && h.In.ByNetwork() {
		value = h.Variable("NCCL_IB_HCA")
	}
	if value == "" || strings.HasPrefix(value, "^") || slices.ContainsFunc(adapters(h), nccl.ParseNames(value).Takes) {
		return nil
	}
	return h.Find("name a device that is there, or leave the variable out: NCCL takes all active ones",
		"NCCL_IB_HCA=%s names no device there; present: %s", value, rule.List(adapters(h)))
}

// namedInterfaces is about those that the job file names: one name for all hosts is often not right on one of them.
func namedInterfaces(h *rule.Host) (found rule.Findings) {
	if h.In.Plan.Backend == "none" || h.Part.Ranks == 0 {
		return nil
	}
	for _, name := range []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} {
		value := h.Variable(name)
		if value == "" || strings.HasPrefix(value, "^") { // all but these
			continue
		}
		list := nccl.ParseNames(value)
		list.Exact = list.Exact || name == "GLOO_SOCKET_IFNAME" // gloo knows no beginnings
		found = append(found, namedInterface(h, name, value, list)...)
	}
	return found
}

func namedInterface(h *rule.Host, name, value string, list nccl.Names) rule.Findings {
	var unfit, present []string
	for _, nic := range h.Facts.NICs {
		present = append(present, nic.Name)
		if !list.Takes(nic.Name) {
			continue
		}
		why := leadsNowhere(h, nic)
		if why == "" {
			return nil
		}
		unfit = append(unfit, why)
	}
	const fix = "leave the variable out: muster names, for each host, the interface that leads to the others; or set it per host: hosts \"ssh\" { host \"NAME\" { env = {...} } }"
	if len(unfit) == 0 {
		return h.Find(fix, "interface %s does not exist (%s is set); present: %s", strings.TrimPrefix(value, "="), name, rule.List(present)).Of(codes.InterfaceMissing)
	}
	return h.Find(fix, "%s=%s: %s", name, value, strings.Join(unfit, ", ")).Of(codes.InterfaceUnfit)
}

// leadsNowhere says why an interface leads to no other host; "" where it may.
func leadsNowhere(h *rule.Host, nic facts.NIC) string {
	switch {
	case isOneHost(h):
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
