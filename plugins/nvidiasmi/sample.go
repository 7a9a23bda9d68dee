package nvidiasmi

import (
	"context"
	"strings"
	"sync"

	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

var _ gpu.Sampler = (*Prober)(nil)

// sampleEvery is how many seconds should lie between two samples: each starts nvidia-smi
// twice, which takes tens to hundreds of milliseconds of CPU time.
const sampleEvery = 30

// What a sample asks for (nvidia-smi --help-query-gpu, --help-query-compute-apps). A field
// that a driver does not know makes the whole query fail, so there are none of newer ones.
const (
	sampleQuery     = "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,utilization.memory"
	sampleProcesses = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"
	sampleFormat    = "--format=csv,noheader"
)

// Sample asks nvidia-smi for memory, utilisation and processes only. It does not tell of MIG
// instances, and of processes only those that compute.
func (p *Prober) Sample(ctx context.Context) (*gpu.Samples, error) {
	var devices, processes answer
	var running sync.WaitGroup
	running.Go(func() { devices.Output, devices.err = p.runner.Run(ctx, sampleQuery, sampleFormat) })
	running.Go(func() { processes.Output, processes.err = p.runner.Run(ctx, sampleProcesses, sampleFormat) })
	running.Wait()
	if err := devices.trouble(); err != nil {
		return nil, err
	}
	found := &gpu.Samples{Source: Source, Every: sampleEvery, GPUs: parseSamples(devices.Stdout)}
	takeProcesses(found.GPUs, processes)
	for i := range found.GPUs {
		found.GPUs[i].Explain("nvidia-smi does not tell it")
	}
	return found, nil
}

// parseSamples reads the rows of sampleQuery. Sentences about lost GPUs stand among them.
func parseSamples(output []byte) []gpu.Sample {
	found := []gpu.Sample{}
	for line := range plaintext.Lines(output) {
		cells := strings.Split(line, ", ")
		if len(cells) != 6 || !isIndex(cells[0]) {
			continue
		}
		why := map[string]string{}
		percent := func(name, text string) *int {
			return valueOf(why, name, strings.TrimSuffix(bare(text), " %"), parseNumber)
		}
		g := gpu.Sample{
			Index: plaintext.Digits(cells[0]), UUID: cells[1], State: gpu.StateOK, Why: why,
			Memory: gpu.Memory{
				Total: valueOf(why, "memory.total", bare(cells[2]), parseBytes), Used: valueOf(why, "memory.used", bare(cells[3]), parseBytes),
			},
			Utilization: gpu.Utilization{GPU: percent("utilization.gpu", cells[4]), Memory: percent("utilization.memory", cells[5])},
		}
		found = append(found, g)
	}
	return found
}

func isIndex(text string) bool {
	return len(text) > 0 && len(text) <= 4 && strings.Trim(text, "0123456789") == ""
}

// takeProcesses reads the rows of sampleProcesses. A name may hold commas, and is the last.
func takeProcesses(gpus []gpu.Sample, a answer) {
	if err := a.trouble(); err != nil {
		for i := range gpus {
			gpus[i].Why["processes"] = err.Error()
		}
		return
	}
	byUUID := map[string]*gpu.Sample{}
	for i := range gpus {
		gpus[i].Processes = []gpu.Process{}
		byUUID[gpus[i].UUID] = &gpus[i]
	}
	for line := range plaintext.Lines(a.Stdout) {
		cells := strings.SplitN(line, ", ", 4)
		if len(cells) != 4 || byUUID[cells[0]] == nil {
			continue
		}
		g := byUUID[cells[0]]
		pid, ok := parseNumber(cells[1])
		if !ok || pid <= 0 {
			continue
		}
		g.Processes = append(g.Processes, gpu.Process{
			PID: pid, Name: cells[3], Kind: "compute", Memory: valueOf(g.Why, processMemory, bare(cells[2]), parseBytes),
		})
	}
}
