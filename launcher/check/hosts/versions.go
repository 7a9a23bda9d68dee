package hosts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

// differing is a value that should be the same on all hosts.
type differing struct {
	what string // "driver", to be followed by a value
	fix  string
	of   map[int]string // by host; hosts that do not tell are not in it
	// release is the severity of values that differ in their first two numbers, and patch where only what follows does.
	release, patch rule.Severity
}

// differ names the hosts that have another value than most; without a majority all of them.
func differ(in *rule.Input, d differing) (found rule.Findings) {
	by := map[string][]int{}
	for _, host := range slices.Sorted(maps.Keys(d.of)) {
		by[d.of[host]] = append(by[d.of[host]], host)
	}
	if len(by) < 2 {
		return nil
	}
	values := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(values, func(a, b string) int { return len(by[b]) - len(by[a]) })
	usual := values[0]
	if len(by[usual]) == len(by[values[1]]) {
		var parts []string
		for _, value := range values {
			parts = append(parts, fmt.Sprintf("%s on %s", value, names(in, by[value])))
		}
		same := !slices.ContainsFunc(values, func(v string) bool { return release2(v) != release2(usual) })
		return in.Find(d.fix, "hosts differ in %s: %s", d.what, strings.Join(parts, "; ")).As(d.release).AsIf(same, d.patch)
	}
	for _, value := range values[1:] {
		hosts := by[value]
		others := fmt.Sprintf("%s have %s", names(in, by[usual]), usual)
		if rule.IsMany(len(by[usual])) {
			others = fmt.Sprintf("%d of %d hosts have %s", len(by[usual]), len(d.of), usual)
		}
		one := in.Hosts[hosts[0]].Find(d.fix, "%s %s, where %s", d.what, value, others)
		if len(hosts) > 1 {
			one = in.Find(d.fix, "%s have %s %s, where %s", names(in, hosts), d.what, value, others)
		}
		found = append(found, one.As(d.release).AsIf(release2(value) == release2(usual), d.patch)...)
	}
	return found
}

// release2 is 2.4 of 2.4.0+cu121.
func release2(version string) string {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func names(in *rule.Input, hosts []int) string {
	all := make([]string, len(hosts))
	for i, host := range hosts {
		all[i] = in.Hosts[host].Name
	}
	return rule.List(all)
}

// each collects a value of every host, without those that do not tell it.
func each(in *rule.Input, value func(h *rule.Host) string) map[int]string {
	all := map[int]string{}
	for i := range in.Hosts {
		if v := value(&in.Hosts[i]); v != "" {
			all[i] = v
		}
	}
	return all
}

// eachDriver is the same of what the drivers of hosts with GPUs tell.
func eachDriver(in *rule.Input, value func(d *gpu.Inventory) *string) map[int]string {
	return each(in, func(h *rule.Host) string {
		if len(h.GPUs) == 0 || value(h.Facts.Devices.Inventory) == nil {
			return ""
		}
		return *value(h.Facts.Devices.Inventory)
	})
}

func driversOf(in *rule.Input) map[int]string {
	return eachDriver(in, func(d *gpu.Inventory) *string { return d.Driver })
}

// Different NCCLs or torches end in hangs and "unhandled system error" (pytorch issue 72768, nccl issue 286), different
// drivers seldom.
const installSame = "install the same everywhere, best from one lock file or image; the odd one is named above"

func drivers(in *rule.Input) rule.Findings {
	return differ(in, differing{"NVIDIA driver", "have the same driver installed everywhere; where the job runs well, check { ignore = [\"driver_differs\"] }", driversOf(in), rule.Warn, rule.Warn})
}

// cudas are compared where the drivers are the same: another driver brings another CUDA.
func cudas(in *rule.Input) rule.Findings {
	different := map[string]bool{}
	for _, v := range driversOf(in) {
		different[v] = true
	}
	if len(different) > 1 {
		return nil
	}
	return differ(in, differing{"CUDA", "the same driver tells different versions: look for compatibility libraries (cuda-compat) in LD_LIBRARY_PATH on one of them",
		eachDriver(in, func(d *gpu.Inventory) *string { return d.CUDA }), rule.Warn, rule.Warn})
}

func torches(in *rule.Input) rule.Findings {
	severity := rule.Fail
	if in.Plan.Backend == "none" {
		severity = rule.Warn
	}
	return differ(in, differing{"torch", installSame, each(in, func(h *rule.Host) string { return h.RunsWith().Torch }), severity, rule.Warn})
}

func nccls(in *rule.Input) rule.Findings {
	release, patch := rule.Fail, rule.Warn
	if in.Plan.Backend != "nccl" {
		release, patch = rule.Info, rule.Info
	}
	return differ(in, differing{"NCCL", installSame, each(in, func(h *rule.Host) string { return h.RunsWith().NCCL }), release, patch})
}

func pythons(in *rule.Input) rule.Findings {
	return differ(in, differing{"Python", installSame, each(in, func(h *rule.Host) string { return h.RunsWith().Version }), rule.Warn, rule.Info})
}

// commandMissing tells of a command that cannot be found, if it was looked for where workers are going to: after setup,
// under their PATH. A job file's python is not what is started.
func commandMissing(h *rule.Host) rule.Findings {
	beforeSetup := h.Software == (facts.Software{}) && h.In.Job.Hosts[h.At].Setup != ""
	missing := h.RunsWith().Missing
	if missing == "" || beforeSetup || h.In.Job.Python != "" || h.Variable("PATH") != "" {
		return nil
	}
	return h.Find("install it there, write its whole path in command, or have setup put it into PATH", "the command cannot be started: %s", missing)
}

// moduleDiffers compares NVIDIA's kernel module with the libraries, which an update of packages leaves apart (NVML's
// LIB_RM_VERSION_MISMATCH).
func moduleDiffers(h *rule.Host) rule.Findings {
	d := h.Facts.Devices
	if d == nil || d.KernelModule == "" || d.Inventory == nil || d.Driver == nil || *d.Driver == d.KernelModule {
		return nil
	}
	return h.Find("reboot it (or reload the module while nobody uses the GPUs)",
		"NVIDIA's kernel module is of version %s, its libraries of %s: the driver was updated and not reloaded", d.KernelModule, *d.Driver)
}

// torchMissing tells of Pythons without torch. That may be right for a job that needs none, but not where other hosts
// have it.
func torchMissing(in *rule.Input) (found rule.Findings) {
	with := slices.IndexFunc(in.Hosts, func(h rule.Host) bool { return h.RunsWith().Torch != "" })
	if in.Plan.Backend == "none" || in.Job.Program == config.ProgramJAX {
		return nil
	}
	const fix = "name the environment that has it: command = [\"venv/bin/python\", ...], or setup = \"source ~/venv/bin/activate\""
	for i := range in.Hosts {
		h := &in.Hosts[i]
		s := h.RunsWith()
		switch {
		case s.Torch != "" || s.Python == "":
		case with < 0:
			return in.Find(fix, "the command runs with %s, which has no torch (%s)", s.Python, s.Why)
		default:
			found = append(found, h.Find(fix, "the command runs with %s, which has no torch, where %s has %s",
				s.Python, in.Hosts[with].Name, in.Hosts[with].RunsWith().Torch).As(rule.Warn)...)
		}
	}
	return found
}

// sharedGPUs tells of ranks whose devices NCCL does not take: they share some, or have MIG devices (see
// nccl.OnDevices).
func sharedGPUs(h *rule.Host) rule.Findings {
	if h.In.Plan.Backend != "nccl" {
		return nil
	}
	var found plan.Meeting
	for i := range h.In.Hosts {
		found.Software = append(found.Software, h.In.Hosts[i].RunsWith())
	}
	verdict, why, fix := environ.OnDevices(h.In.Plan, h.At, found)
	if verdict != nccl.Unknown && verdict != nccl.Refuses {
		return nil
	}
	where := rule.Finding{Host: h.Name, Code: codes.NCCLSharedGPU}
	if a, b, shared := twoOnOne(h); shared {
		where.GPU = &h.In.Plan.Ranks[a].Device.Index
		why = fmt.Sprintf("ranks %d and %d are on it, and %s", a, b, why)
	}
	unsure := h.RunsWith().NCCL == "" && h.In.Job.Backend != "nccl" // nobody has asked for NCCL
	return rule.Find(where, fix, "%s", why).AsIf(unsure, rule.Warn)
}

// twoOnOne finds two ranks of a host on one device.
func twoOnOne(h *rule.Host) (a, b int, shared bool) {
	first := map[string]int{}
	for _, r := range h.In.Plan.Ranks[h.Part.FirstRank : h.Part.FirstRank+h.Part.Ranks] {
		if r.Device == nil {
			continue
		}
		key := fmt.Sprintf("%s %d %d", r.Device.PCI, r.Device.Index, r.Device.MIG)
		if a, taken := first[key]; taken {
			return a, r.Rank, true
		}
		first[key] = r.Rank
	}
	return 0, 0, false
}
