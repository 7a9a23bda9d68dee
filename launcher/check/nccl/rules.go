package nccl

// Rule is a case that is known to go wrong, in which muster sets a variable that nobody
// else has set.
type Rule struct {
	When   func(Host) bool
	Name   string
	Value  string
	Why    string // in words, without a full stop
	Source string // where it is written
}

// Rules are few: each has a source, and what is only a custom is not here. Where GPUs
// cannot reach each other NCCL sees it itself, and what a virtual machine or PCIe's access
// control does to direct access cannot be seen from the host's facts.
var Rules = []Rule{
	{
		When: func(h Host) bool {
			return h.Container && h.Version.NCCL.since(at(24)) && h.Version.NCCL.before(at(26, 5))
		},
		Name:   "NCCL_CUMEM_HOST_ENABLE",
		Value:  "0",
		Why:    "in containers that may not use NUMA calls, NCCL from 2.24 until 2.26.5 fails with \"unhandled cuda error\" when it takes host memory by cuMem",
		Source: "NCCL 2.26.5 has a fallback for it; user guide, NCCL_CUMEM_HOST_ENABLE",
	},
	{
		When:   func(h Host) bool { return h.OneGPU && h.Ranks > 1 && h.Version.NCCL.since(migSince) },
		Name:   "NCCL_MULTI_RANK_GPU_ENABLE",
		Value:  "1",
		Why:    "NCCL takes MIG devices of one GPU for one, and refuses them without it",
		Source: "nccl issue 1716, of 2.31.2; the user guide says otherwise",
	},
	{
		When:   func(h Host) bool { return h.Parts > 0 && h.Fabric && h.Ranks > 1 && h.Version.NCCL.since(migSince) },
		Name:   "NCCL_MNNVL_ENABLE",
		Value:  "0",
		Why:    "MIG devices have no direct access by NVLink, which NCCL would try over a fabric of NVSwitches",
		Source: "user guide, Using MIG instances (2.31)",
	},
}

// Derived are the variables that the rules set on a host.
func Derived(h Host) []Var {
	var vars []Var
	for _, rule := range Rules {
		if rule.When(h) {
			vars = append(vars, Var{Name: rule.Name, Value: rule.Value, Source: rule.Why, Note: rule.Source})
		}
	}
	return vars
}
