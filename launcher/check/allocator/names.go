package allocator

// The variables that the allocator's settings can stand in.
const (
	CUDAName    = "PYTORCH_CUDA_ALLOC_CONF"
	HIPName     = "PYTORCH_HIP_ALLOC_CONF"
	GeneralName = "PYTORCH_ALLOC_CONF"
)

// Names are all of them, in the order in which torch looks: the first that is set, be it to
// nothing, is read and the others are not. (The documentation calls PYTORCH_CUDA_ALLOC_CONF
// an alias of PYTORCH_ALLOC_CONF; where both are set, 2.10 to 2.15 take the alias.)
var Names = []string{CUDAName, HIPName, GeneralName}

// read are the names that this version looks at for its GPUs' memory. PYTORCH_ALLOC_CONF is
// in 2.9 already, but what serves CUDA there reads the old name only.
func (v version) read() []string {
	switch {
	case !v.known() || v.has(readsGeneral):
		return Names
	case v.rocm && v.has(torch(2, 8)):
		return []string{CUDAName, HIPName}
	case v.rocm:
		return []string{HIPName, CUDAName}
	}
	return []string{CUDAName}
}

// written are the names that settings are written under. Where several are read they are
// all written alike, so that nothing hangs on which of them wins.
func (v version) written() []string {
	switch {
	case v.rocm:
		return v.read()
	case !v.known() || v.has(readsGeneral):
		return []string{CUDAName, GeneralName}
	}
	return []string{CUDAName}
}
