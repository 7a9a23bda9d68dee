//go:build linux

package endtoend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// sitePlugin builds the example of a site's own plugin where hosts see it.
func (u *user) sitePlugin() (path, sum string) {
	u.t.Helper()
	path = u.path("muster-plugin-rocm")
	ctx, cancel := context.WithTimeout(u.t.Context(), 2*time.Minute)
	defer cancel()
	if err := inTree(ctx, "go", "build", "-o", path, "./examples/plugin-rocm"); err != nil {
		u.t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		u.t.Fatal(err)
	}
	hash := sha256.Sum256(program)
	return path, hex.EncodeToString(hash[:])
}

func TestASitesOwnPluginLooksAtItsDevices(t *testing.T) {
	u := newUser(t, threeHosts(t))
	path, sum := u.sitePlugin()
	sysfs := u.path("sysfs")
	if err := os.CopyFS(sysfs, os.DirFS(filepath.Join(tree, "examples/plugin-rocm/testdata/sys"))); err != nil {
		t.Fatal(err)
	}
	write := func(path, sum string, args ...string) string {
		return u.file("rocm.hcl", fmt.Sprintf(`job "rocm" {
  command = ["sh", "-c", "echo $HIP_VISIBLE_DEVICES $LOCAL_RANK"]
  hosts "ssh" {
    names = ["host-a"]
  }
  ranks { min_free = "1GiB" }
  plugin "rocm" {
    path   = %q
    sha256 = %q
    args   = %s
  }
}`, path, sum, hclList(args)))
	}
	r := u.run("run", write(path, sum, "-sysfs", sysfs)).exits(0)
	r.prints("host-a:3| 0,1,2,3 3\n")
	u.run("probe", write(path, sum, "-sysfs", sysfs)).exits(0).prints("by rocm", "2 islands of NVLink")

	none := u.file("no-plugin", "#!/bin/sh\necho hello\n")
	if err := os.Chmod(none, 0o700); err != nil {
		t.Fatal(err)
	}
	hello := sha256.Sum256([]byte("#!/bin/sh\necho hello\n"))
	wrong := hex.EncodeToString(make([]byte, sha256.Size))
	u.run("run", write(path, wrong)).exits(75).says("host-a should have GPUs (the job file's plugin rocm)", "write the new sha256 in the job file")
	u.run("run", write(u.path("nothing"), sum)).exits(75).says("there is no such file on this host")
	u.run("run", write(none, hex.EncodeToString(hello[:]))).exits(75).says("hello")
}

// A claim is the run's: it ends with the run, however that ends.
func TestAKilledRunHoldsNoGPUs(t *testing.T) {
	bed := ownBed(t, testbed.Options{GPUs: onThisMachine(t, gpus.L40S())})
	u := newUser(t, bed)
	for _, role := range []string{agent, "keeper"} {
		l := u.start("run", u.gpuJobFor("1h", []string{"node1"}, "", shortLease))
		eventually(t, "four workers hold memory", func() bool { return len(holdings(t, bed.Hosts[0])) == 4 })
		u.run("run", u.gpuJob([]string{"node1"}, "")).exits(75).says("muster's run g-", "holds it")
		for _, p := range inRole(t, bed.Hosts[0], role) {
			if err := bed.Hosts[0].Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		l.wait()
		nothingLeft(t, bed)
		u.run("run", u.gpuJob([]string{"node1"}, "")).exits(0)
	}
}
