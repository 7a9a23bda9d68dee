package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// visible are the devices that the host's own environment lets programs see, and whether that gives their order. A
// variable that is not set allows all.
func visible(s *site) (allowed []device.Device, ordered bool) {
	name := s.variable()
	value, set := s.facts.Environ[name]
	if !set {
		return device.All(s.devices), false
	}
	refuse := func(format string, args ...any) {
		s.refuse("visible_devices", "%s: %s=%s is set there%s", s.host.Name, name, value, fmt.Sprintf(format, args...))
	}
	var byNumber bool
	for i, token := range splitVisible(value) {
		if !isDeviceToken(token) {
			s.note("visible_devices", "%s=%s on %s: CUDA stops at %q, and so does muster", name, value, s.host.Name, token)
			break
		}
		d, err := device.Find(s.devices, token)
		if err != nil {
			refuse(", and %v%s", err, renumberedHint(s))
			return nil, false
		}
		if i == 0 {
			byNumber = device.IsNumber(token)
		}
		if device.IsNumber(token) != byNumber {
			refuse(": numbers and UUIDs are mixed, which CUDA does not take")
		}
		if slices.ContainsFunc(allowed, d.Same) {
			refuse(": %s is named twice, at which CUDA shows no device at all", d)
		}
		if i == 0 && byNumber {
			checkOrder(s, name, value)
		}
		if s.refused() {
			return nil, false
		}
		ordered = ordered || i > 0 && d.ComesBefore(allowed[i-1])
		allowed = append(allowed, d)
	}
	noteVisible(s, name, value, allowed)
	return allowed, ordered
}

func splitVisible(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	tokens := strings.Split(value, ",")
	for i, token := range tokens {
		tokens[i] = strings.TrimSpace(token)
	}
	return tokens
}

// isDeviceToken reports whether CUDA takes an entry for a device; at any other, such as -1, NoDevFiles or a word, it
// stops reading.
func isDeviceToken(token string) bool {
	upper := strings.ToUpper(token)
	return device.IsNumber(token) || strings.HasPrefix(upper, "GPU-") || strings.HasPrefix(upper, "MIG-")
}

// checkOrder looks at what numbers mean: CUDA counts the fastest card first unless its order is set, nvidia-smi by
// PCI address. With cards of one kind both are the same.
func checkOrder(s *site, name, value string) {
	gpus, order := s.gpus(), s.facts.Environ["CUDA_DEVICE_ORDER"]
	mixed := slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.Name != gpus[0].Name })
	switch {
	case !mixed || order == "PCI_BUS_ID":
	case order == "FASTEST_FIRST":
		s.refuse("device_order", "%s: %s=%s is set there with CUDA_DEVICE_ORDER=FASTEST_FIRST, and its cards differ: "+
			"which card a number means only CUDA knows; use UUIDs (nvidia-smi -L) or CUDA_DEVICE_ORDER=PCI_BUS_ID",
			s.host.Name, name, value)
	default:
		s.warn("device_order", "%s: %s=%s is set there and its cards differ: the numbers are taken as those of nvidia-smi, "+
			"though CUDA by itself counts the fastest first; UUIDs (nvidia-smi -L) leave no doubt",
			s.host.Name, name, value)
	}
}

// renumberedHint explains numbers that are out of range where a scheduler's cgroup shows a part of the machine's GPUs
// under numbers of their own.
func renumberedHint(s *site) string {
	for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if global := s.facts.Environ[name]; global != "" {
			return fmt.Sprintf(" (Slurm's %s=%s numbers the whole machine's; within the allocation they begin at 0: "+
				"unset %s there, or give UUIDs)", name, global, CUDAVisible)
		}
	}
	return "; mend it or unset it there"
}

func noteVisible(s *site, name, value string, allowed []device.Device) {
	what := "no GPU may be used"
	if len(allowed) > 0 {
		names := make([]string, len(allowed))
		for i, d := range allowed {
			names[i] = strconv.Itoa(d.Index)
			if d.IsInstance() {
				names[i] = d.String()
			}
		}
		what = "of its GPUs only " + strings.Join(names, ", ") + " may be used"
	}
	s.note("visible_devices", "%s=%s is set on %s: %s", name, value, s.host.Name, what)
	if tasks := s.facts.Environ["SLURM_NTASKS_PER_NODE"]; len(allowed) == 1 && tasks != "" && tasks != "1" {
		s.note("slurm_task", "%s: this is one of %s Slurm tasks there, each with a GPU of its own: "+
			"muster uses this task's GPU only; start it once per node with all GPUs", s.host.Name, tasks)
	}
}
