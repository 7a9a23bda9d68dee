package gpu

// ID names a device, a GPU or a MIG instance of one, in all the ways that programs do.
type ID struct {
	Index int    `json:"index"` // of the GPU, as nvidia-smi shows it
	UUID  string `json:"uuid"`  // of the MIG instance, where it is one
	PCI   string `json:"pci"`   // of the GPU
}

// ID is the GPU's.
func (g *GPU) ID() ID { return ID{g.Index, g.UUID, g.PCI} }

// InstanceID is that of a MIG instance of the GPU.
func (g *GPU) InstanceID(m MIGInstance) ID { return ID{g.Index, m.UUID, g.PCI} }

// IdleMemory is what may be in use, in bytes, of a GPU on which nobody computes: the driver's
// own, a desktop's, traces of clients.
const IdleMemory = 1 << 30
