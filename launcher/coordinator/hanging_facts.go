package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/samples"
)

// hangFacts are what is known to make NCCL hang without a word.
func (b *brain) hangFacts(seen []hang.Seen) []string {
	if b.plan.Backend != "nccl" || b.plan.Independent {
		return nil
	}
	facts := b.bufferFacts(seen)
	if len(b.hosts) > 1 {
		facts = append(facts, b.interfaceFact())
	}
	return append(facts, b.pcieFacts()...)
}

// bufferFacts tell of ranks on whose GPUs NCCL's buffers may not fit.
func (b *brain) bufferFacts(seen []hang.Seen) (facts []string) {
	size, channels := b.plan.BufferSettings()
	_, most := nccl.Buffers(size, channels)
	for _, s := range seen {
		digest, told := b.memory.digests[b.ranks[s.Rank].host]
		if !told {
			continue // its host has not measured anything yet
		}
		for _, one := range digest.Ranks {
			used := one.Now.Number(samples.DeviceUsed)
			if one.Rank != s.Rank || used == nil || one.Total == 0 || one.Total-*used >= float64(most) {
				continue
			}
			facts = append(facts, fmt.Sprintf("%s has %.1f GiB free on its GPU, and a communicator of NCCL takes up to %.1f GiB: a buffer that cannot be allocated is a known cause; less for torch (memory_fraction, a smaller micro-batch) or a smaller nccl { buffer_size }",
				b.rankWords(s.Rank), (one.Total-*used)/(1<<30), float64(most)/(1<<30)))
		}
	}
	return facts
}

// interfaceFact says by which interfaces the hosts reach the first one, which is where NCCL's
// sockets belong: a rank that takes another waits without a word.
func (b *brain) interfaceFact() string {
	meeting := b.meeting()
	var words []string
	for _, same := range b.alike(func(host int) string { return cmp.Or(environ.Interface(b.plan, host, meeting), "an unknown interface") }) {
		words = append(words, same.what+" on "+same.hosts)
	}
	return "the hosts reach " + b.hosts[0].name + " by " + strings.Join(words, "; ") + ": nccl { debug = \"INFO\" } shows whether NCCL's sockets are there, nccl { socket_ifname = ... } puts them there"
}

// pcieFacts tell of GPUs that reach into each other by PCIe, all ranks of a host taken for a
// group: that hangs in the first collective where an IOMMU or ACS is in the way, which no fact
// of a host shows.
func (b *brain) pcieFacts() (facts []string) {
	meeting := b.meeting()
	for _, same := range b.alike(func(host int) string {
		ways, nvlink := environ.PCIe(b.plan, host, meeting)
		joined, setting := "not by NVLink", "nccl { p2p_disable = true }"
		if nvlink {
			joined, setting = "others by NVLink", "nccl { p2p_level = \"NVL\" }"
		}
		if len(ways) == 0 {
			return ""
		}
		return fmt.Sprintf("GPUs are joined by PCIe, %s, %s: where an IOMMU or ACS is in the way of direct access (P2P), NCCL hangs in its first collectives; %s has it take the host's memory there, in the job, or in restart { on \"hang\" { ... } } after a hang only",
			strings.Join(ways, ", "), joined, setting)
	}) {
		facts = append(facts, "on "+same.hosts+" "+same.what)
	}
	return facts
}

// saidOf is what is to be said of hosts alike.
type saidOf struct{ what, hosts string }

// alike puts hosts together of which the same is to be said; of "" is nothing.
func (b *brain) alike(of func(host int) string) (all []saidOf) {
	hosts := map[string][]string{}
	for i, h := range b.hosts {
		hosts[of(i)] = append(hosts[of(i)], h.name)
	}
	delete(hosts, "")
	for _, what := range slices.Sorted(maps.Keys(hosts)) {
		names := hosts[what]
		if len(names) > mostPlaces {
			names = append(slices.Clone(names[:mostPlaces]), fmt.Sprintf("%d more", len(names)-mostPlaces))
		}
		all = append(all, saidOf{what, strings.Join(names, ", ")})
	}
	return all
}
