//go:build linux && cgo

package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// readMIG reads nvmlDeviceGetMigMode and the MIG devices.
func (d *device) readMIG() {
	mig, why := &d.card.MIG, d.card.Why
	pending := 0
	current := ask(d, "mig.enabled", "nvmlDeviceGetMigMode", func() (mode int, ret nvml.Return) {
		mode, pending, ret = d.GetMigMode()
		return mode, ret
	})
	none := d.probe.last == nvml.ERROR_NOT_SUPPORTED
	if current != nil {
		mig.Enabled, mig.Pending = new(*current == nvml.DEVICE_MIG_ENABLE), new(pending == nvml.DEVICE_MIG_ENABLE)
	} else {
		why["mig.pending"] = why["mig.enabled"]
	}
	switch {
	case gpu.IsTrue(mig.Enabled):
		mig.Instances = d.instances()
	case mig.Enabled != nil || none:
		mig.Instances = []gpu.MIGInstance{}
	default:
		why["mig.instances"] = why["mig.enabled"]
	}
}

// instances reads the MIG devices. Indices may be free.
func (d *device) instances() []gpu.MIGInstance {
	const symbol = "nvmlDeviceGetMigDeviceHandleByIndex"
	count := ask(d, "mig.instances", "nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount)
	if count == nil || !d.probe.has(symbol) {
		return nil
	}
	found := []gpu.MIGInstance{}
	for i := range *count {
		handle, ret := d.GetMigDeviceHandleByIndex(i)
		switch ret {
		case nvml.SUCCESS:
			found = append(found, d.instance(i, handle))
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
		default:
			d.failed("mig.instances", ret)
			d.probe.note("GPU %d: MIG device %d: %s", d.card.Index, i, d.probe.reason(symbol, ret))
		}
	}
	return found
}

// instance reads one MIG device: what it does not tell is nil, as in nvidia-smi.
func (d *device) instance(index int, handle nvml.Device) gpu.MIGInstance {
	r, found, why := d.probe, gpu.MIGInstance{Index: index}, map[string]string{}
	if found.UUID = orEmpty(get(r, why, "uuid", "nvmlDeviceGetUUID", handle.GetUUID)); found.UUID == "" {
		d.card.Why["mig.instances.uuid"] = why["uuid"]
	}
	found.GI = get(r, why, "", "nvmlDeviceGetGpuInstanceId", handle.GetGpuInstanceId)
	found.CI = get(r, why, "", "nvmlDeviceGetComputeInstanceId", handle.GetComputeInstanceId)
	if memory := get(r, why, "", "nvmlDeviceGetMemoryInfo_v2", handle.GetMemoryInfo_v2); memory != nil {
		found.Memory, found.Used = &memory.Total, &memory.Used
	} else if memory := get(r, why, "", "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo); memory != nil {
		found.Memory, found.Used = &memory.Total, &memory.Used
	}
	found.Profile = d.profile(handle)
	return found
}

// profile is the last word of a MIG device's name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
func (d *device) profile(handle nvml.Device) string {
	name := orEmpty(get(d.probe, map[string]string{}, "", "nvmlDeviceGetName", handle.GetName))
	_, profile, _ := strings.Cut(name, " MIG ")
	return strings.TrimSpace(profile)
}
