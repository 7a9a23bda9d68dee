package failure

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// remedies are errors that have an advice of their own, whatever their class.
var remedies = []struct {
	any    []string // one of these stands in the words that decided
	advice []string
}{
	{[]string{"Too many open files", "received 0 items of ancdata"}, []string{
		"torch.multiprocessing.set_sharing_strategy(\"file_system\"): else data-loader processes keep a file open for each tensor that they send",
		"a higher hard limit of open files on the host (LimitNOFILE=, limits.conf): workers have all that it allows; ls /proc/PID/fd shows what is open",
	}},
	{[]string{"no kernel image is available for execution on the device"}, []string{
		"compare torch.cuda.get_arch_list() with torch.cuda.get_device_capability(): install a torch that was built for this GPU",
		"build extensions of your own with TORCH_CUDA_ARCH_LIST for it",
	}},
	{[]string{"Torch not compiled with CUDA enabled"}, []string{
		"the torch of this python is the one for CPUs: install one for CUDA (torch.version.cuda is then not None)",
		"python -c 'import sys, torch; print(sys.executable, torch.__file__)' as the command shows whether it is the environment that you mean",
	}},
}

// advise gives the verdict the advice of its very error, where there is one.
func advise(v *verdict.Verdict) {
	for _, r := range remedies {
		if v.Advice == nil && slices.ContainsFunc(r.any, func(s string) bool { return strings.Contains(v.Said, s) }) {
			v.Advice = r.advice
		}
	}
}

// adviseRefused is for such a program where the kernel has killed nobody: it refuses when a
// limit is reached or a request is beyond all that there is, and kills when memory is full.
func adviseRefused(v *verdict.Verdict) {
	v.AddNote("memory is refused for a limit of address space (ulimit -v), or where one request is larger than what the host can give; a full host rather kills")
	c, _ := class.Find(class.OOMHost)
	v.Advice = append([]string{"ulimit -v in the command's own shell shows the limit of address space"}, c.Advice...)
}
