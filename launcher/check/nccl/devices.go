package nccl

import "fmt"

// sharedSince is the release from which on ranks may share a GPU where
// NCCL_MULTI_RANK_GPU_ENABLE=1 says so. Before, NCCL refuses ("Duplicate GPU detected"): it
// tells GPUs apart by PCI address, so that MPS does not help (nccl issues 103, 231, 418).
var sharedSince = at(30)

// Verdict is what NCCL does for ranks by the devices that they have.
type Verdict int

const (
	Works       Verdict = iota // nothing is in its way
	Unsupported                // it may work, and nobody stands for that
	Unknown                    // it hangs on the release, which is not known, whether it refuses
	Refuses                    // it does not start
)

// OnDevices tells what NCCL does for the ranks of a host by their devices, which they may
// share, or which may be MIG devices: why in words that a host's name can stand before, and
// what to do where it does not take them, both without a full stop. It is one thing of all
// that may be in its way. multi is set where the ranks have NCCL_MULTI_RANK_GPU_ENABLE=1.
func OnDevices(h Host, multi bool) (verdict Verdict, why, fix string) {
	if h.Sharing {
		if verdict, why, fix = onShared(h, multi); verdict != Works {
			return verdict, why, fix
		}
	}
	verdict, why = onMIG(h, multi)
	return verdict, why, migFix(h)
}

const writeGloo = `write ranks { backend = "gloo" } ("none" for ranks that do not talk to each other)`

// onShared tells what NCCL does for ranks that share a device. Where that is a MIG device,
// NCCL must take those too.
func onShared(h Host, multi bool) (verdict Verdict, why, fix string) {
	since, device, version := sharedSince, h.deviceWord(), h.Version.NCCL
	if h.Parts > 0 {
		since = migSince
	}
	multi = multi || h.OneGPU // for which it is set: see Rules
	why = fmt.Sprintf("NCCL takes one rank of a job per %s, with MPS too (\"Duplicate GPU detected\"): ", device)
	fix = fmt.Sprintf("give each rank a %s of its own, or %s", device, writeGloo)
	switch {
	case !version.known():
		return Unknown, why + fmt.Sprintf("before %s that cannot be changed, and which release is there is not known", since), fix
	case version.before(since):
		return Refuses, why + fmt.Sprintf("before %s that cannot be changed, and there is %s", since, version), fix
	case h.Parts > 0 && olderCUDA(h.CUDA):
		return Refuses, why + fmt.Sprintf("for more it needs a driver with CUDA %d.0, and there is %s", migCUDA, h.CUDA), fix
	case !multi:
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

// devices tells where NCCL does not take the ranks' devices, or does not support them.
func (a *advice) devices() {
	const variable = "NCCL_MULTI_RANK_GPU_ENABLE"
	multi, _ := a.number(variable)
	verdict, why, fix := OnDevices(a.host, multi == 1)
	f := Finding{Code: CodeSharedGPU, Host: a.host.Name, Source: a.vars[variable].Source, Message: why, Fix: fix}
	switch {
	case verdict == Works:
		a.notOnMIG()
		return
	case verdict == Unknown && a.host.Sharing && multi == 1:
		return // whoever has set that knows of it
	case verdict == Unsupported:
		f.Code = CodeMIG
	case a.host.Sharing:
		f.Message = "ranks share a " + a.host.deviceWord() + ", and " + why
	}
	a.findings = append(a.findings, f)
}
