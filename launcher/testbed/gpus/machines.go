package gpus

// DGXA100 is a DGX A100: eight A100 of 80 GB at six NVSwitches (NV12), two sockets of
// four NUMA nodes each, eight InfiniBand devices beside the GPUs and two for storage. The
// NUMA nodes are in the order 3, 1, 7, 5, as on the machine
// (https://docs.nvidia.com/dgx/dgxa100-user-guide/).
func DGXA100() *Scenario { return ampere("dgx-a100", a100, 12) }

// A800 is the same board with the A800, which has eight links per GPU (NV8).
func A800() *Scenario { return ampere("a800", a800, 8) }

func ampere(name string, p product, links int) *Scenario {
	s := &Scenario{Name: name, Driver: "550.54.15", CUDA: "12.4", Nodes: nodes(128*gib,
		"0-15,128-143", "16-31,144-159", "32-47,160-175", "48-63,176-191",
		"64-79,192-207", "80-95,208-223", "96-111,224-239", "112-127,240-255")}
	for i, at := range []struct {
		bridge string
		numa   int
		gpus   [2]string
		nics   [2]string
	}{
		{"0000:00", 3, [2]string{"0000:07:00.0", "0000:0f:00.0"}, [2]string{"0000:0c:00.0", "0000:12:00.0"}},
		{"0000:40", 1, [2]string{"0000:47:00.0", "0000:4e:00.0"}, [2]string{"0000:4b:00.0", "0000:54:00.0"}},
		{"0000:80", 7, [2]string{"0000:87:00.0", "0000:90:00.0"}, [2]string{"0000:8d:00.0", "0000:94:00.0"}},
		{"0000:b0", 5, [2]string{"0000:b7:00.0", "0000:bd:00.0"}, [2]string{"0000:ba:00.0", "0000:cc:00.0"}},
	} {
		_, bus := split(at.bridge)
		for half := range 2 {
			n := 2*i + half
			s.GPUs = append(s.GPUs, p.card(at.gpus[half], deeper(at.bridge, at.numa, 1+half, bus+3+2*half, 0), n))
			s.NICs = append(s.NICs, mlx(n, at.nics[half], cx6, hdr, deeper(at.bridge, at.numa, 3+half, bus+0x1a+3*half, 0)))
		}
	}
	// The two ports of one card for storage share a slot: PIX to each other, far from all GPUs.
	for port, pci := range []string{"0000:e1:00.0", "0000:e1:00.1"} {
		s.NICs = append(s.NICs, mlx(8+port, pci, cx6, hdr, behind("0000:d8", 6, 0)))
	}
	s.Switches = nvswitches("0x1af1", "0000:c0", 5, "0000:c4:00.0", "0000:c5:00.0", "0000:c6:00.0", "0000:c7:00.0", "0000:c8:00.0", "0000:c9:00.0")
	s.bondAll(links)
	return s
}

// DGXH100 is a DGX H100: eight H100 at four NVSwitches (NV18), each beside its own
// InfiniBand device under one PCIe switch, four on each of two sockets
// (https://docs.nvidia.com/dgx/dgxh100-user-guide/).
func DGXH100() *Scenario { return hopper("dgx-h100", h100) }

// H200 is the same board with the H200.
func H200() *Scenario { return hopper("h200", h200) }

func hopper(name string, p product) *Scenario {
	s := &Scenario{Name: name, Driver: "570.86.15", CUDA: "12.8", Nodes: nodes(1024*gib, "0-55,112-167", "56-111,168-223")}
	for i, at := range []struct{ bridge, gpu, nic string }{
		{"0000:15", "0000:1b:00.0", "0000:18:00.0"},
		{"0000:3d", "0000:43:00.0", "0000:40:00.0"},
		{"0000:4c", "0000:52:00.0", "0000:4f:00.0"},
		{"0000:5b", "0000:61:00.0", "0000:5e:00.0"},
		{"0000:97", "0000:9d:00.0", "0000:9a:00.0"},
		{"0000:bd", "0000:c3:00.0", "0000:c0:00.0"},
		{"0000:cb", "0000:d1:00.0", "0000:ce:00.0"},
		{"0000:d9", "0000:df:00.0", "0000:dc:00.0"},
	} {
		numa := i / 4
		s.GPUs = append(s.GPUs, p.card(at.gpu, behind(at.bridge, numa, 1), i))
		s.NICs = append(s.NICs, mlx(i, at.nic, cx7, ndr, behind(at.bridge, numa, 2)))
	}
	storage := mlx(8, "0000:29:00.0", cx5, eth, direct("0000:26", 0, 1, 0))
	storage.Layer, storage.NetDev, storage.Class = "Ethernet", "enp41s0np0", "0x020000"
	s.NICs = append(s.NICs, storage)
	s.Switches = nvswitches("0x22a3", "0000:02", 0, "0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0")
	s.bondAll(18)
	return s
}

// DGX1 is a DGX-1 with V100: a cube mesh of six links per GPU, in which all eight are
// joined but only the four of a socket are so pairwise: two islands. The links are those of
// public outputs of nvidia-smi topo -m on this board.
func DGX1() *Scenario {
	s := &Scenario{Name: "dgx1-v100", Driver: "535.183.01", CUDA: "12.2", Nodes: nodes(256*gib, "0-19,40-59", "20-39,60-79")}
	gpus := []string{"0000:06:00.0", "0000:07:00.0", "0000:0a:00.0", "0000:0b:00.0", "0000:85:00.0", "0000:86:00.0", "0000:89:00.0", "0000:8a:00.0"}
	nics := []string{"0000:05:00.0", "0000:0c:00.0", "0000:84:00.0", "0000:8b:00.0"}
	for i, pci := range gpus {
		s.GPUs = append(s.GPUs, v100.card(pci, dgx1Slot(i/2, i%2), i))
	}
	for i, pci := range nics {
		s.NICs = append(s.NICs, mlx(i, pci, cx5, eth, dgx1Slot(i, 2)))
	}
	for _, pair := range [][3]int{
		{0, 1, 1}, {0, 2, 2}, {0, 3, 1}, {1, 2, 1}, {1, 3, 2}, {2, 3, 2},
		{4, 5, 2}, {4, 6, 2}, {4, 7, 1}, {5, 6, 1}, {5, 7, 2}, {6, 7, 1},
		{0, 7, 2}, {1, 6, 2}, {2, 5, 1}, {3, 4, 1},
	} {
		s.bond(pair[0], pair[1], pair[2])
	}
	return s
}

// dgx1Slot is a port of one of the four switches, two on each socket.
func dgx1Slot(nth, port int) Slot {
	bridge, bus := "0000:00", 0x10
	if nth >= 2 {
		bridge, bus = "0000:80", 0x90
	}
	return deeper(bridge, nth/2, nth%2, bus+2*(nth%2), port)
}

// TwoIslands is two boards of four A100 each, all pairs of a board joined by four links
// and nothing but PCIe between the boards. It is made up of two real four-GPU boards
// (HPE's and Dell's show NV4 between all pairs).
func TwoIslands() *Scenario {
	s := &Scenario{Name: "two-islands", Driver: "535.183.01", CUDA: "12.2", Nodes: nodes(256*gib, "0-31,64-95", "32-63,96-127")}
	for i, at := range []struct{ bridge, gpu string }{
		{"0000:00", "0000:01:00.0"}, {"0000:20", "0000:24:00.0"}, {"0000:40", "0000:41:00.0"}, {"0000:60", "0000:61:00.0"},
		{"0000:80", "0000:81:00.0"}, {"0000:a0", "0000:a1:00.0"}, {"0000:c0", "0000:c1:00.0"}, {"0000:e0", "0000:e1:00.0"},
	} {
		s.GPUs = append(s.GPUs, a100.card(at.gpu, direct(at.bridge, i/4, 1, 1), i))
	}
	for _, half := range []int{0, 4} {
		for i := half; i < half+4; i++ {
			for j := i + 1; j < half+4; j++ {
				s.bond(i, j, 4)
			}
		}
	}
	s.NICs = []NIC{mlx(0, "0000:02:00.0", cx6, hdr, direct("0000:00", 0, 3, 1)), mlx(1, "0000:e2:00.0", cx6, hdr, direct("0000:e0", 1, 3, 1))}
	return s
}

// BridgedPairs is four A40, each two beside each other joined by a bridge of four links
// (NV4).
func BridgedPairs() *Scenario {
	s := fourCards("bridged-a40", a40)
	s.bond(0, 1, 4)
	s.bond(2, 3, 4)
	return s
}

// BridgedA6000 is three RTX A6000, two of them joined by a bridge: the third tells only
// that all its links are inactive.
func BridgedA6000() *Scenario {
	s := fourCards("bridged-a6000", a6000)
	s.GPUs, s.Nodes = s.GPUs[:3], nodes(256*gib, "0-31,64-95")
	for i := range s.GPUs {
		s.GPUs[i].Slot.NUMA = 0
	}
	s.bond(0, 1, 4)
	s.GPUs[2].Ports = make([]Port, 4)
	return s
}

// L40S is four L40S, which have PCIe only, and a RoCE device that is down beside one.
func L40S() *Scenario {
	s := fourCards("l40s", l40s)
	s.Driver, s.CUDA = "570.86.15", "12.8"
	nic := mlx(0, "0000:d0:00.0", cx6, hdr, behind("0000:c8", 1, 3))
	nic.Layer, nic.State, nic.NetDev, nic.Class = "Ethernet", down, "ens3f0np0", "0x020000"
	s.NICs = []NIC{nic}
	return s
}

// fourCards is a server of two sockets, each with two cards under one PCIe switch.
func fourCards(name string, p product) *Scenario {
	s := &Scenario{Name: name, Driver: "550.54.15", CUDA: "12.4", Nodes: nodes(256*gib, "0-31,64-95", "32-63,96-127")}
	for i, at := range []struct{ bridge, gpu string }{
		{"0000:15", "0000:1a:00.0"}, {"0000:15", "0000:1b:00.0"}, {"0000:c8", "0000:cd:00.0"}, {"0000:c8", "0000:ce:00.0"},
	} {
		s.GPUs = append(s.GPUs, p.card(at.gpu, behind(at.bridge, i/2, i%2), i))
	}
	return s
}
