package failure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/kernel"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/plural"
)

// seenXid is an Xid of a device of the worker.
type seenXid struct {
	Xid
	gpu   string // in words
	by    int    // the Xid that caused it, as the driver says; 0 where it says nothing
	known class.Xid
}

// hardware is the verdict where the driver reported that a GPU of the worker failed.
func (e Evidence) hardware() (verdict.Verdict, bool) {
	xids := e.xids()
	for i := range e.GPUs {
		if g := &e.GPUs[i]; g.Lost != "" && e.concerns(g) {
			v := verdict.Of(class.GPULost, verdict.Certain)
			v.Message = fmt.Sprintf("GPU %d (%s) does not answer any more: %s", g.Index, g.UUID, g.Lost)
			v.Said, v.Since = g.Lost, g.LostAt
			v.AddEvidence(v.Message)
			for _, x := range xids {
				v.AddEvidence(x.String())
			}
			return v, true
		}
	}
	if v, ok := ofXids(xids); ok {
		return v, true
	}
	for i := range e.GPUs {
		if g := &e.GPUs[i]; g.ECC != nil && *g.ECC > 0 && e.concerns(g) {
			v := verdict.Of(class.GPUECC, verdict.Likely)
			v.Message = fmt.Sprintf("memory of GPU %d (%s) had %s that could not be corrected since the attempt began", g.Index, g.UUID, plural.Of(*g.ECC, "error"))
			v.AddEvidence(v.Message)
			return v, true
		}
	}
	return verdict.Verdict{}, false
}

// isHardware is whether a verdict is the hardware's, whatever the worker wrote about it.
func isHardware(v verdict.Verdict) bool {
	c, _ := class.Find(v.Class)
	return c.Owner == class.Host && (v.Restart == class.OtherHost || v.Class == class.GPUECC)
}

// concerns is whether a GPU is the worker's; where nobody knows whose it is, it may be.
func (e Evidence) concerns(g *GPU) bool {
	known := slices.ContainsFunc(e.GPUs, func(g GPU) bool { return g.Mine })
	return g.Mine || !known
}

// xids are those of the worker's devices, in their order. NVML's events and the kernel's
// log are two reports of one thing: what both have counts once, with the log's words. Those
// of the log alone stand last, for nothing says when they were.
func (e Evidence) xids() []seenXid {
	logged := kernel.Read(&e.Worker).Xids(e.concernsPCI)
	var found []seenXid
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if !e.concerns(g) {
			continue
		}
		for _, x := range g.Xids {
			same := slices.IndexFunc(logged, func(k kernel.Xid) bool {
				return k.Number == x.Number && samePCI(g.PCI, k.PCI)
			})
			if same >= 0 {
				x.Text = cmp.Or(x.Text, logged[same].Text)
				logged = slices.Delete(logged, same, same+1)
			}
			found = append(found, judge(x, fmt.Sprintf("GPU %d", g.Index)))
		}
	}
	slices.SortStableFunc(found, func(a, b seenXid) int { return cmp.Compare(a.At, b.At) })
	for _, k := range logged {
		found = append(found, judge(Xid{Number: k.Number, Text: k.Text}, "the GPU at "+k.PCI))
	}
	return found
}

// concernsPCI is concerns for a GPU at an address; of a host whose GPUs are not known, any may be.
func (e Evidence) concernsPCI(pci string) bool {
	for i := range e.GPUs {
		if g := &e.GPUs[i]; samePCI(g.PCI, pci) {
			return e.concerns(g)
		}
	}
	return len(e.GPUs) == 0
}

// samePCI compares addresses as NVML (00000000:0F:00.0) and the kernel (0000:0f:00) write
// them.
func samePCI(a, b string) bool {
	short := func(s string) string {
		s, _, _ = strings.Cut(strings.ToLower(s), ".")
		return strings.TrimLeft(s, "0")
	}
	return a != "" && short(a) == short(b)
}

// judge is what an Xid means for the worker: see class.JudgeXid.
func judge(x Xid, gpu string) seenXid {
	s := seenXid{Xid: x, gpu: gpu}
	s.known, s.by = class.JudgeXid(x.Number, x.Text)
	return s
}

// severity orders verdicts: what takes the host out first.
func severity(v class.XidVerdict) int {
	return slices.Index([]class.XidVerdict{class.XidStop, class.XidProgram, class.XidRestart}, v)
}

// ofXids is the verdict on Xids: the worst, and of several the first.
func ofXids(xids []seenXid) (verdict.Verdict, bool) {
	worst := -1
	for i, x := range xids {
		rank := severity(x.known.Verdict)
		if rank >= 0 && (worst < 0 || rank < severity(xids[worst].known.Verdict)) {
			worst = i
		}
	}
	if worst < 0 {
		return verdict.Verdict{}, false
	}
	x := xids[worst]
	v := verdict.Of(x.known.Class, verdict.Certain)
	switch x.known.Verdict {
	case class.XidStop:
		v.Restart = class.OtherHost
	case class.XidRestart:
		v.Restart = class.Yes
	case class.XidProgram:
		v.Restart = class.No
	}
	contained(&v, xids)
	v.Numbers[verdict.NumXid] = float64(x.Number)
	v.Said, v.Since = fmt.Sprintf("Xid %d", x.Number), x.At
	v.Message = fmt.Sprintf("the driver reported Xid %d of %s: %s", x.Number, x.gpu, x.known.Meaning)
	if x.by != 0 {
		v.Message = fmt.Sprintf("the driver reported Xid %d of %s, caused by Xid %d: %s", x.Number, x.gpu, x.by, x.known.Meaning)
	}
	for _, x := range xids {
		v.AddEvidence(x.String())
	}
	return v, true
}

// contained: the driver keeps an error of memory to the program that met it (Xid 94), and
// then the device is good for others, until it is reset for the row to be remapped.
func contained(v *verdict.Verdict, xids []seenXid) {
	has := func(number int) bool {
		return slices.ContainsFunc(xids, func(x seenXid) bool { return x.Number == number })
	}
	if v.Class != class.GPUECC || !has(94) || has(95) || has(64) || has(140) {
		return
	}
	v.Restart = class.Yes
	v.AddNote("the error was contained to this program; the GPU wants a reset before the next long job")
}

func (x seenXid) String() string {
	text := fmt.Sprintf("Xid %d of %s", x.Number, x.gpu)
	if x.Text != "" {
		text += fmt.Sprintf(" (%s)", verdict.Excerpt(x.Text))
	}
	return text
}
