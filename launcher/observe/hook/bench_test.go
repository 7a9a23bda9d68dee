//go:build linux

package hook

import (
	"fmt"
	"testing"
)

// BenchmarkLook is what one look a second costs with two devices: the share of a second is
// what the program loses to it.
func BenchmarkLook(b *testing.B) {
	const source = `
import sys, time
sys.path.insert(0, %q)
import torch, muster_observe
torch.cuda.allocate(1 << 30); torch.cuda.allocate(1 << 30, device=1)
w = muster_observe.Watcher(torch.cuda)
w.look(0.0)
began, n = time.perf_counter(), 2000
for i in range(n):
    torch.cuda.pools[0].peak[0] += 1  # so that there is news
    w.look(i + 1.0)
print((time.perf_counter() - began) / n * 1e6)
`
	bench := newBench(b)
	for b.Loop() {
		o := bench.run(true, "python3", torch(b, "2.5"), nil, "-c", fmt.Sprintf(source, bench.hook))
		var micros float64
		if _, err := fmt.Sscan(o.stdout, &micros); err != nil {
			b.Fatalf("%+v", o)
		}
		b.ReportMetric(micros, "µs/look")
		b.ReportMetric(micros/1e6*100, "%of-a-second")
	}
}

// BenchmarkStart is what the hook adds to the start of Python.
func BenchmarkStart(b *testing.B) {
	bench := newBench(b)
	for name, hooked := range map[string]bool{"with": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				bench.run(hooked, "python3", nil, nil, "-c", "pass")
			}
		})
	}
}
