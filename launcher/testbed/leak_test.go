//go:build linux

package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// traces is where a bed could be seen after its end. Names and numbers may belong
// to the next bed a moment later, so a link is told by its index and a process by
// its pidfd.
type traces struct {
	Dir    string
	Uplink int
	PIDs   []int
	fds    []int
}

func tracesOf(t *testing.T, bed *Bed) traces {
	t.Helper()
	up, err := net.InterfaceByName(bed.net.uplink())
	if err != nil {
		t.Fatal(err)
	}
	left := traces{Dir: bed.Dir, Uplink: up.Index}
	for _, h := range bed.Hosts {
		all, err := h.Processes()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			left.PIDs = append(left.PIDs, p.MachinePID)
		}
	}
	return left
}

// hold makes sure that the processes are not mixed up with later ones.
func (s *traces) hold(t *testing.T) {
	t.Helper()
	for _, pid := range s.PIDs {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d of a running bed: %v", pid, err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		s.fds = append(s.fds, fd)
	}
}

// found lists what is still there: the link, mounts, processes.
func (s *traces) found() []string {
	var found []string
	if up, err := net.InterfaceByIndex(s.Uplink); err == nil {
		found = append(found, "link "+up.Name)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), s.Dir) {
		found = append(found, "a mount of "+s.Dir)
	}
	for i, fd := range s.fds {
		if unix.PidfdSendSignal(fd, 0, nil, 0) == nil {
			found = append(found, fmt.Sprintf("process %d", s.PIDs[i]))
		}
	}
	return found
}

// burden gives a bed what could stay behind.
func burden(t *testing.T, bed *Bed) {
	t.Helper()
	for _, h := range bed.Hosts {
		say(t, h, "setsid nohup sleep 4713 >/dev/null 2>&1 & mount -t tmpfs x /mnt")
	}
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	bed := New(t, Options{Hosts: 3, Docker0: true, SecondNet: true})
	burden(t, bed)
	left := tracesOf(t, bed)
	left.hold(t)
	if len(left.found()) < 10 {
		t.Fatalf("the test sees only %v of a running bed", left.found())
	}
	if err := bed.Close(); err != nil {
		t.Fatal(err)
	}
	if found := left.found(); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
	if _, err := os.Stat(bed.Dir); err == nil {
		t.Errorf("left: %s", bed.Dir)
	}
}

// ownerVariable makes the test binary own a bed until it is killed.
const ownerVariable = "TESTBED_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) == "" {
		os.Exit(m.Run())
	}
	testing.Main(nil, []testing.InternalTest{{Name: "Owner", F: own}}, nil, nil)
}

func own(t *testing.T) {
	bed := New(t, Options{Hosts: 3, Docker0: true})
	burden(t, bed)
	text, _ := json.Marshal(tracesOf(t, bed))
	fmt.Printf("\nowner %s\n", text)
	time.Sleep(time.Hour) // its test kills it; select {} would end by itself without cgo
}

func TestNothingIsLeftAfterItsOwnerWasKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(ErrNotRoot)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var left traces
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "owner "); ok {
			if err := json.Unmarshal([]byte(text), &left); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	left.hold(t)
	if len(left.found()) < 10 {
		t.Errorf("the test sees only %v of a running bed", left.found())
	}
	cmd.Process.Kill()
	cmd.Wait()
	killed := time.Now()
	eventually(t, "everything of the killed bed is gone", func() bool { return len(left.found()) == 0 })
	t.Logf("gone after %v", time.Since(killed))
	removedByNext(t, left.Dir)
}

// removedByNext starts beds until one has the number of the killed one.
func removedByNext(t *testing.T, dir string) {
	for range 256 {
		New(t, Options{})
		if _, err := os.Stat(dir); err != nil {
			return
		}
	}
	t.Errorf("no new bed has removed %s", dir)
}

func TestBedsLiveSideBySide(t *testing.T) {
	var all sync.WaitGroup
	beds := make([]*Bed, 4)
	for i := range beds {
		all.Go(func() { beds[i], _ = Start(t.Context(), Options{Hosts: 2}) })
	}
	all.Wait()
	numbers := map[int]bool{}
	for _, bed := range beds {
		if bed == nil {
			if os.Geteuid() != 0 {
				t.Skip(ErrNotRoot)
			}
			t.Fatal("a bed did not start beside others")
		}
		t.Cleanup(func() { bed.Close() })
		numbers[bed.net.number] = true
		if err := dial(bed.Hosts[1].Addr, patience); err != nil {
			t.Error(err)
		}
	}
	if len(numbers) != len(beds) {
		t.Errorf("%d beds have the numbers %v", len(beds), numbers)
	}
}

func TestManyHostsStartFast(t *testing.T) {
	for _, c := range []struct {
		hosts int
		limit time.Duration
	}{{3, time.Second}, {16, 4 * time.Second}} {
		New(t, Options{Hosts: c.hosts}).Close() // the first makes and stores RSA keys
		start := time.Now()
		New(t, Options{Hosts: c.hosts})
		took := time.Since(start)
		t.Logf("%d hosts in %v", c.hosts, took)
		if took > c.limit {
			t.Errorf("%d hosts took %v, at most %v", c.hosts, took, c.limit)
		}
	}
}
