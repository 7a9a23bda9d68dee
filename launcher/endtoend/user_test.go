//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// user is somebody who types muster commands. Their folder is their home where they type,
// and is seen by all hosts at the same path, so that workers' scripts and what workers
// leave for the test can lie there too. It is not the home that they have on the hosts.
type user struct {
	t   testing.TB
	bed *testbed.Bed
	dir string
	// since is when the test has begun.
	since time.Time
	// at is the host they sit at; nil: the machine, which is none of the hosts.
	at *testbed.Host
	// open are files that the user's shell has open when it starts muster.
	open []*os.File
	// env are variables that the user has set.
	env []string
	// under are words that what the user starts stands behind, such as "nohup".
	under []string
	// input is the standard input of what the user starts; nil: /dev/null.
	input *os.File
	// deaf has the shell ignore signals, as shells do for what runs in the background and
	// nohup does: programs inherit that.
	deaf bool
}

// newUser makes a user of a bed who sits at the machine. When the test ends, whatever
// their commands have started must be gone.
func newUser(t testing.TB, bed *testbed.Bed) *user {
	t.Helper()
	dir, err := os.MkdirTemp(bed.Shared, "user-")
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, bed: bed, dir: dir, since: time.Now()}
	t.Cleanup(func() {
		if t.Failed() {
			u.logAgents()
		}
	})
	t.Cleanup(func() { nothingLeft(t, bed) })
	for _, name := range []string{"id_ed25519", "known_hosts", "config"} {
		text, err := os.ReadFile(filepath.Join(bed.ClientHome, ".ssh", name))
		if err != nil {
			t.Fatal(err)
		}
		u.file(".ssh/"+name, strings.ReplaceAll(string(text), bed.ClientHome, dir))
	}
	return u
}

// logAgents shows what agents and coordinators have said in the runs of a test that failed.
func (u *user) logAgents() {
	homes := []string{u.dir}
	for _, h := range u.bed.Hosts {
		homes = append(homes, h.Home)
	}
	for _, home := range homes {
		for _, folder := range runFolders(home) {
			log := filepath.Join(folder, "agent.log")
			info, err := os.Stat(log)
			if err != nil || info.ModTime().Before(u.since) || info.Size() == 0 {
				continue
			}
			text, _ := os.ReadFile(log)
			u.t.Logf("%s ends with:\n%s", log, text[max(0, len(text)-2000):])
		}
	}
}

// sittingAt makes the user type at a host.
func (u *user) sittingAt(name string) *user {
	u.t.Helper()
	if u.at = u.bed.Host(name); u.at == nil {
		u.t.Fatalf("there is no host %s", name)
	}
	return u
}

// file writes a file of the user and returns its path.
func (u *user) file(name, text string) string {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// path is where a file of the user lies.
func (u *user) path(name string) string { return filepath.Join(u.dir, name) }

func (u *user) exists(name string) bool {
	_, err := os.Lstat(u.path(name))
	return err == nil
}

// waitFor waits until a worker has made a file.
func (u *user) waitFor(names ...string) {
	u.t.Helper()
	for _, name := range names {
		eventually(u.t, name+" is made", func() bool { return u.exists(name) })
	}
}

// read returns what a worker has written.
func (u *user) read(name string) string {
	u.t.Helper()
	text, err := os.ReadFile(u.path(name))
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// ssh adds a host to the user's ssh_config. What comes first wins there.
func (u *user) ssh(name string, lines ...string) {
	u.t.Helper()
	text := fmt.Sprintf("Host %s\n  %s\n  User root\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n\n",
		name, strings.Join(lines, "\n  "), u.path(".ssh/id_ed25519"), u.path(".ssh/known_hosts"))
	u.file(".ssh/config", text+u.read(".ssh/config"))
}

// job is what tests say of a job file.
type job struct {
	name    string // "t" unless set
	command []string
	script  string   // in place of command: what sh is to run
	hosts   []string // by SSH; none: local
	perHost int      // 1 unless set
	blocks  string   // inside of the hosts block
	more    string   // inside of the job block
}

// write writes the job file and returns its path.
func (u *user) write(j job) string {
	u.t.Helper()
	if j.name == "" {
		j.name = "t"
	}
	if j.script != "" {
		j.command = []string{"sh", u.file(j.name+".sh", j.script)}
	}
	hosts := `hosts "local" {}`
	if len(j.hosts) > 0 {
		hosts = fmt.Sprintf("hosts \"ssh\" {\n    names = %s\n%s\n  }", hclList(j.hosts), j.blocks)
	}
	return u.file(j.name+".hcl", fmt.Sprintf("job %s {\n  command = %s\n  %s\n  ranks {\n    per_host = %d\n  }\n%s\n}\n",
		hclString(j.name), hclList(j.command), hosts, max(j.perHost, 1), j.more))
}

func hclList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = hclString(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// hclString writes a string as HCL has it.
func hclString(text string) string {
	return `"` + strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").Replace(text) + `"`
}

// runFolders are the folders that runs have left in a home.
func runFolders(home string) []string {
	found, _ := filepath.Glob(filepath.Join(home, ".local/state/muster/runs/*/*"))
	return found
}
