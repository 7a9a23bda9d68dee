package silence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// known is what is known to make NCCL hang without a message.
func (w *Watch) known(silent []hang.Seen) []string {
	if w.run.Plan.Backend != "nccl" || !w.together {
		return nil
	}
	facts := w.buffers(silent)
	if len(w.run.Hosts) > 1 {
		facts = append(facts, w.interfaces())
	}
	return append(facts, w.pcie()...)
}

// buffers names ranks on whose GPUs NCCL's buffers may not fit.
func (w *Watch) buffers(silent []hang.Seen) (facts []string) {
	_, most := nccl.Buffers(w.run.Plan.BufferSettings())
	for _, s := range silent {
		used, total, ok := w.memory.DeviceUse(s.Rank)
		if !ok || total-used >= float64(most) {
			continue
		}
		facts = append(facts, fmt.Sprintf("%s has %.1f GiB free on its GPU, "+
			"and a communicator of NCCL takes up to %.1f GiB: a buffer that cannot be allocated is a known cause; "+
			"less for torch (memory_fraction, a smaller micro-batch) or a smaller nccl { buffer_size }",
			w.run.RankName(s.Rank), (total-used)/(1<<30), float64(most)/(1<<30)))
	}
	return facts
}

// interfaces says by which interfaces the hosts reach the first one, which is where NCCL's sockets belong: a rank
// that takes another waits without a message.
func (w *Watch) interfaces() string {
	meeting := w.meeting()
	var parts []string
	for _, same := range alike(w.run.Hosts, func(host int) string {
		return cmp.Or(environ.Interface(w.run.Plan, host, meeting), "an unknown interface")
	}) {
		parts = append(parts, same.what+" on "+same.hosts)
	}
	return "the hosts reach " + w.run.Hosts[0].Name + " by " + strings.Join(parts, "; ") +
		": nccl { debug = \"INFO\" } shows whether NCCL's sockets are there, " +
		"nccl { socket_ifname = ... } puts them there"
}

// pcie names GPUs that reach into each other by PCIe, all ranks of a host taken for a group: that hangs in the first
// collective where an IOMMU or ACS is in the way, which no fact of a host shows.
func (w *Watch) pcie() (facts []string) {
	meeting := w.meeting()
	for _, same := range alike(w.run.Hosts, func(host int) string {
		ways, nvlink := environ.PCIe(w.run.Plan, host, meeting)
		joined, setting := "not by NVLink", "nccl { p2p_disable = true }"
		if nvlink {
			joined, setting = "others by NVLink", "nccl { p2p_level = \"NVL\" }"
		}
		if len(ways) == 0 {
			return ""
		}
		return fmt.Sprintf("GPUs are joined by PCIe, %s, %s: "+
			"where an IOMMU or ACS is in the way of direct access (P2P), NCCL hangs in its first collectives; "+
			"%s has it take the host's memory there, in the job, "+
			"or in restart { on \"hang\" { ... } } after a hang only", strings.Join(ways, ", "), joined, setting)
	}) {
		facts = append(facts, "on "+same.hosts+" "+same.what)
	}
	return facts
}

// fact is what holds of several hosts.
type fact struct{ what, hosts string }

// alike joins hosts of which the same holds; "" is nothing.
func alike(all []*run.Host, of func(host int) string) (facts []fact) {
	hosts := map[string][]string{}
	for i, h := range all {
		hosts[of(i)] = append(hosts[of(i)], h.Name)
	}
	delete(hosts, "")
	for _, what := range slices.Sorted(maps.Keys(hosts)) {
		names := hosts[what]
		if len(names) > maxPlaces {
			names = append(slices.Clone(names[:maxPlaces]), fmt.Sprintf("%d more", len(names)-maxPlaces))
		}
		facts = append(facts, fact{what, strings.Join(names, ", ")})
	}
	return facts
}
