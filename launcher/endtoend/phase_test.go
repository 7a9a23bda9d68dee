//go:build linux

package endtoend

import (
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// gathering brings a launcher into a phase before the start, in which it stays.
var gathering = []struct {
	name  string
	begin func(t *testing.T, u *user) *launch
}{
	{"while a host does not answer", func(t *testing.T, u *user) *launch {
		port, accepted := silentServer(t, u.bed.Host("host-m"))
		u.ssh("silent", "HostName "+u.bed.Host("host-m").Addr.String(), "Port "+port, "ConnectTimeout 6")
		l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "silent", "host-a"}, more: shortLease}))
		select {
		case <-accepted:
		case <-time.After(patience):
			t.Fatal("nobody has connected")
		}
		for _, name := range []string{"host-z", "host-a"} {
			eventually(t, "an agent runs on "+name, func() bool { return hasRole(t, u.bed.Host(name), agent) })
		}
		return l
	}},
	{"during setup", func(t *testing.T, u *user) *launch {
		l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a"},
			more: shortLease + setup("touch "+u.path("setup-$(hostname)")+"\nsleep 1000")}))
		u.waitFor("setup-host-z", "setup-host-a")
		return l
	}},
}

func hasRole(t testing.TB, h *testbed.Host, role string) bool {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if roleOf(p) == role {
			return true
		}
	}
	return false
}

func TestALauncherThatIsGoneBeforeTheStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, phase := range gathering {
		t.Run("killed "+phase.name, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			l := phase.begin(t, u)
			l.signal(syscall.SIGKILL)
			<-l.ended
			nothingLeft(t, bed)
			if u.exists("ran") {
				t.Error("a worker was started")
			}
		})
		t.Run("suspended "+phase.name, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			l := phase.begin(t, u)
			l.signal(syscall.SIGSTOP)
			nothingLeft(t, bed)
			l.signal(syscall.SIGCONT)
			if r := l.wait(); r.status == 0 || r.status < 0 {
				t.Errorf("exit status %d; it said\n%s", r.status, r.stderr)
			}
			if u.exists("ran") {
				t.Error("a worker was started")
			}
		})
	}
}

// B06, B41
func TestAnyEndOfTheLauncherBeforeTheStartIsAtOnceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, phase := range gathering {
		for signal, c := range map[syscall.Signal]struct {
			status int
			says   string
		}{syscall.SIGINT: {130, "Ctrl-C"}, syscall.SIGTERM: {143, "SIGTERM"}, syscall.SIGHUP: {129, "SIGHUP"}} {
			t.Run(c.says+" "+phase.name, func(t *testing.T) {
				bed := lend(t)
				u := newUser(t, bed)
				l := phase.begin(t, u)
				began := time.Now()
				l.signal(signal)
				l.wait().exits(c.status).says(c.says)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				nothingLeft(t, bed)
				if u.exists("ran") {
					t.Error("a worker was started")
				}
			})
		}
	}
}

func TestTheLossOfAPartBeforeTheStartIsSaidAtOnceAndNothingStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ part, host string }{
		{agent, "host-a"}, {agent, "host-z"}, {keeper, "host-a"}, {keeper, "host-z"}, {coordinator, "host-z"},
	} {
		t.Run(c.part+" of "+c.host, func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: three,
				more: longLease + setup("touch "+u.path("setup-$(hostname)")+"\nsleep 1000")}))
			for _, name := range three {
				u.waitFor("setup-" + name)
			}
			h := bed.Host(c.host)
			signalTo(t, h, inRole(t, h, c.part), syscall.SIGKILL)
			l.waitFor(atOnce).exits(69).says(c.host)
			nothingLeft(t, bed)
			if u.exists("ran") {
				t.Error("a worker was started")
			}
		})
	}
}

func TestAHostThatIsCutOffBeforeTheStartIsSaidAfterTheLease(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: three,
		more: shortLease + setup("touch "+u.path("setup-$(hostname)")+"\nsleep 1000")}))
	for _, name := range three {
		u.waitFor("setup-" + name)
	}
	if err := bed.Host("host-a").CutSilently(); err != nil {
		t.Fatal(err)
	}
	l.wait().exits(69).says("host-a")
	nothingLeft(t, bed)
	if u.exists("ran") {
		t.Error("a worker was started")
	}
}
