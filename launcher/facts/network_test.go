//go:build linux

package facts

import (
	"net"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs"
	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
	"github.com/muster-dev/muster/plugins/gpu"
)

const nvidiaVendor = "0x10de"

// dgx is a part of a machine with two sockets: three GPUs and four adapters behind
// switches, one right at a root port, one at the other socket.
func dgx(t *testing.T) Root {
	const sw = "pci0000:0c/0000:0c:01.0/0000:0d:00.0/"
	return hostfstest.Tree(t, hostfstest.Merge(
		map[string]string{"sys/bus/pci/devices/.keep": ""},
		pciDevice(sw+"0000:0e:00.0/0000:0f:00.0", "0", "0-3", nvidiaVendor, "0x030200"),
		pciDevice(sw+"0000:0e:02.0/0000:11:00.0/0000:12:00.0/0000:13:00.0", "0", "0-3", nvidiaVendor, "0x030200"),
		pciDevice("pci0000:80/0000:80:01.0/0000:81:00.0", "1", "4-7", nvidiaVendor, "0x030200"),
		pciDevice(sw+"0000:0e:03.0/0000:20:00.0", "0", "0-3", nvidiaVendor, "0x068000"), // an NVSwitch
		adapter("mlx5_10", sw+"0000:0e:01.0/0000:10:00.0", "0", "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand"),
		adapter("mlx5_2", sw+"0000:0e:04.0/0000:14:00.0", "0", "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand"),
		adapter("mlx5_3", "pci0000:0c/0000:0c:03.0/0000:15:00.0", "0", "4: ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet"),
		adapter("mlx5_0", "pci0000:80/0000:80:02.0/0000:82:00.0", "1", "1: DOWN", "10 Gb/sec (4X SDR)", "InfiniBand"),
		map[string]string{
			"sys/devices/pci0000:0c/0000:0c:03.0/0000:15:00.0/infiniband/mlx5_3/ports/1/gid_attrs/ndevs/0": "enp21s0\n",
			"sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/net/ib0/dev_port":                            "0\n",
		},
	))
}

func TestPortsOfInfiniBandAreReadInNaturalOrder(t *testing.T) {
	found := hcas(dgx(t))
	var names []string
	for _, h := range found {
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"mlx5_0", "mlx5_2", "mlx5_3", "mlx5_10"}) {
		t.Fatalf("%v", names)
	}
	one, zero := 1, 0
	want := HCA{Name: "mlx5_0", Port: 1, State: "down", PhysState: "linkup", LinkLayer: "InfiniBand", SpeedGbps: 10, Interface: "ib0", PCI: "0000:82:00.0", NUMA: &one}
	if !reflect.DeepEqual(found[0], want) {
		t.Errorf("%+v", found[0])
	}
	want = HCA{Name: "mlx5_3", Port: 1, State: "active", PhysState: "linkup", LinkLayer: "Ethernet", SpeedGbps: 100, Interface: "enp21s0", PCI: "0000:15:00.0", NUMA: &zero}
	if !reflect.DeepEqual(found[2], want) {
		t.Errorf("%+v", found[2])
	}
}

func TestTheNearestNetworkIsFoundByThePCITree(t *testing.T) {
	root := dgx(t)
	adapters := hcas(root)
	for _, test := range []struct {
		pci  string
		hcas []string
		link gpu.Link
	}{
		{"0000:0f:00.0", []string{"mlx5_2", "mlx5_10"}, "PIX"},
		{"0000:13:00.0", []string{"mlx5_2", "mlx5_10"}, "PXB"}, // behind a switch of its own
		{"0000:81:00.0", []string{"mlx5_2", "mlx5_3", "mlx5_10"}, "SYS"},
	} {
		n := near(root, test.pci, setOf([]int{1, 2, 5}), adapters)
		if !slices.Equal(n.HCAs, test.hcas) || n.HCALink != test.link {
			t.Errorf("%s is near %v by %s", test.pci, n.HCAs, n.HCALink)
		}
	}
	if n := near(root, "0000:81:00.0", setOf([]int{1, 2, 5}), adapters); !slices.Equal(n.CPUs, []int{5}) {
		t.Errorf("its CPUs are %v", n.CPUs)
	}
}

func TestAddressesHaveTheirNetworks(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	plain, networks := addresses(*lo)
	if len(plain) != len(networks) || slices.Contains(plain, "127.0.0.1") && !slices.Contains(networks, "127.0.0.1/8") {
		t.Errorf("%v %v", plain, networks)
	}
}

func TestDeviceFilesOfAdaptersMayBeMissing(t *testing.T) {
	with := hostfstest.Tree(t, map[string]string{"dev/infiniband/uverbs0": ""})
	without := hostfstest.Tree(t, map[string]string{"dev/infiniband/rdma_cm": ""})
	if !*verbs(with) || *verbs(without) {
		t.Error("device files of adapters are not seen as they are")
	}
}

func TestNaturalOrder(t *testing.T) {
	names := []string{"mlx5_10", "mlx5_2", "bnxt_re0", "mlx5_", "mlx4_0", "rdmap16s27", "rdmap9s27"}
	slices.SortFunc(names, hostfs.Natural)
	want := []string{"bnxt_re0", "mlx4_0", "mlx5_", "mlx5_2", "mlx5_10", "rdmap9s27", "rdmap16s27"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
}
