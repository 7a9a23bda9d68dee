//go:build linux

package hook

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds a program that a test starts.
const patience = 30 * time.Second

// pythons are those of this machine, by how they are called. Python is what muster's hook
// must get along with in any version.
var pythons = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	candidates, _ := filepath.Glob(os.ExpandEnv("$HOME/.pyenv/versions/*/bin/python"))
	for _, name := range append(candidates, "python3") {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		version, err := exec.Command(path, "-c", "import sys; print('.'.join(str(n) for n in sys.version_info[:2]))").Output()
		if err == nil {
			found[strings.TrimSpace(string(version))] = path
		}
	}
	return found
})

// fewPythons are the usual one, the oldest and the newest from 3.6 on, and where old is set
// one that is older.
func fewPythons(old bool) map[string]string {
	chosen := map[string]string{}
	minor := func(version string) (n int) {
		_, _ = fmt.Sscanf(version, "3.%d", &n) // 0 of another
		return n
	}
	byAge := slices.SortedFunc(maps.Keys(pythons()), func(a, b string) int { return cmp.Compare(minor(a), minor(b)) })
	byAge = slices.DeleteFunc(byAge, func(v string) bool {
		if minor(v) < 6 && old {
			chosen[v] = pythons()[v]
		}
		return minor(v) < 6
	})
	for _, v := range []string{byAge[0], byAge[len(byAge)-1]} {
		chosen[v] = pythons()[v]
	}
	chosen["usual"] = "python3"
	return chosen
}

// eachPython runs a test with several.
func eachPython(t *testing.T, old bool, test func(t *testing.T, python string)) {
	t.Helper()
	if len(pythons()) == 0 {
		t.Fatal("there is no python3")
	}
	for version, path := range fewPythons(old) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, path)
		})
	}
}

// bench is where a program with the hook runs, and what it tells.
type bench struct {
	t    testing.TB
	dir  string
	hook string
	conn *net.UnixConn
	mu   sync.Mutex
	told []string
	done chan struct{}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), done: make(chan struct{})}
	b.hook = filepath.Join(b.dir, "py")
	if err := Write(b.hook); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.socket(), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		buffer := make([]byte, 64<<10)
		for {
			n, err := b.conn.Read(buffer)
			if err != nil {
				return
			}
			b.mu.Lock()
			b.told = append(b.told, strings.Split(string(buffer[:n]), "\n")...)
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() { b.conn.Close(); <-b.done })
	return b
}

func (b *bench) socket() string { return filepath.Join(b.dir, "s") }

// heard is what was told so far, in lines that begin with a word.
func (b *bench) heard(begin string) (lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.told {
		if strings.HasPrefix(line, begin) {
			lines = append(lines, line)
		}
	}
	return lines
}

// last waits for a line and returns the newest.
func (b *bench) last(begin string) string {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if lines := b.heard(begin); len(lines) > 0 {
			return lines[len(lines)-1]
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no %q was told: %q", begin, b.heard(""))
		}
	}
}

// outcome is how a program ended.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs a program, with the hook and folders of modules, or without the hook.
func (b *bench) run(hooked bool, python string, modules []string, more []string, args ...string) outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	path := strings.Join(modules, ":")
	cmd.Env = append([]string{"HOME=" + b.dir, "PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}, more...)
	if hooked {
		path = PythonPath(b.hook, path)
		cmd.Env = append(cmd.Env, "MUSTER_SOCKET="+b.socket())
	}
	if path != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+path)
	}
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil || ctx.Err() != nil {
		b.t.Fatalf("%v %v\n%s", err, ctx.Err(), stderr.String())
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// program writes a file beside the hook's folder.
func (b *bench) program(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// torch are the folders of a stand-in for torch.
func torch(t testing.TB, version string) []string {
	t.Helper()
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(here, "torch-"+version), here}
}

// What can be seen of a program that has nothing to do with torch is the same with the hook
// as without it: its path, its modules, its threads, its traceback.
func TestAProgramRunsWithTheHookAsWithoutIt(t *testing.T) {
	const source = `
import sys, threading
print([p for p in sys.path], "sitecustomize" in sys.modules, len(threading.enumerate()))
sys.stderr.write("a word\n")
raise ValueError("its own")
`
	eachPython(t, true, func(t *testing.T, python string) {
		b := newBench(t)
		path := b.program("program.py", source)
		with, without := b.run(true, python, nil, nil, path), b.run(false, python, nil, nil, path)
		if with != without || with.status != 1 {
			t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
		}
		for _, args := range [][]string{{"-c", "import sitecustomize"}, {"-c", "import torch"}, {"-W", "error", "-c", "pass"}, {"-c", "import sys; sys.exit(3)"}} {
			with, without := b.run(true, python, nil, nil, args...), b.run(false, python, nil, nil, args...)
			if with != without {
				t.Errorf("%q: with the hook: %+v\nwithout: %+v", args, with, without)
			}
		}
	})
}

func TestASitecustomizeThatIsThereRunsAsWithoutTheHook(t *testing.T) {
	for name, text := range map[string]string{
		"well":               "import builtins\nbuiltins.there = __file__\n",
		"with an error":      "raise ValueError('of the site')\n",
		"without its module": "import not_to_be_found\n",
	} {
		t.Run(name, func(t *testing.T) {
			eachPython(t, false, func(t *testing.T, python string) {
				b := newBench(t)
				site := filepath.Dir(b.program("site/sitecustomize.py", text))
				args := []string{"-c", "import builtins, sys; print(getattr(builtins, 'there', None)); import sitecustomize; print(sitecustomize.__file__)"}
				with, without := b.run(true, python, []string{site}, nil, args...), b.run(false, python, []string{site}, nil, args...)
				if with != without {
					t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
				}
				if name == "well" && !strings.Contains(with.stdout, site) {
					t.Errorf("it did not run: %+v", with)
				}
				b.last("torch python")
			})
		})
	}
}

// That of an environment lies in its site-packages, which no PYTHONPATH names.
func TestASitecustomizeInAnEnvironmentsPackagesRuns(t *testing.T) {
	b := newBench(t)
	venv := filepath.Join(b.dir, "venv")
	if out, err := exec.Command("python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(venv, "lib/python3*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "sitecustomize.py"), []byte("print('of the environment')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "usercustomize.py"), []byte("print('of the user')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(venv, "bin/python")
	with, without := b.run(true, python, nil, nil, "-c", "pass"), b.run(false, python, nil, nil, "-c", "pass")
	if with != without || !strings.Contains(with.stdout, "of the environment") {
		t.Errorf("with the hook: %+v\nwithout: %+v", with, without)
	}
	b.last("torch python")
}

func TestPythonWithoutPathsOrSiteTellsNothingAndRuns(t *testing.T) {
	for _, flag := range []string{"-S", "-I", "-E"} {
		b := newBench(t)
		if o := b.run(true, "python3", nil, nil, flag, "-c", "print('ran')"); o.status != 0 || o.stdout != "ran\n" || o.stderr != "" {
			t.Errorf("%s: %+v", flag, o)
		}
		if told := b.heard(""); len(told) > 0 {
			t.Errorf("%s: %q", flag, told)
		}
	}
}

func TestAProgramRunsOnWhereMusterIsGone(t *testing.T) {
	eachPython(t, false, func(t *testing.T, python string) {
		b := newBench(t)
		b.conn.Close()
		os.Remove(b.socket())
		o := b.run(true, python, torch(t, "2.5"), nil, "-W", "error", "-c", "import torch; torch.cuda.allocate(1 << 20); print('ran')")
		if o.status != 0 || o.stdout != "ran\n" || o.stderr != "" {
			t.Errorf("%+v", o)
		}
	})
}
