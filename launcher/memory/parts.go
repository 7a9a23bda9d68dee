package memory

import "github.com/muster-dev/muster/launcher/check/nccl"

// contextSize is what a process takes of a GPU before it has a tensor there: the CUDA context and the modules of
// torch, cuBLAS and NCCL. It is some hundred MiB, and depends on the GPU, the driver and what is loaded.
const contextSize = 500 << 20

// usualUnits is into how many units FSDP is taken to part a model where its largest unit is not told: as many as the
// LLaMA of the next size has layers (Touvron et al., 2023, arXiv 2302.13971, table 2).
func usualUnits(parameters uint64) int {
	switch {
	case parameters < 10e9:
		return 32
	case parameters < 20e9:
		return 40
	case parameters < 50e9:
		return 60
	}
	return 80
}

// zeroBucket is how many elements DeepSpeed reduces at a time (reduce_bucket_size).
const zeroBucket = 500_000_000

// Parts are what a rank needs of its GPU's memory, in bytes.
type Parts struct {
	Parameters  uint64 `json:"parameters"`
	Gradients   uint64 `json:"gradients"`
	Optimizer   uint64 `json:"optimizer"`
	Activations uint64 `json:"activations"`
	// Step is what the optimizer's step has for a moment. Activations are gone by then: what is needed is the larger
	// of the two.
	Step uint64 `json:"step"`
	// Gathered is what stands beside the shards or gradients for communication: DDP's buckets, the units that FSDP
	// has gathered.
	Gathered uint64 `json:"gathered"`
	// NCCLLeast and NCCLMost are the buffers of all communicators: with rings only, and with trees.
	NCCLLeast uint64 `json:"nccl_least"`
	NCCLMost  uint64 `json:"nccl_most"`
	Context   uint64 `json:"context"`
	// Host is what lies in the memory of the rank's host instead.
	Host uint64 `json:"on_host,omitempty"`
}

// Min is the sum with the least that NCCL may take.
func (p Parts) Min() uint64 {
	return p.States() + max(p.Activations, p.Step) + p.Gathered + p.NCCLLeast + p.Context
}

// Max is the sum with the most that NCCL may take.
func (p Parts) Max() uint64 { return p.Min() - p.NCCLLeast + p.NCCLMost }

// States are parameters, gradients and what the optimizer keeps on the GPU.
func (p Parts) States() uint64 { return p.Parameters + p.Gradients + p.Optimizer }

// setup is a model split in a way.
type setup struct {
	Model
	Degrees
	groups []Group // as the job file names them
	// bufferMin and bufferMax are what NCCL's buffers take for a communicator.
	bufferMin, bufferMax uint64
}

func newSetup(m Model, d Degrees, l Layout) setup {
	s := setup{Model: m, Degrees: d, groups: l.Groups}
	if l.NCCL {
		s.bufferMin, s.bufferMax = nccl.Buffers(l.Buffer, l.Channels)
	}
	return s
}

// stages are what a rank of each stage needs.
func (s setup) stages() []Parts {
	all := make([]Parts, s.Pipeline)
	for stage := range all {
		all[stage] = s.parts(stage)
	}
	return all
}

// parts are what a rank of a stage needs.
func (s setup) parts(stage int) Parts {
	held := s.heldBy(stage)
	trained := portion(held, s.Trainable, s.Model.Parameters)
	p := Parts{
		Parameters:  cost(held-trained, dtype(s.DType).Milli) + cost(trained, s.trainedDType().Milli),
		Gradients:   cost(trained, s.gradientMilli()),
		Optimizer:   cost(trained, s.optimizerMilli()),
		Activations: s.activations(stage),
		Step:        cost(trained, s.stepMilli()),
		Context:     contextSize,
	}
	p.Gathered = s.gathered(held, trained)
	s.shareOut(&p)
	communicators := uint64(len(s.communicators(s.groups)))
	p.NCCLLeast, p.NCCLMost = communicators*s.bufferMin, communicators*s.bufferMax
	return p
}

// shareOut leaves a rank its part of what the strategy shards, on the GPU or on the host.
func (s setup) shareOut(p *Parts) {
	if s.stage() > 0 {
		p.Step = ceil(p.Step, s.Shard)
	}
	for _, part := range []*uint64{&p.Optimizer, &p.Gradients, &p.Parameters}[:s.stage()] {
		*part = ceil(*part, s.Shard)
		if s.CPUOffload {
			p.Host += *part
			*part = 0
		}
	}
}

// heldBy are the parameters of a stage that a rank of it computes with.
func (s setup) heldBy(stage int) uint64 {
	if s.Pipeline == 1 {
		return ceil(s.Model.Parameters, s.Tensor)
	}
	n := ceil(s.Model.Parameters-s.FirstStage-s.LastStage, s.Pipeline)
	if stage == 0 {
		n += s.FirstStage
	}
	if stage == s.Pipeline-1 {
		n += s.LastStage
	}
	return ceil(n, s.Tensor)
}

// parted reports whether a rank has less than all that it computes with.
func (s setup) parted() bool { return s.stage() > 0 && s.Shard > 1 || s.offloads() }

// gathered is what communication holds beside the rest. FSDP has one unit in use and the next one on its way, and the
// gradients of one before they are reduced. They are gone before the optimizer's step, and count there too: their
// blocks stay in the allocator's cache.
func (s setup) gathered(held, trained uint64) uint64 {
	gradients := cost(trained, s.gradientMilli())
	switch {
	case s.copies() && (s.Data == 1 || s.BucketView):
		return 0
	case s.copies():
		return gradients
	case !s.parted():
		return 0
	case s.stage() < 3:
		return min(gradients, cost(zeroBucket, s.gradientMilli()))
	}
	unit := min(ceil(s.Model.Parameters, usualUnits(s.Model.Parameters)*s.Tensor), held)
	if s.Unit > 0 {
		unit = ceil(s.Unit, s.Tensor)
	}
	return 2*cost(unit, dtype(s.DType).Milli) + cost(portion(unit, s.Trainable, s.Model.Parameters), s.gradientMilli())
}

// activations are those that a stage holds at most.
func (s setup) activations(stage int) uint64 {
	one := s.cut(s.Activations) / uint64(s.Pipeline)
	if s.Pipeline > 1 && stage == s.Pipeline-1 {
		one += s.LastStageActivations / uint64(s.Tensor)
	}
	return one / uint64(s.Context) * uint64(s.inFlight(stage))
}

// cut is the part of activations that is left to a rank of a tensor group. Of the 34 bytes that a layer keeps for an
// element of its input, 10 stay whole unless the sequence is split too (Korthikanti et al., equations 2 and 4).
func (s setup) cut(bytes uint64) uint64 {
	t := uint64(s.Tensor)
	if t == 1 || s.SequenceParallel {
		return bytes / t
	}
	return bytes/34*10 + bytes/34*24/t
}

// inFlight is how many micro-batches a stage holds.
func (s setup) inFlight(stage int) int {
	switch {
	case s.Pipeline == 1:
		return 1
	case s.Schedule == GPipe && s.MicroBatches > 0:
		return s.MicroBatches
	case s.Schedule == GPipe:
		return s.Pipeline
	case s.MicroBatches > 0:
		return min(s.MicroBatches, s.Pipeline-stage)
	}
	return s.Pipeline - stage
}

// cost is what so many numbers take, in bytes.
func cost(n, milliBytes uint64) uint64 { return (n*milliBytes + milli - 1) / milli }

func ceil(n uint64, parts int) uint64 { return (n + uint64(parts) - 1) / uint64(parts) }

// portion is n times part of whole, without what would overflow.
func portion(n, part, whole uint64) uint64 {
	switch {
	case part == whole:
		return n
	case whole == 0:
		return 0
	}
	return mulDiv(n, part, whole)
}
