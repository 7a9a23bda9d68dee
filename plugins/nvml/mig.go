//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// readMIG reads nvmlDeviceGetMigMode and the MIG devices. A GPU without MIG has none; a
// driver before 450 does not know.
func (d *device) readMIG() {
	mig, why := &d.card.MIG, d.card.Why
	pending, last := 0, nvml.ERROR_FUNCTION_NOT_FOUND
	current := ask(d, "mig.enabled", "nvmlDeviceGetMigMode", func() (mode int, ret nvml.Return) {
		mode, pending, ret = d.GetMigMode()
		last = ret
		return mode, ret
	})
	if current != nil {
		mig.Enabled, mig.Pending = new(*current == nvml.DEVICE_MIG_ENABLE), new(pending == nvml.DEVICE_MIG_ENABLE)
	} else {
		why["mig.pending"] = why["mig.enabled"]
	}
	switch {
	case mig.Enabled != nil && *mig.Enabled:
		mig.Instances = d.instances()
	case mig.Enabled != nil || last == nvml.ERROR_NOT_SUPPORTED:
		mig.Instances = []gpu.MIGInstance{}
	default:
		why["mig.instances"] = why["mig.enabled"]
	}
}

// instances reads the MIG devices. Indices may be free.
func (d *device) instances() []gpu.MIGInstance {
	const symbol = "nvmlDeviceGetMigDeviceHandleByIndex"
	most := ask(d, "mig.instances", "nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount)
	if most == nil || !d.probe.has(symbol) {
		return nil
	}
	found := []gpu.MIGInstance{}
	for i := range *most {
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
	if uuid := get(r, why, "uuid", "nvmlDeviceGetUUID", handle.GetUUID); uuid != nil {
		found.UUID = *uuid
	} else {
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

// profile is the last word of a MIG device's name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb". The
// first drivers with MIG gave it the name of its GPU; its size then tells.
func (d *device) profile(handle nvml.Device) string {
	why := map[string]string{}
	if name := get(d.probe, why, "", "nvmlDeviceGetName", handle.GetName); name != nil {
		if _, profile, is := strings.Cut(*name, " MIG "); is {
			return strings.TrimSpace(profile)
		}
	}
	size := get(d.probe, why, "", "nvmlDeviceGetAttributes_v2", handle.GetAttributes)
	if size == nil || d.card.Memory.Total == nil {
		return ""
	}
	return profileOf(*size, *d.card.Memory.Total)
}

// profileOf makes the name of a profile, such as 1c.3g.40gb: compute slices where they are
// not all, slices, and memory, which comes in eighths of the GPU's.
func profileOf(size nvml.DeviceAttributes, total uint64) string {
	eighths := math.Round(float64(size.MemorySizeMB<<20) / float64(total) * 8)
	gigabytes := math.Round(eighths / 8 * math.Ceil(float64(total)/(1<<30)))
	name := fmt.Sprintf("%dg.%.0fgb", size.GpuInstanceSliceCount, gigabytes)
	if size.ComputeInstanceSliceCount != size.GpuInstanceSliceCount {
		name = fmt.Sprintf("%dc.%s", size.ComputeInstanceSliceCount, name)
	}
	return name
}
