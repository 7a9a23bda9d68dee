//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/muster-dev/muster/plugins/gpu"
)

// readECC reads whether ECC is on, and the counts of uncorrected errors.
func (d *device) readECC() {
	ecc := &d.card.ECC
	ecc.Enabled = enabled(ask(d, "ecc.enabled", "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := d.GetEccMode()
		return current, ret
	}))
	ecc.Volatile = uncorrected(d, "ecc.volatile_uncorrected", nvml.VOLATILE_ECC)
	ecc.Aggregate = uncorrected(d, "ecc.aggregate_uncorrected", nvml.AGGREGATE_ECC)
	ecc.SRAMVolatile = sramUncorrected(d)
}

// uncorrected is the sum over all memories.
func uncorrected(d *device, name string, since nvml.EccCounterType) *uint64 {
	return ask(d, name, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, since)
	})
}

// sramUncorrected is told in two kinds since driver 550 (nvmlDeviceGetSramEccErrorStatus),
// and in one before.
func sramUncorrected(d *device) *uint64 {
	const name = "ecc.sram_volatile_uncorrected"
	if status := ask(d, name, "nvmlDeviceGetSramEccErrorStatus", d.GetSramEccErrorStatus); status != nil {
		return new(status.VolatileUncParity + status.VolatileUncSecDed)
	}
	if !d.alive() {
		return nil
	}
	return ask(d, name, "nvmlDeviceGetMemoryErrorCounter", func() (uint64, nvml.Return) {
		return d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_SRAM)
	})
}

func (d *device) readRemapped() {
	rows := ask(d, "remapped.correctable", "nvmlDeviceGetRemappedRows", func() (r gpu.Remapped, ret nvml.Return) {
		correctable, uncorrectable, pending, failed, ret := d.GetRemappedRows()
		r = gpu.Remapped{Correctable: &correctable, Uncorrectable: &uncorrectable, Pending: &pending, Failed: &failed}
		return r, ret
	})
	if rows != nil {
		d.card.Remapped = *rows
		return
	}
	for _, name := range []string{"remapped.uncorrectable", "remapped.pending", "remapped.failed"} {
		d.card.Why[name] = d.card.Why["remapped.correctable"]
	}
}

func (d *device) readRetired() {
	retired := &d.card.Retired
	retired.SingleBit = retiredPages(d, "retired.single_bit", nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
	retired.DoubleBit = retiredPages(d, "retired.double_bit", nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	retired.Pending = enabled(ask(d, "retired.pending", "nvmlDeviceGetRetiredPagesPendingStatus", d.GetRetiredPagesPendingStatus))
}

func retiredPages(d *device, name string, cause nvml.PageRetirementCause) *int {
	return ask(d, name, "nvmlDeviceGetRetiredPages", func() (int, nvml.Return) {
		pages, ret := d.GetRetiredPages(cause)
		return len(pages), ret
	})
}

// recoveries are the names of nvmlDeviceGpuRecoveryAction_t.
var recoveries = map[nvml.DeviceGpuRecoveryAction]string{
	nvml.GPU_RECOVERY_ACTION_NONE:                "none",
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:           "gpu_reset",
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:         "node_reboot",
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:           "drain_p2p",
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:     "drain_and_reset",
	nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "recover_imex_domain",
	nvml.GPU_RECOVERY_ACTION_BUS_RESET:           "bus_reset",
	nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:       "system_reboot",
}

// readRecovery reads NVML_FI_DEV_GET_GPU_RECOVERY_ACTION. Drivers 535 to 565 have instead
// NVML_FI_DEV_RESET_STATUS and NVML_FI_DEV_DRAIN_AND_RESET_STATUS; that these do not ask
// for a reset does not mean that there is nothing to do.
func (d *device) readRecovery() {
	const name = "recovery"
	fields := []nvml.FieldValue{
		field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION), field(nvml.FI_DEV_RESET_STATUS),
		field(nvml.FI_DEV_DRAIN_AND_RESET_STATUS),
	}
	told := ask(d, name, "nvmlDeviceGetFieldValues", func() ([]nvml.FieldValue, nvml.Return) {
		return fields, d.GetFieldValues(fields)
	})
	if told == nil {
		return
	}
	for i := range fields {
		d.failed(name, nvml.Return(fields[i].NvmlReturn))
	}
	action, reset, drain := number(fields[0]), number(fields[1]), number(fields[2])
	switch {
	case action != nil:
		if d.card.Recovery = new(recoveries[nvml.DeviceGpuRecoveryAction(*action)]); *d.card.Recovery == "" {
			d.card.Recovery = new(fmt.Sprintf("action_%d", *action)) // newer than this program
		}
	case reset != nil && *reset != 0:
		d.card.Recovery = new("gpu_reset")
	case drain != nil && *drain != 0:
		d.card.Recovery = new("drain_and_reset")
	default:
		d.card.Why[name] = untold(d, nvml.Return(fields[0].NvmlReturn))
	}
}

// untold says why there is no recovery action: a driver that does not know the field calls
// it an invalid argument, or not supported.
func untold(d *device, ret nvml.Return) string {
	if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_SUPPORTED {
		return fmt.Sprintf("driver %s does not tell it (NVML: %q)", d.probe.driver, ret.Error())
	}
	return d.probe.reason("nvmlDeviceGetFieldValues", ret)
}

// field asks for a field. A driver that leaves it out has not supported it.
func field(id uint32) nvml.FieldValue {
	return nvml.FieldValue{FieldId: id, NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED)}
}

// number is an nvmlValue_t of any type, nil where it could not be read.
func number(field nvml.FieldValue) *uint64 {
	if nvml.Return(field.NvmlReturn) != nvml.SUCCESS {
		return nil
	}
	value := binary.NativeEndian.Uint64(field.Value[:])
	switch nvml.ValueType(field.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		value = uint64(math.Float64frombits(value))
	case nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_SIGNED_INT:
		value = uint64(binary.NativeEndian.Uint32(field.Value[:]))
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		value = uint64(binary.NativeEndian.Uint16(field.Value[:]))
	}
	return &value
}
