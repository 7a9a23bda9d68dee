//go:build linux

package facts

import (
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

// pciDevice is a device of the bus at the end of a way such as
// pci0000:0c/0000:0c:01.0/0000:0f:00.0.
func pciDevice(way, node, cpus, vendor, class string) map[string]string {
	dir := "sys/devices/" + way
	return map[string]string{
		"sys/bus/pci/devices/" + filepath.Base(way): "-> ../../../devices/" + way,
		dir + "/numa_node":                          node + "\n",
		dir + "/local_cpulist":                      cpus + "\n",
		dir + "/vendor":                             vendor + "\n",
		dir + "/class":                              class + "\n",
	}
}

// adapter is a PCI device with an InfiniBand device of one port.
func adapter(name, way, node, state, rate, layer string) map[string]string {
	dir := "sys/devices/" + way
	port := dir + "/infiniband/" + name + "/ports/1"
	return hostfstest.Merge(pciDevice(way, node, "", "0x15b3", "0x020700"), map[string]string{
		"sys/class/infiniband/" + name:          "-> ../../devices/" + way + "/infiniband/" + name,
		dir + "/infiniband/" + name + "/device": "-> ../../../" + filepath.Base(way),
		port + "/state":                         state + "\n",
		port + "/phys_state":                    "5: LinkUp\n",
		port + "/rate":                          rate + "\n",
		port + "/link_layer":                    layer + "\n",
	})
}

func TestLinksAreFollowedFromTheRootThatATestGives(t *testing.T) {
	root := hostfstest.Tree(t, map[string]string{
		"opt/real/bin/python3.11": "",
		"opt/current":             "-> /opt/real",
		"home/bin/python":         "-> ../../opt/current/bin/python3",
		"opt/real/bin/python3":    "-> python3.11",
		"opt/loop":                "-> loop",
	})
	for path, want := range map[string]string{
		"/home/bin/python": "/opt/real/bin/python3.11",
		"/opt/missing/x":   "/opt/missing/x",
		"/opt/loop":        "/opt/loop",
	} {
		if got := root.Resolve(path); got != want {
			t.Errorf("%s leads to %s, not %s", path, got, want)
		}
	}
}
