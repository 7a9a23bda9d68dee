package failure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Classify says why a worker ended.
func Classify(e Evidence) verdict.Verdict {
	v := e.classify()
	e.addFacts(&v)
	advise(&v)
	if v.Message == "" {
		c, _ := class.Find(v.Class)
		v.Message = c.Meaning
	}
	v.Evidence = slices.Compact(v.Evidence)
	return v
}

func (e Evidence) classify() verdict.Verdict {
	switch {
	case e.Start != "":
		return e.notStarted()
	case e.succeeded():
		return e.success()
	}
	words, found := output.Read(&e.Worker)
	v := e.weighOutput(words, found)
	for _, h := range words.Survived {
		v.AddNote(fmt.Sprintf("it had also said %q (%s); %s", h.Verdict.Said, h.Verdict.Class, h.Survived))
	}
	return v
}

// weighOutput weighs what a worker wrote against how it ended and what its host saw.
func (e Evidence) weighOutput(words output.Said, found bool) verdict.Verdict {
	says := found && words.Kind == output.Cause // it has a cause of its own
	if v, sick := e.hardware(); sick && (!says || v.Class == words.Verdict.Class || isHardware(v)) {
		v.After = e.Sent
		// A fault of a program is that of the one that ended by itself.
		if e.Sent == "" || isHardware(v) || says {
			return v
		}
	}
	if e.Sent != "" && (!says || saysStopped(words.Verdict)) {
		return stopped(e)
	}
	if v, ok := e.killed(words, found); ok {
		return v
	}
	if !found {
		v := e.status()
		if n := len(words.Survived); n > 0 && v.Class == class.Exit {
			last := words.Survived[n-1]
			v = last.Verdict
			v.Confidence = verdict.Guess
			v.AddEvidence(fmt.Sprintf("it says %q, and nothing later says why it ended", last.Verdict.Said))
			e.weigh(&v)
		}
		return v
	}
	v := words.Verdict
	v.After = e.Sent
	v.Consequence = v.Consequence || e.Sent != "" && v.Class == class.UserError
	e.weigh(&v)
	return v
}

// saysStopped is whether an exception is what a handler makes of a signal.
func saysStopped(v verdict.Verdict) bool {
	return v.Class == class.UserError && (strings.Contains(v.Said, "SIGTERM") || strings.Contains(strings.ToLower(v.Said), "signal 15"))
}

// success: the worker ended with 0. What it wrote of memory may still be worth knowing.
func (e Evidence) success() verdict.Verdict {
	v := verdict.Of(class.None, verdict.Certain)
	v.Message = "it ended well"
	if e.Sent != "" {
		v.Message += " after muster had sent " + e.Sent
		v.Consequence = true
	}
	for _, text := range [][]byte{e.Stderr, e.Stdout} {
		if t, found := output.ReadText(text, ""); found && strings.HasPrefix(t.Verdict.Class, "oom.") {
			v.AddNote(fmt.Sprintf("it ended with status 0 although it had said %q (%s)", t.Verdict.Said, t.Verdict.Class))
			v.KeepNumbers(t.Verdict)
		} else if n := len(t.Survived); n > 0 {
			v.AddNote(fmt.Sprintf("it had said %q (%s) and gone on", t.Survived[n-1].Verdict.Said, t.Survived[n-1].Verdict.Class))
			v.KeepNumbers(t.Survived[n-1].Verdict)
		}
	}
	return v
}

// stopped: muster had sent a signal, and nothing says that the worker had failed before.
func stopped(e Evidence) verdict.Verdict {
	v := verdict.Of(class.Stopped, verdict.Certain)
	v.Message = "it was stopped by muster (" + e.Sent + ")"
	v.AddEvidence("muster had sent " + e.Sent)
	return v
}

// weigh adds to what a worker wrote what its host saw, which may say better.
func (e Evidence) weigh(v *verdict.Verdict) {
	switch {
	case v.Class == class.OOMHost:
		e.weighHostMemory(v)
	case v.Class == class.OOMShm, v.Class == class.CrashBus:
		v.AddEvidence(spaceText(e.Shm))
	case v.Class == class.DiskFull && e.Shm.Full() && !e.Disk.Full(): // the message need not name the file
		v.Become(class.OOMShm, verdict.Likely, "/dev/shm is full, and no disk of the run is")
		v.AddEvidence(spaceText(e.Shm), spaceText(e.Disk))
	case v.Class == class.DiskFull:
		v.AddEvidence(spaceText(e.Disk))
	case strings.HasPrefix(v.Class, "oom."):
		e.weighGPUMemory(v)
	}
}

// addFacts puts numbers beside the verdict that are good to have whatever the class.
func (e Evidence) addFacts(v *verdict.Verdict) {
	if s := e.Shm; s != nil && (v.Class == class.OOMShm || v.Class == class.CrashBus) {
		v.Numbers[verdict.NumShmTotal], v.Numbers[verdict.NumShmFree] = float64(s.Total), float64(s.Free)
	}
	if s := e.Disk; s != nil && v.Class == class.DiskFull {
		v.Numbers[verdict.NumDiskTotal], v.Numbers[verdict.NumDiskFree] = float64(s.Total), float64(s.Free)
	}
	if g := e.failing(*v); g != nil && g.Before != nil {
		v.Numbers[verdict.NumDeviceUsed] = float64(g.Before.Used)
		v.Numbers[verdict.NumDeviceTotal] = float64(g.Before.Total)
	}
	if g := e.failing(*v); g != nil && g.After != nil {
		v.Numbers[verdict.NumDeviceAfter] = float64(g.After.Used)
		v.AddEvidence(fmt.Sprintf("NVML saw %s of %s in use on GPU %d when it had ended", text.Size(g.After.Used, 2), text.Size(g.After.Total, 2), g.Index))
	}
	noteUnseen(e, v)
	e.addTorch(v)
	if words := describePlace(e); words != "" {
		v.AddNote("it had come to " + words)
	}
	if o := e.Observed; o != nil && o.Torch != nil {
		for _, path := range o.Torch.Snapshots {
			v.AddNote("torch's snapshot of its memory is in " + path)
		}
	}
}

// describePlace is how far the worker was, and in which phase.
func describePlace(e Evidence) string {
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
func noteUnseen(e Evidence, v *verdict.Verdict) {
	if !strings.HasPrefix(v.Class, "gpu.") && !strings.HasPrefix(v.Class, "oom.") || v.Class == class.OOMHost || v.Class == class.OOMShm {
		return
	}
	if e.NoEvents != "" && len(e.GPUs) > 0 {
		v.AddNote("errors that the driver reports of GPUs could not be heard: " + e.NoEvents)
	}
	if e.Devices != nil && e.Devices.NoAfter != "" {
		v.AddNote("who holds the GPUs' memory since it ended is not known: " + e.Devices.NoAfter)
	}
}

func spaceText(s *evidence.Space) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s has %s free of %s", s.Path, text.Size(s.Free, 2), text.Size(s.Total, 2))
}
