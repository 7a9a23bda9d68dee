//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// onThe runs a command on a host as root.
func onThe(t *testing.T, h *testbed.Host, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, stderr, err := h.Run(ctx, argv...); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
}

// dropsBetween makes a host drop packets from and to another that a rule takes; the returned
// function ends that.
func dropsBetween(t *testing.T, h, other *testbed.Host, which string) func() {
	t.Helper()
	rules := fmt.Sprintf("add table ip test\nadd chain ip test in { type filter hook input priority 0; }\nadd chain ip test out { type filter hook output priority 0; }\n"+
		"add rule ip test in ip saddr %s %s drop\nadd rule ip test out ip daddr %s %s drop\n", other.Addr, which, other.Addr, which)
	onThe(t, h, "nft", rules)
	return func() { onThe(t, h, "nft", "delete table ip test") }
}

// Two hosts that both reach the head host may not reach each other: ranks would hang. Large
// packets that get lost between them make connections stand and transfers hang.
func TestHostsThatDoNotReachEachOtherAreNamedByCheck(t *testing.T) {
	bed := ownBed(t, testbed.Options{Hosts: 3, Docker0: true})
	u := newUser(t, bed)
	path := u.write(job{script: "true", hosts: []string{"node1", "node2", "node3"}, more: machinesOwn})
	a, b := bed.Hosts[1], bed.Hosts[2]
	if c := u.check(0, path); c.has("unreachable") != nil || c.has("mtu_black_hole") != nil {
		t.Errorf("healthy: %+v", c.Findings)
	}

	heal := dropsBetween(t, a, b, "tcp flags syn")
	began := time.Now()
	c := u.check(75, path)
	f := c.has("unreachable")
	if f == nil || f.Host != "node2" && f.Host != "node3" || !strings.Contains(f.Message, "no: ") {
		t.Errorf("with no way between: %+v", c.Findings)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
	heal()

	// Packets of these hosts' interfaces are the size of their segments only if the kernel
	// does not join them.
	for _, h := range []*testbed.Host{a, b} {
		onThe(t, h, "ip", "link", "set", "dev", h.NIC(), "gso_max_segs", "1")
	}
	if c := u.check(0, path); c.has("mtu_black_hole") != nil {
		t.Errorf("before: %+v", c.Findings)
	}
	heal = dropsBetween(t, a, b, "ip length > 1420")
	f = u.check(75, path).has("mtu_black_hole")
	if f == nil || !strings.Contains(f.Message, "node2 and node3") || !strings.Contains(f.Message, "those of 1400 bytes do") || !strings.Contains(f.Message, "1500 on "+a.NIC()+" of node2") {
		t.Errorf("with a way for small packets only: %+v", f)
	}
	heal()
}
