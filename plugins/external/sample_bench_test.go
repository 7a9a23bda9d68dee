package external

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

// eight is a sample of eight GPUs with a process each, as NVML tells it.
func eight() *gpu.Samples {
	s := &gpu.Samples{}
	for i := range 8 {
		n := uint64(i) << 30
		s.GPUs = append(s.GPUs, gpu.Sample{Index: i, UUID: "GPU-61a2b3c4-d5e6-f708-0000-00000000000" + string(rune('0'+i)), State: gpu.StateOK,
			Memory: gpu.Memory{Used: &n, Total: &n, Reserved: &n}, Utilization: gpu.Utilization{GPU: &i, Memory: &i},
			Processes: []gpu.Process{{PID: 1000 + i, Name: "/usr/bin/python", Kind: "compute", Memory: &n}}})
	}
	return s
}

// BenchmarkSampleOfEightGPUs is what a sample costs beside the driver: at this end, which
// cpu-ns/op counts, and at the plugin's.
func BenchmarkSampleOfEightGPUs(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := New(Program{Name: "test", Path: self, Args: []string{"play", "samples-of-eight"}, Env: []string{"GOMAXPROCS=1"}}, Children{})
	defer p.Close()
	if _, err := p.Sample(b.Context()); err != nil {
		b.Fatal(err)
	}
	before := cpuTime(b)
	for b.Loop() {
		if _, err := p.Sample(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
