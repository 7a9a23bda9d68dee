//go:build linux

package facts

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
	"github.com/muster-dev/muster/plugins"
)

func gpuOnBus(pci, driver string) map[string]string {
	dir := "sys/devices/pci0000:00/" + pci
	files := pciDevice("pci0000:00/"+pci, "0", "0-3", nvidiaVendor, "0x030200")
	if driver != "" {
		files[dir+"/driver"] = "-> ../../../bus/pci/drivers/" + driver
		files["sys/bus/pci/drivers/"+driver+"/bind"] = ""
	}
	return files
}

func TestAGPUWhoseDriverIsSilentIsNotNoGPU(t *testing.T) {
	t.Setenv("PATH", "/opt/tools")
	for _, test := range []struct {
		name  string
		files map[string]string
		sign  string
		count int
	}{
		{"nothing", pciDevice("pci0000:00/0000:00:02.0", "0", "", "0x8086", "0x030000"), "", 0},
		{"its sound only", pciDevice("pci0000:00/0000:00:02.1", "0", "", nvidiaVendor, "0x040300"), "", 0},
		{"two", hostfstest.Merge(gpuOnBus("0000:00:05.0", "nvidia"), gpuOnBus("0000:00:06.0", "nvidia")), "2 NVIDIA devices on the PCI bus", 2},
		{"without a driver", gpuOnBus("0000:00:05.0", ""), "1 NVIDIA device on the PCI bus (no driver has it)", 1},
		{"nouveau", hostfstest.Merge(gpuOnBus("0000:00:05.0", "nouveau"), gpuOnBus("0000:00:06.0", "nouveau")), "2 NVIDIA devices on the PCI bus (nouveau has them)", 2},
		{"one for a virtual machine", hostfstest.Merge(gpuOnBus("0000:00:05.0", "vfio-pci"), gpuOnBus("0000:00:06.0", "nvidia")),
			"2 NVIDIA devices on the PCI bus (vfio-pci has 1)", 1},
		{"a container without sysfs", map[string]string{"dev/nvidiactl": ""}, "NVIDIA's device file /dev/nvidiactl is there", 0},
		{"WSL", map[string]string{"dev/dxg": ""}, "Windows lends its GPU (/dev/dxg)", 0},
		{"the library", map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}, "the driver's library is there (/usr/lib64/libnvidia-ml.so.1)", 0},
		{"nvidia-smi in PATH", map[string]string{"opt/tools/nvidia-smi": ""}, "nvidia-smi is installed (/opt/tools/nvidia-smi)", 0},
	} {
		root := hostfstest.Tree(t, test.files)
		sign, hardware := HasNVIDIA(root)
		if sign != test.sign || hardware != (test.count > 0 || strings.Contains(sign, "/dev/")) || CountNVIDIA(root) != test.count {
			t.Errorf("%s: %q, hardware: %v, %d on the bus", test.name, sign, hardware, CountNVIDIA(root))
		}
	}
}

func TestOwnersAreThoseOfTheProcessesThatTheDriverMeans(t *testing.T) {
	self := strconv.Itoa(os.Getuid())
	gpus := []plugins.GPU{{Processes: []plugins.Process{{PID: 10, Name: "/usr/bin/python3"}, {PID: 11, Name: "python"}, {PID: 12, Name: "gone"}}}}
	files := map[string]string{"proc/10/cmdline": "/opt/bin/python3\x00train.py\x00", "proc/11/cmdline": "bash\x00", "proc/self/ns/pid": "-> " + firstPIDNamespace}
	if got := Owners(hostfstest.Tree(t, files), gpus); !reflect.DeepEqual(got, map[int]string{10: self, 11: self}) {
		t.Errorf("users that only a directory knows: %v", got)
	}
	files["etc/passwd"] = "root:x:x\nann:x:" + self + ":100::/home/ann:/bin/sh\n"
	files["proc/self/ns/pid"] = "-> pid:[4026532000]"
	if got := Owners(hostfstest.Tree(t, files), gpus); !reflect.DeepEqual(got, map[int]string{10: "ann"}) {
		t.Errorf("from a namespace where pid 11 is another process: %v", got)
	}
}

// The agent asks HasNVIDIA whether to look at all: it has to know every place where the
// prober would find its program.
func TestEveryPlaceOfNvidiaSMIIsKnown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "plugins", "nvidiasmi", "runner.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "usualPlaces = []string{")
	list, _, _ = strings.Cut(list, "\n}")
	for i, place := range strings.Split(list, `"`) {
		if i%2 == 1 && !strings.Contains(strings.Join(programFolders, "\n")+"\n", strings.TrimSuffix(place, "/")+"\n") {
			t.Errorf("%s is not among %v", place, programFolders)
		}
	}
}
