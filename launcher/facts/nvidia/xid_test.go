package nvidia

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/muster-dev/muster/launcher/kernellog"
)

// The lines are as drivers of several years have written them.
func TestXidsOfTheKernelsLogAreCountedByGPUAndNumber(t *testing.T) {
	var got Xids
	for i, text := range []string{
		"NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
		"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
		"NVRM: Xid (PCI:0000:0F:00.0): 79, GPU has fallen off the bus, again.",
		"NVRM: Xid (PCI:0000:9d:00): 31, pid=12345, name=python, Ch 00000008, MMU Fault",
		"usb 1-1: the product calls itself Xidentity",
		"NVRM: Xid (PCI:0000:0f:00): 154 GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
	} {
		got.Take(kernellog.Record{At: float64(i), Text: text})
	}
	want := Xids{
		{"0000:0f:00", 79, 2, 2, "GPU has fallen off the bus, again."},
		{"0000:9d:00", 31, 1, 3, "pid=12345, name=python, Ch 00000008, MMU Fault"},
		{"0000:0f:00", 154, 1, 5, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestALogFullOfXidsTakesLittleRoom(t *testing.T) {
	var got Xids
	for i := range 1000 {
		got.Take(kernellog.Record{Text: fmt.Sprintf("NVRM: Xid (PCI:0000:%02x:00): %d, %500s", i%256, i, "x")})
	}
	if len(got) != maxXids || len(got[0].Text) > longestText {
		t.Errorf("%d kinds, of %d bytes", len(got), len(got[0].Text))
	}
}
