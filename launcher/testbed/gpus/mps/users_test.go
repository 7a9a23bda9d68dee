//go:build linux

package mps_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func TestOneServerForAllUsers(t *testing.T) {
	b := newBench(t, gpus.L40S())
	said, err := b.command(b.control, "-d", "-multiuser-server").CombinedOutput()
	if os.Getuid() != 0 {
		if err == nil || !strings.Contains(string(said), "Insufficient privileges for UID") {
			t.Errorf("%v, %q", err, said)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, folder := range []string{filepath.Dir(b.pipes), b.pipes} {
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	other := *b
	other.folderFor(1042)
	first := b.client(nil)
	if second := other.client(nil, "-uid", "1042"); second.line.MPS.Server != first.line.MPS.Server {
		t.Error("two servers")
	}
}

func TestUsersTakeTurns(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBench(t, gpus.L40S())
	for _, folder := range []string{filepath.Dir(b.pipes), b.pipes, b.logs} { // others may come in
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	b.folderFor(1042)
	b.start()
	first := b.client(nil)
	second := b.command(b.work, "-uid", "1042", "-for", "1ms")
	var out bytes.Buffer
	second.Stdout, second.Stderr = &out, &out
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	b.await("the second user's client", func() bool { return strings.Contains(b.log("control.log"), "from user 1042: Server is not ready") })
	if !runs(first.line.MPS.Server) || out.Len() > 0 {
		t.Errorf("the second user did not wait: %s", out.String())
	}
	first.kill()
	if err := second.Wait(); err != nil || !strings.Contains(out.String(), `"server":`) {
		t.Errorf("%v: %s", err, out.String())
	}
	if runs(first.line.MPS.Server) {
		t.Error("both users have a server")
	}
	stranger := b.command(b.control)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1042, Gid: 1042}}
	stranger.Stdin = strings.NewReader("quit\n")
	if said, err := stranger.Output(); err == nil || string(said) != "Cannot authenticate or connect to MPS control daemon process\n" {
		t.Errorf("another user's daemon: %v, %q", err, said)
	}
}

// folderFor lets another user's processes reach the machine and the programs.
func (b *bench) folderFor(uid int) {
	b.t.Helper()
	root, err := os.MkdirTemp("", "mps")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		b.t.Fatal(err)
	}
	s, err := gpus.Read(b.folder)
	if err != nil {
		b.t.Fatal(err)
	}
	b.folder = filepath.Join(root, "machine")
	if err := s.Write(b.folder); err != nil {
		b.t.Fatal(err)
	}
	for _, path := range []*string{&b.control, &b.work} {
		*path = copied(b.t, *path, root)
	}
	copied(b.t, filepath.Join(filepath.Dir(b.programs().MPSServer), "nvidia-cuda-mps-server"), root)
	b.env = append(b.env, gpus.Variable+"="+b.folder)
}

func (b *bench) programs() gpus.Programs {
	built, err := gpus.Build()
	if err != nil {
		b.t.Fatal(err)
	}
	return built
}

func copied(t *testing.T, path, into string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(into, filepath.Base(path))
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
