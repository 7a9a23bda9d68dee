package failure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Classify says why a worker ended.
func Classify(e Evidence) Verdict {
	v := e.classify()
	e.addFacts(&v)
	v.advise()
	if v.Message == "" {
		c, _ := class.Find(v.Class)
		v.Message = c.Meaning
	}
	v.Evidence = slices.Compact(v.Evidence)
	return v
}

func (e Evidence) classify() Verdict {
	switch {
	case e.Start != "":
		return e.notStarted()
	case e.succeeded():
		return e.success()
	}
	words, found := listen(e)
	v := e.weighOutput(words, found)
	for _, h := range words.survived {
		v.note(fmt.Sprintf("it had also said %q (%s); %s", h.verdict.Said, h.verdict.Class, h.survived))
	}
	return v
}

// weighOutput weighs what a worker wrote against how it ended and what its host saw.
func (e Evidence) weighOutput(words told, found bool) Verdict {
	if v, sick := e.hardware(); sick && (!found || words.kind != cause || v.Class == words.verdict.Class || e.ofHost(v)) {
		v.After = e.Sent
		// A fault of a program is that of the one that ended by itself.
		if e.Sent == "" || e.ofHost(v) || found && words.kind == cause {
			return v
		}
	}
	if e.Sent != "" && (!found || words.kind != cause || words.verdict.saysStopped()) {
		return e.stopped()
	}
	if v, ok := e.killed(words, found); ok {
		return v
	}
	if !found {
		v := e.status()
		if n := len(words.survived); n > 0 && v.Class == class.Exit {
			last := words.survived[n-1]
			v = last.verdict
			v.Confidence = Guess
			v.evidence(fmt.Sprintf("it says %q, and nothing later says why it ended", last.verdict.Said))
			e.weigh(&v)
		}
		return v
	}
	v := words.verdict
	v.After = e.Sent
	v.Consequence = v.Consequence || e.Sent != "" && v.Class == class.UserError
	e.weigh(&v)
	return v
}

// saysStopped is whether an exception is what a handler makes of a signal.
func (v Verdict) saysStopped() bool {
	return v.Class == class.UserError && (strings.Contains(v.Said, "SIGTERM") || strings.Contains(strings.ToLower(v.Said), "signal 15"))
}

// success: the worker ended with 0. What it wrote of memory may still be worth knowing.
func (e Evidence) success() Verdict {
	v := of(class.None, Certain)
	v.Message = "it ended well"
	if e.Sent != "" {
		v.Message += " after muster had sent " + e.Sent
		v.Consequence = true
	}
	for _, text := range [][]byte{e.Stderr, e.Stdout} {
		if t, found := hear(text, ""); found && strings.HasPrefix(t.verdict.Class, "oom.") {
			v.note(fmt.Sprintf("it ended with status 0 although it had said %q (%s)", t.verdict.Said, t.verdict.Class))
			keepNumbers(&v, t.verdict)
		} else if n := len(t.survived); n > 0 {
			v.note(fmt.Sprintf("it had said %q (%s) and gone on", t.survived[n-1].verdict.Said, t.survived[n-1].verdict.Class))
			keepNumbers(&v, t.survived[n-1].verdict)
		}
	}
	return v
}

func keepNumbers(v *Verdict, from Verdict) {
	for name, n := range from.Numbers {
		if _, known := v.Numbers[name]; !known {
			v.Numbers[name] = n
		}
	}
}

// stopped: muster had sent a signal, and nothing says that the worker had failed before.
func (e Evidence) stopped() Verdict {
	v := of(class.Stopped, Certain)
	v.Message = "it was stopped by muster (" + e.Sent + ")"
	v.evidence("muster had sent " + e.Sent)
	return v
}

// weigh adds to what a worker wrote what its host saw, which may say better.
func (e Evidence) weigh(v *Verdict) {
	switch {
	case v.Class == class.OOMHost:
		e.weighHostMemory(v)
	case v.Class == class.OOMShm, v.Class == class.CrashBus:
		v.evidence(spaceText(e.Shm))
	case v.Class == class.DiskFull && e.Shm.Full() && !e.Disk.Full(): // the message need not name the file
		v.become(class.OOMShm, Likely, "/dev/shm is full, and no disk of the run is")
		v.evidence(spaceText(e.Shm), spaceText(e.Disk))
	case v.Class == class.DiskFull:
		v.evidence(spaceText(e.Disk))
	case strings.HasPrefix(v.Class, "oom."):
		e.weighGPUMemory(v)
	}
}

// addFacts puts numbers beside the verdict that are good to have whatever the class.
func (e Evidence) addFacts(v *Verdict) {
	if s := e.Shm; s != nil && (v.Class == class.OOMShm || v.Class == class.CrashBus) {
		v.Numbers[NumShmTotal], v.Numbers[NumShmFree] = float64(s.Total), float64(s.Free)
	}
	if s := e.Disk; s != nil && v.Class == class.DiskFull {
		v.Numbers[NumDiskTotal], v.Numbers[NumDiskFree] = float64(s.Total), float64(s.Free)
	}
	if g := e.failing(*v); g != nil && g.Before != nil {
		v.Numbers[NumDeviceUsed], v.Numbers[NumDeviceTotal] = float64(g.Before.Used), float64(g.Before.Total)
	}
	if g := e.failing(*v); g != nil && g.After != nil {
		v.Numbers[NumDeviceAfter] = float64(g.After.Used)
		v.evidence(fmt.Sprintf("NVML saw %s of %s in use on GPU %d when it had ended", text.Size(g.After.Used, 2), text.Size(g.After.Total, 2), g.Index))
	}
	e.noteUnseen(v)
	e.addTorch(v)
	if words := e.place(); words != "" {
		v.note("it had come to " + words)
	}
	if o := e.Observed; o != nil && o.Torch != nil {
		for _, path := range o.Torch.Snapshots {
			v.note("torch's snapshot of its memory is in " + path)
		}
	}
}

// place is how far the worker was, and in which phase.
func (e Evidence) place() string {
	var words []string
	if e.Steps != nil && e.Steps.Furthest.Known() {
		words = append(words, e.Steps.Furthest.String())
	}
	if o := e.Observed; o != nil && o.Phase != "" {
		words = append(words, "phase "+o.Phase)
	}
	return strings.Join(words, ", in ")
}

// noteUnseen says what of the devices could not be known, where it might have mattered.
func (e Evidence) noteUnseen(v *Verdict) {
	if !strings.HasPrefix(v.Class, "gpu.") && !strings.HasPrefix(v.Class, "oom.") || v.Class == class.OOMHost || v.Class == class.OOMShm {
		return
	}
	if e.NoEvents != "" && len(e.GPUs) > 0 {
		v.note("errors that the driver reports of GPUs could not be heard: " + e.NoEvents)
	}
	if e.Devices != nil && e.Devices.NoAfter != "" {
		v.note("who holds the GPUs' memory since it ended is not known: " + e.Devices.NoAfter)
	}
}

func spaceText(s *evidence.Space) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s has %s free of %s", s.Path, text.Size(s.Free, 2), text.Size(s.Total, 2))
}
