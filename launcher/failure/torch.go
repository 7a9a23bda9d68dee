package failure

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/observe"
)

// addTorch gives a verdict about GPU memory the numbers that torch itself has told, where
// the text of the error had none, and says whence they are.
func (e Evidence) addTorch(v *verdict.Verdict) {
	if !strings.HasPrefix(v.Class, "oom.") || v.Class == class.OOMHost || v.Class == class.OOMShm {
		return
	}
	t := e.torchOf(*v)
	if t == nil {
		return
	}
	add := func(name string, n uint64) {
		if _, known := v.Numbers[name]; !known {
			v.Numbers[name] = float64(n)
		}
	}
	if _, told := v.Numbers[verdict.NumAllocated]; !told {
		v.AddEvidence(fmt.Sprintf("torch itself told, %.1f s before the end, of %s in tensors and %s held on its cuda:%d", max(0, e.Age-t.At), text.Size(t.Allocated, 2), text.Size(t.Reserved, 2), t.Device))
		add(verdict.NumAllocated, t.Allocated)
		add(verdict.NumReserved, t.Reserved)
		add(verdict.NumUnallocated, t.Reserved-min(t.Allocated, t.Reserved))
	}
	if t.LargestFree != nil {
		add(verdict.NumLargestFree, *t.LargestFree)
	}
	if f := t.OOM; f != nil {
		add(verdict.NumRequested, f.Requested)
		add(verdict.NumTotal, f.Total)
		add(verdict.NumFree, f.Free)
	}
}

// torchOf is what torch told of the device that a verdict is about: of the process that
// held most of it. nil where that is not known.
func (e Evidence) torchOf(v verdict.Verdict) *observe.TorchDevice {
	device, named := -1, false
	if n, ok := v.Numbers[verdict.NumGPU]; ok {
		device, named = int(n), true
	} else if g := e.failing(v); g != nil && g.Seen >= 0 {
		device, named = g.Seen, true
	}
	var largest *observe.TorchDevice
	if e.Observed == nil || e.Observed.Torch == nil {
		return nil
	}
	devices := e.Observed.Torch.Devices
	for i := range devices {
		t := &devices[i]
		switch {
		case named && t.Device != device:
		case !named && t.Device != devices[0].Device:
			return nil // several devices, and nothing says which
		case largest == nil || t.Reserved > largest.Reserved:
			largest = t
		}
	}
	return largest
}
