package runs

import (
	"fmt"
	"io"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

func hostsOf(s event.State) []samples.HostDigest {
	if s.Samples == nil {
		return nil
	}
	return s.Samples.Hosts
}

// isKnown is whether a number is known of any rank.
func isKnown(s event.State, m samples.Metric) bool {
	for _, h := range hostsOf(s) {
		for _, r := range h.Ranks {
			if _, known := r.Now.Get(m); known {
				return true
			}
			if _, known := samples.Highest(r.Peaks).Get(m); known {
				return true
			}
		}
	}
	return false
}

// useColumns say how ranks use memory and devices: what they are called, which number makes
// them worth it, and how much they matter.
var useColumns = []struct {
	title string
	needs samples.Metric
	keep  int
	of    func(r samples.Rank) string
}{
	{"GPU", samples.DeviceUsed, keepGPU, func(r samples.Rank) string {
		if r.GPU == nil {
			return "-"
		}
		return fmt.Sprint(*r.GPU)
	}},
	{"HELD/PEAK", samples.Process, keepHeld, func(r samples.Rank) string { return peakWord(r, samples.Process) }},
	{"DEVICE", samples.DeviceUsed, keepDevice, func(r samples.Rank) string {
		used, known := r.Now.Get(samples.DeviceUsed)
		return sizesWord(used, known, r.Total, r.Total > 0)
	}},
	{"RSS/PEAK", samples.RSS, keepRSS, func(r samples.Rank) string { return peakWord(r, samples.RSS) }},
	{"BUSY", samples.GPU, keepBusy, func(r samples.Rank) string { return percentWord(r.Now, samples.GPU) }},
	{"TRAFFIC", samples.Traffic, keepTraffic, func(r samples.Rank) string { return percentWord(r.Now, samples.Traffic) }},
	{"TENSORS", samples.Allocated, keepTensors, func(r samples.Rank) string { return sizeWord(r.Now, samples.Allocated) }},
	{"RESERVED", samples.Reserved, keepReserved, func(r samples.Rank) string { return sizeWord(r.Now, samples.Reserved) }},
}

// addUse adds how ranks that run use memory and devices, as far as something is known of it.
func (s Standing) addUse(t *terminal.Columns) {
	for _, c := range useColumns {
		if !isKnown(s.State, c.needs) {
			continue
		}
		s.addColumn(t, c.title, c.keep, func(rank int, state event.RankState) string {
			r, _, known := s.State.Samples.Of(rank)
			if !known || state.Name != "running" {
				return ""
			}
			return c.of(r)
		})
	}
}

// peakWord is what a rank has of something now, and has had at most.
func peakWord(r samples.Rank, m samples.Metric) string {
	now, isNow := r.Now.Get(m)
	most, isMost := samples.Highest(r.Peaks).Get(m)
	return sizesWord(now, isNow, most, isMost)
}

// sizesWord is an amount of another, in the unit of the larger: "30.0/80.0 GiB".
func sizesWord(n float64, known bool, of float64, knownOf bool) string {
	switch {
	case !known && !knownOf:
		return "-"
	case !knownOf:
		return samples.Size(n)
	case !known:
		return "-/" + samples.Size(of)
	case max(n, of) >= 1<<30:
		return fmt.Sprintf("%.1f/%.1f GiB", n/(1<<30), of/(1<<30))
	}
	return fmt.Sprintf("%.0f/%.0f MiB", n/(1<<20), of/(1<<20))
}

// digestNotes tell of what is beside the ranks' own: others on their devices, old news and
// why nothing is known.
func digestNotes(w io.Writer, s event.State, width int) {
	say := func(format string, args ...any) {
		_, _ = w.Write(terminal.Wrapped(fmt.Sprintf(format, args...), width)) // what w does with it shows at its end
	}
	for _, h := range hostsOf(s) {
		for _, o := range h.Others {
			say("%s: %s", h.Host, otherText(o))
		}
		if h.Why != "" {
			say("%s: its devices are not sampled: %s", h.Host, terminal.Clean([]byte(h.Why)))
		}
		if h.Every > 2 {
			say("%s: its devices are looked at every %.0f s only", h.Host, h.Every)
		}
		if h.Ago > staleDigest {
			say("%s has told nothing new for %.0f s", h.Host, h.Ago)
		}
	}
}

// staleDigest is after how many seconds without news of a host that is said.
const staleDigest = 15

func otherText(o samples.Holder) string {
	words := fmt.Sprintf("pid %d", o.PID)
	if o.Name != "" {
		words = fmt.Sprintf("%s (%s)", terminal.Clean([]byte(o.Name)), words)
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
	most := samples.Highest(all)
	t := terminal.NewTable(w)
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
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s", r.Rank, r.Host, gpu, p.Attempt, terminal.Clean([]byte(p.Phase)))
			for _, c := range metrics {
				if _, known := most.Get(c.m); known {
					fmt.Fprint(t, "\t"+sizeWord(p.Max, c.m))
				}
			}
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}
