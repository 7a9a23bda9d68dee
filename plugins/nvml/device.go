//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// device is one GPU while it is read.
type device struct {
	nvml.Device // nil: there is no handle
	probe       *probe
	card        gpu.GPU
	ports       []port // of NVLink
}

// open gets the handle of a GPU by nvmlDeviceGetHandleByIndex, whose indices are those of
// nvidia-smi, and reads what it is.
func (r *probe) open(index int) *device {
	d := &device{probe: r, card: gpu.GPU{Index: index, State: gpu.StateOK, Why: map[string]string{}}}
	handle, ret := r.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		d.unopened(ret)
		return d
	}
	d.Device = handle
	if uuid := ask(d, "uuid", "nvmlDeviceGetUUID", d.GetUUID); uuid != nil {
		d.card.UUID = *uuid
	}
	if name := ask(d, "name", "nvmlDeviceGetName", d.GetName); name != nil {
		d.card.Name = *name
	}
	if pci := ask(d, "pci", "nvmlDeviceGetPciInfo", d.GetPciInfo); pci != nil {
		d.card.PCI = address(*pci)
	}
	return d
}

// unopened gives a state to a GPU without a handle. "Unknown Error" instead of one is what
// a GPU that has fallen off the bus amounts to (Xid 79).
func (d *device) unopened(ret nvml.Return) {
	state := gpu.StateUnknown
	switch ret {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNKNOWN:
		state = gpu.StateLost
	case nvml.ERROR_RESET_REQUIRED:
		state = gpu.StateNeedsReset
	}
	d.state(state, d.probe.reason("nvmlDeviceGetHandleByIndex", ret))
}

// state sets a state with its reason; that a GPU is lost outweighs all.
func (d *device) state(state, reason string) {
	if d.card.State != gpu.StateLost {
		d.card.State = state
		d.card.Why["state"] = reason
	}
}

// ask is get for a value of the GPU.
func ask[T any](d *device, name, symbol string, call func() (T, nvml.Return)) *T {
	last := nvml.ERROR_FUNCTION_NOT_FOUND
	value := get(d.probe, d.card.Why, name, symbol, func() (T, nvml.Return) {
		value, ret := call()
		last = ret
		return value, ret
	})
	d.failed(name, last)
	return value
}

// failed takes from a return code what it says of the GPU as a whole. "Unknown error" is
// one of its state only where every GPU tells a value.
func (d *device) failed(name string, ret nvml.Return) {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		d.state(gpu.StateLost, d.probe.reason("", ret))
	case nvml.ERROR_RESET_REQUIRED:
		d.state(gpu.StateNeedsReset, d.probe.reason("", ret))
	case nvml.ERROR_UNKNOWN:
		if (name == "uuid" || name == "memory.total") && d.card.State == gpu.StateOK {
			d.state(gpu.StateUnknown, d.probe.reason("", ret))
		}
	}
}

// alive tells whether it makes sense to ask on. A lost GPU answers nothing, and may take
// long for each.
func (d *device) alive() bool { return d.Device != nil && d.card.State != gpu.StateLost }

// read reads all but what the GPU is, until it is seen to be lost.
func (d *device) read() {
	for _, part := range []func(*device){
		(*device).readMemory, (*device).readModes, (*device).readMIG, (*device).readProcesses, (*device).readPCIe,
		(*device).readECC, (*device).readRemapped, (*device).readRetired, (*device).readThrottled,
		(*device).readRecovery, (*device).readFabric, (*device).readNVLinks,
	} {
		if !d.alive() {
			return
		}
		part(d)
	}
}

// finish gives a reason to all that is still nil without one, and takes away the reasons
// of values that are there by another way.
func (d *device) finish() {
	if d.card.UUID != "" {
		delete(d.card.Why, "uuid")
	}
	if d.card.PCI != "" {
		delete(d.card.Why, "pci")
	}
	if d.card.Name != "" {
		delete(d.card.Why, "name")
	}
	reason := d.card.Why["state"]
	if reason == "" {
		reason = "NVML does not tell it"
	}
	d.card.Explain(reason)
}
