package nccl

import (
	"fmt"
	"strconv"
	"strings"
)

// NCCL takes MIG devices, several of one GPU too, since 2.31, as an experiment, and with
// drivers of CUDA 13.0 and newer (user guide 2.31, Using MIG instances). From 2.5 on older ones
// take two of one GPU for one GPU, as both have its PCI address (nccl issue 1716), and the MIG
// guide says of them that NCCL is not supported. Drivers since R570 let devices of one GPU reach
// each other directly, those of different GPUs never (MIG guide, Application Considerations).
var migSince = at(31)

const migCUDA = 13 // major version of the driver's CUDA

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

// migFix is what to do where NCCL does not take MIG devices.
func migFix(h Host) string {
	fix := writeGloo + ", or have NCCL 2.31 and a driver with CUDA 13.0"
	if h.OneGPU {
		fix += ", or take one MIG device per GPU"
	}
	return fix
}

// notOnMIG: what a release that takes MIG devices does not do with them.
func (a *advice) notOnMIG() {
	if a.host.Parts == 0 || a.host.Ranks < 2 {
		return
	}
	if n, set := a.number("NCCL_MNNVL_ENABLE"); set && n != 0 {
		a.add("NCCL_MNNVL_ENABLE", CodeMIG, "take it out", "ranks there are on MIG devices, which have no NVLink, and NCCL is to be told so by 0")
	}
	if n, set := a.number("NCCL_NVLS_ENABLE"); set && n == 1 && a.host.OneGPU {
		a.add("NCCL_NVLS_ENABLE", CodeMIG, "take it out, or write 0 or 2", "it demands NVLink SHARP, which MIG devices have not: NCCL does not start")
	}
	if n, set := a.number("NCCL_MULTI_RANK_GPU_ENABLE"); set && n != 1 && a.host.OneGPU {
		a.add("NCCL_MULTI_RANK_GPU_ENABLE", CodeMIG, "take it out: it is set to 1 then", "NCCL takes MIG devices of one GPU for one, and refuses them without it")
	}
}
