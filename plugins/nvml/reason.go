//go:build linux && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// has tells whether the driver's library has a function. To call one that it lacks ends
// the process: the loader looks functions up at their first call.
func (r *probe) has(symbols ...string) bool {
	for _, symbol := range symbols {
		if r.lib.Extensions().LookupSymbol(symbol) == nil {
			return true
		}
	}
	return false
}

// get calls a function of NVML if the library has it; nil, with the reason in why, if it
// tells no value.
func get[T any](r *probe, why map[string]string, name, symbol string, call func() (T, nvml.Return)) *T {
	ret := nvml.ERROR_FUNCTION_NOT_FOUND
	var value T
	if r.has(symbol) {
		value, ret = call()
	}
	r.last = ret
	if ret != nvml.SUCCESS {
		why[name] = r.reason(symbol, ret)
		return nil
	}
	delete(why, name)
	return &value
}

// reason says why there is no value.
func (r *probe) reason(symbol string, ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED:
		return "not supported by this GPU"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Sprintf("driver %s is too old: it has no %s", r.driver, symbol)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Sprintf("this user may not ask for it (NVML: %q)", ret.Error())
	default:
		return fmt.Sprintf("NVML says %q", ret.Error())
	}
}
