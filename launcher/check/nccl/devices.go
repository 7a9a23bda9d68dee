package nccl

import (
	"fmt"
	"strconv"
	"strings"
)

// multiRank lets ranks share a GPU.
const multiRank = "NCCL_MULTI_RANK_GPU_ENABLE"

var (
	// sharedSince is the release from which on ranks may share a GPU where NCCL_MULTI_RANK_GPU_ENABLE=1 says so.
	// Before, NCCL refuses ("Duplicate GPU detected"): it tells GPUs apart by PCI address, so that MPS does not help
	// (nccl issues 103, 231, 418).
	sharedSince = Release{2, 30, 0}
	// migSince is the release from which on NCCL takes MIG devices, several of one GPU too, as an experiment, and with
	// drivers of CUDA 13.0 and newer (user guide 2.31, Using MIG instances). From 2.5 on older ones take two of one GPU
	// for one GPU, as both have its PCI address (nccl issue 1716), and the MIG guide says of them that NCCL is not
	// supported. Drivers since R570 let devices of one GPU reach each other directly, those of different GPUs never
	// (MIG guide, Application Considerations).
	migSince = Release{2, 31, 0}
)

const migCUDA = 13 // major version of the driver's CUDA

// Verdict is what NCCL does for ranks by the devices that they have.
type Verdict int

const (
	Works       Verdict = iota // nothing is in its way
	Unsupported                // it may work, and nobody stands for that
	Unknown                    // it hangs on the release, which is not known, whether it refuses
	Refuses                    // it does not start
)

// OnDevices tells what NCCL does for the ranks of a host by their devices, which they may share, or which may be MIG
// devices: why in words that a host's name can stand before, and what to do where it does not take them, both without a
// full stop. It is one thing of all that may be in its way. multi is set where the ranks have
// NCCL_MULTI_RANK_GPU_ENABLE=1.
func OnDevices(h Host, multi bool) (verdict Verdict, why, fix string) {
	if h.Sharing {
		if verdict, why, fix = onShared(h, multi); verdict != Works {
			return verdict, why, fix
		}
	}
	verdict, why = onMIG(h, multi)
	fix = writeGloo + ", or have NCCL 2.31 and a driver with CUDA 13.0"
	if h.OneGPU {
		fix += ", or take one MIG device per GPU"
	}
	return verdict, why, fix
}

const writeGloo = `write ranks { backend = "gloo" } ("none" for ranks that do not talk to each other)`

// onShared tells what NCCL does for ranks that share a device. Where that is a MIG device, NCCL must take those too.
func onShared(h Host, multi bool) (verdict Verdict, why, fix string) {
	since, device, version := sharedSince, h.deviceWord(), h.Version.NCCL
	if h.Parts > 0 {
		since = migSince
	}
	why = fmt.Sprintf("NCCL takes one rank of a job per %s, with MPS too (\"Duplicate GPU detected\"): ", device)
	fix = fmt.Sprintf("give each rank a %s of its own, or %s", device, writeGloo)
	switch {
	case !version.known():
		return Unknown, why + fmt.Sprintf("before %s that cannot be changed, and which release is there is not known", since), fix
	case version.before(since):
		return Refuses, why + fmt.Sprintf("before %s that cannot be changed, and there is %s", since, version), fix
	case h.Parts > 0 && olderCUDA(h.CUDA):
		return Refuses, why + fmt.Sprintf("for more it needs a driver with CUDA %d.0, and there is %s", migCUDA, h.CUDA), fix
	case !multi && !h.OneGPU: // for which it is set: see Rules
		return Refuses, why + fmt.Sprintf("%s allows more on demand", version), fix + `, or set env = { NCCL_MULTI_RANK_GPU_ENABLE = "1" }, which is experimental`
	}
	return Works, "", ""
}

// deviceWord is what ranks have.
func (h Host) deviceWord() string {
	if h.Parts > 0 {
		return "MIG device"
	}
	return "GPU"
}

// onMIG tells what NCCL does for ranks on MIG devices of their own.
func onMIG(h Host, multi bool) (verdict Verdict, why string) {
	version, missing := h.Version.NCCL, ""
	switch {
	case h.Parts == 0 || h.Ranks < 2:
		return Works, ""
	case !version.known():
		missing = "which release is there is not known"
	case version.before(migSince):
		missing = "there is " + version.String()
	case olderCUDA(h.CUDA):
		missing = fmt.Sprintf("it needs a driver with CUDA %d.0, and there is %s", migCUDA, h.CUDA)
	default:
		return Works, fmt.Sprintf("NCCL %s takes MIG devices (experimental): those of one GPU reach each other directly, those of different GPUs through the host's memory only, which is several times slower", version)
	}
	if !h.OneGPU {
		return Unsupported, "NCCL supports MIG devices since 2.31 only: " + missing
	}
	why = "NCCL takes MIG devices of one GPU since 2.31 only, before it refuses them (\"Duplicate GPU detected\"): " + missing
	switch {
	case !version.known():
		return Unknown, why
	case multi && version.since(sharedSince) && version.before(migSince):
		return Unsupported, why + ", which NCCL_MULTI_RANK_GPU_ENABLE=1 keeps from refusing, not more (two devices at most were tried)"
	}
	return Refuses, why
}

// olderCUDA reports whether a driver is known to be too old.
func olderCUDA(version string) bool {
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	return err == nil && major < migCUDA
}

// devices tells where NCCL does not take the ranks' devices, or does not support them.
func (a *advice) devices() []Finding {
	multi := a.is(multiRank, 1)
	verdict, why, fix := OnDevices(a.Host, multi)
	f := Finding{Code: CodeSharedGPU, Host: a.Name, Source: a.vars[multiRank].Source, Message: why, Fix: fix}
	switch {
	case verdict == Works, verdict == Unknown && a.Sharing && multi: // whoever has set that knows of it
		return nil
	case verdict == Unsupported:
		f.Code = CodeMIG
	case a.Sharing:
		f.Message = "ranks share a " + a.deviceWord() + ", and " + why
	}
	return []Finding{f}
}
