package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// use are the columns of a table of ranks that say how they use memory and devices: those
// of which something is known.
type use struct{ s *event.State }

func hostsOf(s event.State) []samples.HostDigest {
	if s.Samples == nil {
		return nil
	}
	return s.Samples.Hosts
}

// knows is whether a number is known of any rank.
func (u use) knows(m samples.Metric) bool {
	for _, h := range hostsOf(*u.s) {
		for _, r := range h.Ranks {
			if _, known := r.Now.Get(m); known {
				return true
			}
			if _, known := samples.Most(r.Peaks).Get(m); known {
				return true
			}
		}
	}
	return false
}

// columns of use: what they are called, and which number makes them worth it.
var useColumns = []struct {
	title string
	needs samples.Metric
	of    func(r samples.Rank) string
}{
	{"GPU", samples.DeviceUsed, func(r samples.Rank) string {
		if r.GPU == nil {
			return "-"
		}
		return fmt.Sprint(*r.GPU)
	}},
	{"BUSY", samples.GPU, func(r samples.Rank) string { return percentWord(r.Now, samples.GPU) }},
	{"TRAFFIC", samples.Traffic, func(r samples.Rank) string { return percentWord(r.Now, samples.Traffic) }},
	{"DEVICE", samples.DeviceUsed, func(r samples.Rank) string {
		if _, known := r.Now.Get(samples.DeviceUsed); !known || r.Total == 0 {
			return sizeWord(r.Now, samples.DeviceUsed)
		}
		return sizeWord(r.Now, samples.DeviceUsed) + " of " + samples.Size(r.Total)
	}},
	{"HELD", samples.Process, func(r samples.Rank) string { return sizeWord(r.Now, samples.Process) }},
	{"HELD PEAK", samples.Process, func(r samples.Rank) string { return sizeWord(samples.Most(r.Peaks), samples.Process) }},
	{"TENSORS", samples.Allocated, func(r samples.Rank) string { return sizeWord(r.Now, samples.Allocated) }},
	{"RESERVED", samples.Reserved, func(r samples.Rank) string { return sizeWord(r.Now, samples.Reserved) }},
	{"RSS", samples.RSS, func(r samples.Rank) string { return sizeWord(r.Now, samples.RSS) }},
	{"RSS PEAK", samples.RSS, func(r samples.Rank) string { return sizeWord(samples.Most(r.Peaks), samples.RSS) }},
}

func (u use) titles() string {
	var b strings.Builder
	for _, c := range useColumns {
		if u.knows(c.needs) {
			b.WriteString("\t" + c.title)
		}
	}
	return b.String()
}

func (u use) of(rank int, state event.RankState) string {
	r, _, known := u.s.Samples.Of(rank)
	if !known || state.Name != "running" {
		return ""
	}
	var b strings.Builder
	for _, c := range useColumns {
		if u.knows(c.needs) {
			b.WriteString("\t" + c.of(r))
		}
	}
	return b.String()
}

// notes tell of what is beside the ranks' own: others on their devices, growth, old news
// and why nothing is known.
func (u use) notes(w io.Writer) {
	for _, h := range hostsOf(*u.s) {
		for _, o := range h.Others {
			fmt.Fprintf(w, "%s: %s\n", h.Host, otherWords(o))
		}
		for _, r := range h.Ranks {
			for _, g := range r.Growth {
				message, fix := g.Words()
				fmt.Fprintf(w, "%s: %s; %s\n", h.Host, message, fix)
			}
		}
		if h.Why != "" {
			fmt.Fprintf(w, "%s: its devices are not sampled: %s\n", h.Host, clean([]byte(h.Why)))
		}
		if h.Every > 2 {
			fmt.Fprintf(w, "%s: its devices are looked at every %.0f s only\n", h.Host, h.Every)
		}
		if h.Ago > staleDigest {
			fmt.Fprintf(w, "%s has told nothing new for %.0f s\n", h.Host, h.Ago)
		}
	}
}

// staleDigest is after how many seconds without news of a host that is said.
const staleDigest = 15

func otherWords(o samples.Holder) string {
	words := fmt.Sprintf("pid %d", o.PID)
	if o.Name != "" {
		words = fmt.Sprintf("%s (%s)", clean([]byte(o.Name)), words)
	}
	if o.User != "" {
		words += " of " + o.User
	}
	if o.Bytes == nil {
		return words + " is on " + o.Device + " too, and is no rank's"
	}
	return fmt.Sprintf("%s holds %s of %s, and is no rank's", words, samples.Size(float64(*o.Bytes)), o.Device)
}

func sizeWord(v samples.Values, m samples.Metric) string {
	if n, known := v.Get(m); known {
		return samples.Size(n)
	}
	return "-"
}

func percentWord(v samples.Values, m samples.Metric) string {
	if n, known := v.Get(m); known {
		return fmt.Sprintf("%.0f %%", n)
	}
	return "-"
}

// Peaks writes the most memory that each rank of a run has used, and when; nothing where
// nothing was measured.
func Peaks(w io.Writer, rep *report.Report) error {
	metrics := []struct {
		title string
		m     samples.Metric
	}{
		{"HELD", samples.Process}, {"DEVICE", samples.DeviceUsed}, {"TENSORS", samples.Allocated}, {"RESERVED", samples.Reserved}, {"RSS", samples.RSS},
	}
	var all []samples.Peak
	for _, r := range rep.Ranks {
		all = append(all, r.Peaks...)
	}
	if len(all) == 0 {
		return nil
	}
	most := samples.Most(all)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "memory at most\nRANK\tHOST\tGPU\tATTEMPT\tPHASE")
	for _, c := range metrics {
		if _, known := most.Get(c.m); known {
			fmt.Fprint(t, "\t"+c.title)
		}
	}
	fmt.Fprintln(t)
	for _, r := range rep.Ranks {
		gpu := "-"
		if r.GPU != nil {
			gpu = fmt.Sprint(r.GPU.Index)
		}
		for _, p := range r.Peaks {
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s", r.Rank, r.Host, gpu, p.Attempt, clean([]byte(p.Phase)))
			for _, c := range metrics {
				if _, known := most.Get(c.m); known {
					fmt.Fprint(t, "\t"+sizeWord(p.Most, c.m))
				}
			}
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}
