//go:build linux && cgo

package nvml

import (
	"cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// device is one GPU while it is read.
type device struct {
	nvml.Device // nil: there is no handle
	probe       *probe
	card        gpu.GPU
	ports       map[port]int // of NVLink
}

// open gets the handle of a GPU by nvmlDeviceGetHandleByIndex, whose indices are those of
// nvidia-smi, and reads what it is.
func (r *probe) open(index int) *device {
	card := gpu.GPU{Index: index, State: gpu.StateOK, Why: map[string]string{}}
	d := &device{probe: r, ports: map[port]int{}, card: card}
	handle, ret := r.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		d.unopened(ret)
		return d
	}
	d.Device = handle
	d.card.UUID = orEmpty(ask(d, "uuid", "nvmlDeviceGetUUID", d.GetUUID))
	d.card.Name = orEmpty(ask(d, "name", "nvmlDeviceGetName", d.GetName))
	if pci := ask(d, "pci", "nvmlDeviceGetPciInfo", d.GetPciInfo); pci != nil {
		d.card.PCI = address(*pci)
	}
	return d
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// states of a GPU that a return code means.
var states = map[nvml.Return]string{
	nvml.ERROR_GPU_IS_LOST: gpu.StateLost, nvml.ERROR_RESET_REQUIRED: gpu.StateNeedsReset,
}

// unopened gives a state to a GPU without a handle; "Unknown Error" is one off the bus (Xid 79).
func (d *device) unopened(ret nvml.Return) {
	state := cmp.Or(states[ret], gpu.StateUnknown)
	if ret == nvml.ERROR_UNKNOWN {
		state = gpu.StateLost
	}
	d.state(state, d.probe.reason("nvmlDeviceGetHandleByIndex", ret))
}

// state sets a state with its reason; that a GPU is lost outweighs all.
func (d *device) state(state, reason string) {
	if d.card.State != gpu.StateLost {
		d.card.State, d.card.Why["state"] = state, reason
	}
}

// ask is get for a value of the GPU.
func ask[T any](d *device, name, symbol string, call func() (T, nvml.Return)) *T {
	value := get(d.probe, d.card.Why, name, symbol, call)
	d.failed(name, d.probe.last)
	return value
}

// failed takes from a return code what it says of the GPU as a whole. "Unknown error" is
// one of its state only where every GPU tells a value.
func (d *device) failed(name string, ret nvml.Return) {
	state := states[ret]
	ever := name == "uuid" || name == "memory.total"
	if ret == nvml.ERROR_UNKNOWN && ever && d.card.State == gpu.StateOK {
		state = gpu.StateUnknown
	}
	if state != "" {
		d.state(state, d.probe.reason("", ret))
	}
}

// alive tells whether it makes sense to ask on. A lost GPU answers nothing, and may take
// long for each.
func (d *device) alive() bool { return d.Device != nil && d.card.State != gpu.StateLost }

// read reads all but what the GPU is, until it is seen to be lost.
func (d *device) read() {
	for _, part := range []func(){
		d.readMemory, d.readModes, d.readMIG, d.readProcesses, d.readPCIe, d.readECC, d.readRemapped, d.readRetired,
		d.readThrottled, d.readRecovery, d.readFabric, d.readNVLinks,
	} {
		if !d.alive() {
			return
		}
		part()
	}
}

// finish gives a reason to all that is still nil without one, and takes away the reasons
// of values that are there by another way.
func (d *device) finish() {
	for name, value := range map[string]string{"uuid": d.card.UUID, "pci": d.card.PCI, "name": d.card.Name} {
		if value != "" {
			delete(d.card.Why, name)
		}
	}
	d.card.Explain(cmp.Or(d.card.Why["state"], "NVML does not tell it"))
}
