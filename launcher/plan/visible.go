package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// cudaVisible is CUDA's variable; its rules are in the CUDA programming guide.
const cudaVisible = "CUDA_VISIBLE_DEVICES"

// visible are the devices that the host's own environment lets programs see, and whether
// that gives their order. A variable that is not set allows all.
func (c *chooser) visible() (allowed []Device, ordered bool) {
	name := c.variable()
	value, set := c.facts.Environ[name]
	if !set {
		return devicesOf(c.devices), false
	}
	tokens := strings.Split(value, ",")
	if strings.TrimSpace(value) == "" {
		tokens = nil
	}
	known := len(c.problems)
	for i, token := range tokens {
		token = strings.TrimSpace(token)
		if !isDeviceToken(token) {
			c.note("visible_devices", "%s=%s on %s: CUDA stops at %q, and so does muster", name, value, c.host.Name, token)
			break
		}
		device, err := find(c.devices, token)
		if err != nil {
			c.refuse("visible_devices", "%s: %s=%s is set there, and %v%s", c.host.Name, name, value, err, c.renumbered())
			return nil, false
		}
		if c.checkToken(name, value, tokens[0], token, device, allowed); len(c.problems) > known {
			return nil, false
		}
		ordered = ordered || i > 0 && device.comesBefore(allowed[i-1])
		allowed = append(allowed, device)
	}
	c.sayVisible(name, value, allowed)
	return allowed, ordered
}

// variable is the name of the variable by which processes are shown devices.
func (c *chooser) variable() string {
	if c.devices.Visibility.Variable != "" {
		return c.devices.Visibility.Variable
	}
	return cudaVisible
}

// isDeviceToken reports whether CUDA takes an entry for a device; at any other, such as
// -1, NoDevFiles or a word, it stops reading.
func isDeviceToken(token string) bool {
	upper := strings.ToUpper(token)
	return isNumber(token) || strings.HasPrefix(upper, "GPU-") || strings.HasPrefix(upper, "MIG-")
}

func (c *chooser) checkToken(name, value, first, token string, device Device, earlier []Device) {
	if isNumber(token) != isNumber(strings.TrimSpace(first)) {
		c.refuse("visible_devices", "%s: %s=%s is set there: numbers and UUIDs are mixed, which CUDA does not take", c.host.Name, name, value)
	}
	if slices.ContainsFunc(earlier, device.same) {
		c.refuse("visible_devices", "%s: %s=%s is set there: %s is named twice, at which CUDA shows no device at all", c.host.Name, name, value, device)
	}
	if isNumber(token) {
		c.checkOrder(name, value)
	}
}

// checkOrder looks at what numbers mean: CUDA counts the fastest card first unless told
// otherwise, nvidia-smi by PCI address. With cards of one kind both are the same.
func (c *chooser) checkOrder(name, value string) {
	if !c.mixedCards() || c.facts.Environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" || c.orderSaid {
		return
	}
	c.orderSaid = true
	if c.facts.Environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST" {
		c.refuse("device_order", "%s: %s=%s is set there with CUDA_DEVICE_ORDER=FASTEST_FIRST, and its cards differ: which card a number means only CUDA knows; use UUIDs (nvidia-smi -L) or CUDA_DEVICE_ORDER=PCI_BUS_ID",
			c.host.Name, name, value)
		return
	}
	c.warn("device_order", "%s: %s=%s is set there and its cards differ: the numbers are taken as those of nvidia-smi, though CUDA by itself counts the fastest first; UUIDs (nvidia-smi -L) leave no doubt",
		c.host.Name, name, value)
}

func (c *chooser) mixedCards() bool {
	gpus := c.devices.Inventory.GPUs
	return slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.Name != gpus[0].Name })
}

// renumbered explains numbers that are out of range where a scheduler's cgroup shows a
// part of the machine's GPUs under numbers of their own.
func (c *chooser) renumbered() string {
	for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if global := c.facts.Environ[name]; global != "" {
			return fmt.Sprintf(" (Slurm's %s=%s numbers the whole machine's; within the allocation they begin at 0: unset %s there, or give UUIDs)", name, global, cudaVisible)
		}
	}
	return "; mend it or unset it there"
}

func (c *chooser) sayVisible(name, value string, allowed []Device) {
	what := "no GPU may be used"
	if len(allowed) > 0 {
		words := make([]string, len(allowed))
		for i, d := range allowed {
			words[i] = strconv.Itoa(d.Index)
			if d.IsInstance() {
				words[i] = d.String()
			}
		}
		what = "of its GPUs only " + strings.Join(words, ", ") + " may be used"
	}
	c.note("visible_devices", "%s=%s is set on %s: %s", name, value, c.host.Name, what)
	if tasks := c.facts.Environ["SLURM_NTASKS_PER_NODE"]; len(allowed) == 1 && tasks != "" && tasks != "1" {
		c.note("slurm_task", "%s: this is one of %s Slurm tasks there, each with a GPU of its own: muster uses this task's GPU only; start it once per node with all GPUs", c.host.Name, tasks)
	}
}
