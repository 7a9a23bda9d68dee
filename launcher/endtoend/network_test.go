//go:build linux

package endtoend

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// B30, B42
func TestEachHostIsToldItsOwnInterfaceByItsExactName(t *testing.T) {
	u := newUser(t, theUnlike(t))
	u.runJob(job{script: u.dumping(), hosts: unlikeHosts, more: machinesOwn}).exits(0)
	for rank, name := range unlikeHosts {
		got := u.environOf(rank)
		if nic := unlikeNICs[name]; got["GLOO_SOCKET_IFNAME"] != nic || got["NCCL_SOCKET_IFNAME"] != "="+nic {
			t.Errorf("%s has GLOO_SOCKET_IFNAME=%q and NCCL_SOCKET_IFNAME=%q, its interface is %s", name, got["GLOO_SOCKET_IFNAME"], got["NCCL_SOCKET_IFNAME"], nic)
		}
	}
	for _, r := range u.planned(u.path("t.hcl")) {
		if r.NIC != "" && r.NIC != unlikeNICs[r.Host] {
			t.Errorf("the plan has %s for %s", r.NIC, r.Host)
		}
	}
}

// B42
func TestOneNameOfAnInterfaceForAllIsRefusedWhereItIsNotThere(t *testing.T) {
	u := newUser(t, theUnlike(t))
	c := u.check(75, u.write(job{script: "true", hosts: unlikeHosts[:2], more: machinesOwn + "\nnccl { socket_ifname = \"eno1\" }"}))
	f := c.has("interface_missing")
	if f == nil || f.Host != "middle" || !strings.Contains(f.Message, "eno1") || !strings.Contains(f.Message, "enp65s0f0") || !strings.Contains(f.Message, "docker0") {
		t.Errorf("findings %+v", c.Findings)
	}
	// Each host's own is right.
	c = u.check(0, u.write(job{script: "true", hosts: unlikeHosts[:2], more: machinesOwn,
		blocks: "host \"left\" {\n env = { NCCL_SOCKET_IFNAME = \"=eno1\" }\n }\n host \"middle\" {\n env = { NCCL_SOCKET_IFNAME = \"enp65s0f0\" }\n }"}))
	if c.has("interface_missing") != nil || c.has("interface_unfit") != nil {
		t.Errorf("findings %+v", c.Findings)
	}
}

// B30
func TestABridgeThatIsAskedForIsKeptAndSaidToLeadNowhere(t *testing.T) {
	u := newUser(t, theUnlike(t))
	r := u.runJob(job{script: u.dumping(), hosts: unlikeHosts[:2], more: machinesOwn + "\nenv = { NCCL_SOCKET_IFNAME = \"docker0\" }"}).exits(0)
	r.says("docker0 is a ", "leads to no other host")
	for rank := range 2 {
		if got := u.environOf(rank)["NCCL_SOCKET_IFNAME"]; got != "docker0" {
			t.Errorf("rank %d has NCCL_SOCKET_IFNAME=%q", rank, got)
		}
	}
}

func TestAnMTUThatDiffersIsFound(t *testing.T) {
	bed := theUnlike(t)
	u := newUser(t, bed)
	path := u.write(job{script: "true", hosts: unlikeHosts, more: machinesOwn})
	if c := u.check(0, path); c.has("mtu_differs") != nil {
		t.Errorf("all have one MTU: %+v", c.Findings)
	}
	set := func(mtu string) { on(t, bed.Host("middle"), "ip", "link", "set", "dev", "enp65s0f0", "mtu", mtu) }
	set("1400")
	t.Cleanup(func() { set("1500") })
	c := u.check(0, path)
	if f := c.has("mtu_differs"); f == nil || f.Host != "middle" || f.Severity != "warn" || !strings.Contains(f.Message, "1400") || !strings.Contains(f.Message, "1500") || !strings.Contains(f.Fix, "ip link set dev ") {
		t.Errorf("findings %+v", c.Findings)
	}
	u.run("run", path).exits(0).says("MTU", "1400")
}

// wall keeps a host from reaching addresses, but for sshd's port, as a firewall does.
func wall(t *testing.T, h *testbed.Host, addrs ...netip.Addr) {
	t.Helper()
	rules := "table ip wall {\n chain out {\n type filter hook output priority 0;\n"
	for _, addr := range addrs {
		rules += fmt.Sprintf("  ip daddr %s tcp dport != 22 reject\n", addr)
	}
	on(t, h, "nft", rules+" }\n}")
	t.Cleanup(func() { on(t, h, "nft", "delete table ip wall") })
}

func TestAHostThatCannotReachTheHeadHostIsNamedBeforeTheStart(t *testing.T) {
	bed := theUnlike(t)
	u := newUser(t, bed)
	head := bed.Host("left")
	wall(t, bed.Host("right"), head.Addr, head.SecondAddr)
	path := u.write(job{script: "touch " + u.path("ran"), hosts: unlikeHosts, more: longLease + machinesOwn})
	began := time.Now()
	u.run("run", path).exits(69).says("right: cannot reach the head host left: ", head.Addr.String())
	if took := time.Since(began); took > atOnce {
		t.Errorf("it took %v", took)
	}
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}

func TestWhoCannotReachWhomIsSaidInATable(t *testing.T) {
	bed := theUnlike(t)
	u := newUser(t, bed)
	// Each of the two reaches the head host, but there is no address that both reach.
	head := bed.Host("left")
	wall(t, bed.Host("right"), head.Addr)
	wall(t, bed.Host("middle"), head.SecondAddr)
	path := u.write(job{script: "touch " + u.path("ran"), hosts: unlikeHosts, more: longLease + machinesOwn})
	c := u.check(69, path)
	if f := c.has("unreachable"); f == nil || f.Severity != "fail" || f.Host != "left" || !strings.Contains(f.Fix, "firewall") {
		t.Errorf("findings %+v", c.Findings)
	} else {
		for _, text := range []string{head.Addr.String() + " (eno1)", head.SecondAddr.String() + " (eth1)", "from right: ", "from middle: ", "172.17.0.1 was passed over"} {
			if !strings.Contains(f.Message, text) {
				t.Errorf("%q is not in:\n%s", text, f.Message)
			}
		}
	}
	u.run("run", path).exits(69).says("left: no address of it is reached by every host", "from right: ", "from middle: ")
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}
