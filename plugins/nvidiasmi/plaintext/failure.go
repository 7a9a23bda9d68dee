package plaintext

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Classes of failures. Those that begin with "gpu." are about one GPU; the others about
// the machine or the question.
const (
	GPULost          = "gpu.lost"
	GPUNeedsReset    = "gpu.needs_reset"
	GPUUnknown       = "gpu.unknown"
	GPUInfoROM       = "gpu.inforom"
	NoGPU            = "no_gpu"
	DriverMissing    = "driver.missing"
	DriverMismatch   = "driver.mismatch"
	DriverLibrary    = "driver.library"
	DriverPermission = "driver.permission"
	DriverCgroup     = "driver.cgroup"
	DriverUnknown    = "driver.unknown"
	QueryField       = "query.field_unknown"
	QueryOption      = "query.option_unknown"
)

// meanings say what a class means and what to do.
var meanings = map[string]string{
	GPULost:          "GPU lost, it has fallen off the bus: reboot, and have it looked at if it happens again",
	GPUNeedsReset:    "GPU needs a reset: end all that uses it and run nvidia-smi --gpu-reset, or reboot",
	GPUUnknown:       "GPU does not answer properly",
	GPUInfoROM:       "infoROM of the GPU is corrupted",
	NoGPU:            "the driver runs and finds no GPU",
	DriverMissing:    "the NVIDIA driver is not loaded in the kernel: install it, or load it with modprobe nvidia",
	DriverMismatch:   "driver in the kernel and its library are of different versions, as after an update: reboot, or reload the kernel module",
	DriverLibrary:    "nvidia-smi does not find its library libnvidia-ml.so: install the driver's libraries",
	DriverPermission: "this user may not open the NVIDIA devices: see the owner and mode of /dev/nvidia*",
	DriverCgroup:     "the NVIDIA library cannot start for a reason unknown to it: in a container the device rules of its cgroup are lost (restart the container), elsewhere reboot",
	DriverUnknown:    "the NVIDIA library does not start",
	QueryField:       "this nvidia-smi does not know a field that it was asked for",
	QueryOption:      "this nvidia-smi does not know what it was asked",
}

// Failure is a sentence of nvidia-smi that says what is wrong.
type Failure struct {
	Class string
	Text  string // as nvidia-smi has it
	GPU   *int   // index, where told
	PCI   string // in sysfs form, where told
	UUID  string // where told
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s (nvidia-smi: %q)", meanings[f.Class], f.Text)
}

// sentences are tried in order. Those about a GPU come first: they may end in any of the
// words of the others.
var sentences = []struct {
	form  *regexp.Regexp
	class string
}{
	{regexp.MustCompile(`(?i)GPU is lost|handle for gpu.*: *unknown error`), GPULost},
	{regexp.MustCompile(`(?i)GPU requires reset|reset required`), GPUNeedsReset},
	{regexp.MustCompile(`(?i)unable to determine the device handle for`), GPUUnknown},
	{regexp.MustCompile(`(?i)infoROM is corrupted`), GPUInfoROM},
	{regexp.MustCompile(`(?i)driver/library version mismatch`), DriverMismatch},
	{regexp.MustCompile(`(?i)couldn't communicate with the nvidia driver|driver (is )?not loaded`), DriverMissing},
	{regexp.MustCompile(`(?i)(couldn't|could not|cannot) (find|load|open).*libnvidia-ml|libnvidia-ml.*(cannot|could not)|NVML shared library not found`), DriverLibrary},
	{regexp.MustCompile(`(?i)^no devices (were )?found`), NoGPU},
	{regexp.MustCompile(`(?i)initialize NVML: *(insufficient permissions|GPU access blocked)`), DriverPermission},
	{regexp.MustCompile(`(?i)initialize NVML: *unknown error`), DriverCgroup},
	{regexp.MustCompile(`(?i)failed to initialize NVML`), DriverUnknown},
	{regexp.MustCompile(`(?i)^field "(.*)" is not a valid field`), QueryField},
	{regexp.MustCompile(`(?i)option .* is missing its value|invalid combination of input|(invalid|unknown|unrecognized) (option|argument|command)|(option|argument|command) .*not (recognized|valid)`), QueryOption},
}

var (
	sentenceIndex = regexp.MustCompile(`(?i)\bGPU ?(\d{1,4})(?:: |:?$)`)
	sentencePCI   = regexp.MustCompile(`(?i)[0-9a-f]{3,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)
	sentenceUUID  = regexp.MustCompile(`GPU-[0-9A-Za-z-]+`)
)

// maxSentence cuts what is no sentence anyway.
const maxSentence = 500

// ParseFailures finds the sentences that say what is wrong among the lines of an output,
// where they stand between rows, before a table or instead of it. Each is told once.
func ParseFailures(output []byte) []*Failure {
	var found []*Failure
	told := map[string]bool{}
	for text := range Lines(output) {
		if text == "" || strings.HasPrefix(text, "<") || told[text] {
			continue
		}
		if f := Classify(text); f != nil {
			told[text] = true
			found = append(found, f)
		}
	}
	return found
}

// Classify reads one sentence; nil: it does not say what is wrong.
func Classify(text string) *Failure {
	if len(text) > maxSentence {
		text = strings.ToValidUTF8(text[:maxSentence], "")
	}
	for _, s := range sentences {
		if s.form.MatchString(text) {
			return about(&Failure{Class: s.class, Text: text})
		}
	}
	return nil
}

// about reads what the sentence is about. Old and new wordings: "GPU 0000:05:00.0",
// "GPU0: 0000:24:00.0", "GPU0000:20:00.0", "GPU2: Unknown Error".
func about(f *Failure) *Failure {
	if strings.HasPrefix(f.Class, "gpu.") {
		if m := sentenceIndex.FindStringSubmatch(f.Text); m != nil {
			f.GPU = new(Digits(m[1]))
		}
		f.PCI, _ = gpu.SysfsPCI(sentencePCI.FindString(f.Text))
		f.UUID = sentenceUUID.FindString(f.Text)
	}
	return f
}

// exits are the exit statuses that tell what is wrong when no sentence does.
var exits = map[int]string{
	4: DriverPermission, 6: NoGPU, 9: DriverMissing, 12: DriverLibrary,
	14: GPUInfoROM, 15: GPULost, 18: DriverMismatch, 2: QueryOption,
}

// otherExits have no class of their own.
var otherExits = map[int]string{
	3: "not available on this GPU", 8: "external power cables of a GPU are not properly attached",
	10: "the kernel found an interrupt problem with a GPU", 13: "the library does not implement this function",
}

// ExitFailure is what an exit status says, nil for one that says nothing.
func ExitFailure(status int) error {
	if class := exits[status]; class != "" {
		return &Failure{Class: class, Text: fmt.Sprintf("exit status %d", status)}
	}
	if status == 0 {
		return nil
	}
	return fmt.Errorf("nvidia-smi ended with status %d (%s)", status, cmp.Or(otherExits[status], "no reason given"))
}
