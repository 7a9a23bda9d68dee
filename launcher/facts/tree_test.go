//go:build linux

package facts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a host's files in a folder of their own: a path and a text each; a text that
// begins with "-> " is a symbolic link to what follows.
func tree(t testing.TB, files map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "-> ")
		var err error
		if isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Root(root)
}

// merge puts trees together.
func merge(trees ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, files := range trees {
		for path, text := range files {
			all[path] = text
		}
	}
	return all
}

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
	return merge(pciDevice(way, node, "", "0x15b3", "0x020700"), map[string]string{
		"sys/class/infiniband/" + name:          "-> ../../devices/" + way + "/infiniband/" + name,
		dir + "/infiniband/" + name + "/device": "-> ../../../" + filepath.Base(way),
		port + "/state":                         state + "\n",
		port + "/phys_state":                    "5: LinkUp\n",
		port + "/rate":                          rate + "\n",
		port + "/link_layer":                    layer + "\n",
	})
}

func TestLinksAreFollowedFromTheRootThatATestGives(t *testing.T) {
	root := tree(t, map[string]string{
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
		if got := root.resolve(path); got != want {
			t.Errorf("%s leads to %s, not %s", path, got, want)
		}
	}
}
