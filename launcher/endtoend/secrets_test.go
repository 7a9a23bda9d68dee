//go:build linux

package endtoend

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// secret is a value that only workers are to have.
type secret struct{ name, value string }

func (s secret) sum() string {
	sum := sha256.Sum256([]byte(s.value))
	return hex.EncodeToString(sum[:])
}

// forms are how the value may stand in a text: as it is, or within something in base64, of
// which three bytes make four letters, so that it depends on what comes before.
func (s secret) forms() (forms []string) {
	forms = append(forms, s.value)
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + s.value))
		forms = append(forms, text[4:len(text)-4])
	}
	return forms
}

// shows reports whether a text has a secret in it.
func shows(text []byte, secrets []secret) (which string, shown bool) {
	for _, s := range secrets {
		for _, form := range s.forms() {
			if bytes.Contains(text, []byte(form)) {
				return s.name, true
			}
		}
	}
	return "", false
}

// noneOf checks that what a command has said shows no secret.
func (r result) noneOf(what string, secrets []secret) result {
	r.t.Helper()
	if which, shown := shows([]byte(r.stdout+r.stderr), secrets); shown {
		r.t.Errorf("%s shows %s:\n%s\n%s", what, which, r.stdout, r.stderr)
	}
	return r
}

// commandLinesShow are the processes of the machine and of all hosts whose arguments have a
// secret in them.
func commandLinesShow(secrets []secret) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if which, shown := shows(text, secrets); shown {
			found = append(found, fmt.Sprintf("%s shows %s: %.200q", path, which, text))
		}
	}
	return found
}

// filesShow are the files below folders that have a secret in them.
func filesShow(t *testing.T, secrets []secret, folders ...string) (found []string) {
	t.Helper()
	seen := 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil // it is gone by now, or nothing to be read
			}
			info, err := entry.Info()
			if err != nil || info.Size() > 10<<20 {
				return nil // the programs themselves
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			seen++
			if which, shown := shows(text, secrets); shown {
				found = append(found, path+" shows "+which)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 5 {
		t.Errorf("only %d files were found in %q", seen, folders)
	}
	return found
}

// placesOf are the folders in which muster may leave something on a host.
func placesOf(h *testbed.Host) []string {
	places := []string{h.Home}
	for _, folder := range []string{"/tmp", "/run", "/dev/shm", "/var/tmp"} {
		places = append(places, fmt.Sprintf("/proc/%d/root%s", h.PID(), folder))
	}
	return places
}

// secretScript leaves sums of what a worker was given, and stays until it is told to end.
const secretScript = `
for name in TOKEN OTHER SECRET_KEY JOINED; do
  eval "value=\$$name"
  printf %%s "$value" | sha256sum | cut -d' ' -f1 >%[1]s/$name-$RANK
done
touch %[1]s/ready-$RANK
while [ ! -e %[1]s/end ]; do sleep 0.02; done`

var (
	token  = secret{"token", "tok-4f81c2d9e7b0a655"}
	other  = secret{"other", "oth-93b7d01e5c8842fa"}
	toSend = secret{"SECRET_KEY", "key-c06d7e21f3a94b58"}
	typed  = secret{"token", "var-5a0e9c7713bd26f4"}
	// plain is no secret: who looks for secrets has to find it.
	plain = secret{"the plain word", "pln-2b9e6f0d4c7a8153"}
)

// secretJob is a job whose workers get secrets by all ways that there are.
func (u *user) secretJob(command string, hosts []string) string {
	u.t.Helper()
	return u.file("secret.hcl", fmt.Sprintf(`variable "token" { sensitive = true }
variable "other" { sensitive = true }
job "secret" {
  command = %s
  forward = ["SECRET_*"]
  env = {
    TOKEN    = var.token
    OTHER    = var.other
    JOINED   = "${var.token}/${rank.global}"
    NCCL_PSK = var.token
  }
  setup = "env; set -x; : %s"
  hosts "ssh" {
    names = %s
  }
}
`, command, plain.value, hclList(hosts)))
}

func TestASecretReachesWorkersAndIsSeenByNobodyElse(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	secrets := []secret{token, other, toSend}
	u.env = []string{"MUSTER_VAR_token=" + token.value, "MUSTER_VAR_other=" + other.value, toSend.name + "=" + toSend.value}
	hosts := three[:2]
	path := u.secretJob(hclList([]string{"sh", u.file("secret.sh", fmt.Sprintf(secretScript, u.dir)), plain.value}), hosts)
	saved := u.path("plan.json")
	for _, words := range []string{"", "--json", "--env 1", "--env 1 --json", "--diff", "--diff --json", "--save " + saved} {
		r := u.run(append([]string{"plan", path}, strings.Fields(words)...)...).exits(0).noneOf("plan "+words, secrets)
		if strings.HasPrefix(words, "--env") {
			r.prints("TOKEN", "SECRET_KEY", "hidden") // that they are set is no secret
		}
	}
	u.run("check", path, "--json").exits(0).noneOf("check", secrets)

	l := u.start("run", path)
	l.waitRunning(u, len(hosts))
	for rank := range hosts {
		joined := secret{value: fmt.Sprintf("%s/%d", token.value, rank)}
		for name, want := range map[string]secret{"TOKEN": token, "OTHER": other, "SECRET_KEY": toSend, "JOINED": joined} {
			if got := u.read(fmt.Sprintf("%s-%d", name, rank)); got != want.sum()+"\n" {
				t.Errorf("rank %d has another %s", rank, name)
			}
		}
	}
	if found := commandLinesShow(secrets); len(found) > 0 {
		t.Errorf("lists of processes: %q", found)
	}
	if found := commandLinesShow([]secret{plain}); len(found) < len(hosts) {
		t.Errorf("of workers' arguments were found %q", found)
	}
	for _, words := range []string{"status -", "status - --json", "ps", "ps --json", "logs -"} {
		u.run(strings.Fields(words)...).noneOf(words, secrets)
	}
	places := []string{u.dir}
	for _, name := range hosts {
		places = append(places, placesOf(bed.Host(name))...)
	}
	found := filesShow(t, secrets, places...) // while it runs too
	u.file("end", "")
	l.wait().exits(0).noneOf("run", secrets)
	u.run("report", "-").exits(0).noneOf("report", secrets)
	u.run("report", "-", "--json").exits(0).noneOf("report --json", secrets)
	if found = append(found, filesShow(t, secrets, places...)...); len(found) > 0 {
		t.Errorf("files: %q", found)
	}
	for _, name := range hosts {
		if found := filesShow(t, []secret{plain}, bed.Host(name).Home+"/.local/state/muster"); len(found) == 0 {
			t.Errorf("what setup has printed on %s was not found", name)
		}
		if log := newest(t, bed.Host(name).Home, "setup.log"); !strings.Contains(log, "HOME=") {
			t.Errorf("setup on %s has printed no environment: %q", name, log)
		}
	}
	u.savedPlanAsks(saved, secrets)
}

// savedPlanAsks: a saved plan has no secrets, and takes them from the environment again.
func (u *user) savedPlanAsks(saved string, secrets []secret) {
	u.t.Helper()
	if err := os.Remove(u.path("TOKEN-1")); err != nil {
		u.t.Fatal(err)
	}
	u.run("run", "--plan", saved).exits(0).noneOf("run --plan", secrets)
	if got := u.read("TOKEN-1"); got != token.sum()+"\n" {
		u.t.Error("a worker of a saved plan has another token")
	}
	u.env = []string{"MUSTER_VAR_other=" + other.value}
	u.run("run", "--plan", saved).exits(78).says("token").noneOf("run --plan", secrets)
}

// What -var says stands in the arguments of the launcher, as its user has chosen, but in
// those of no other process.
func TestASecretOfACommandLineGoesNoFurtherThanThat(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.env = []string{"MUSTER_VAR_other=" + other.value, "MUSTER_VAR_token=this loses"}
	path := u.secretJob(hclList([]string{"sh", u.file("secret.sh", fmt.Sprintf(secretScript, u.dir))}), []string{"host-a"})
	l := u.start("run", path, "-var", "token="+typed.value)
	l.waitRunning(u, 1)
	if got := u.read("TOKEN-0"); got != typed.sum()+"\n" {
		t.Error("the worker has another token")
	}
	for _, found := range commandLinesShow([]secret{typed}) {
		if !strings.HasPrefix(found, fmt.Sprintf("/proc/%d/", l.command.Process.Pid)) {
			t.Error(found)
		}
	}
	u.file("end", "")
	l.wait().exits(0).noneOf("run", []secret{typed, other})
	if found := filesShow(t, []secret{typed, other}, append(placesOf(bed.Host("host-a")), u.dir)...); len(found) > 0 {
		t.Errorf("files: %q", found)
	}
}

// What libraries make of a value is said in words that quote it, but not of this one.
func TestASecretThatLibrariesMisreadIsNotQuoted(t *testing.T) {
	u := newUser(t, theUnlike(t))
	u.env = []string{"MUSTER_VAR_token=" + token.value, "MUSTER_VAR_other=max_split_size_mb:128,garbage_collection_threshold:0." + strings.Repeat("7", 20), "NCCL_ALGO=" + toSend.value}
	hidden := []secret{token, toSend, {"other", "0." + strings.Repeat("7", 20)}}
	path := u.file("misread.hcl", fmt.Sprintf(`variable "token" { sensitive = true }
variable "other" { sensitive = true }
job "misread" {
  command = ["true"]
  forward = ["NCCL_*"]
  env = {
    NCCL_BUFFSIZE           = var.token
    NCCL_SOCKET_IFNAME      = "=eno1,${var.token}"
    PYTORCH_CUDA_ALLOC_CONF = var.other
  }
  hosts "ssh" {
    names = ["left", "middle"]
  }
  allocator {
    max_split_size = "64MiB"
  }
  %s
}
`, machinesOwn))
	for _, words := range []string{"plan", "plan --json", "plan --env 0", "plan --diff", "check", "check --json", "run", "report -", "report - --json"} {
		parts := strings.Fields(words)
		if parts[0] != "report" {
			parts = append([]string{parts[0], path}, parts[1:]...)
		}
		u.run(parts...).noneOf(words, hidden)
	}
	if found := filesShow(t, hidden, append(placesOf(u.bed.Host("left")), u.dir)...); len(found) > 0 {
		t.Errorf("files: %q", found)
	}
}

func TestASecretWhereOthersWouldSeeItIsRefusedWithoutShowingIt(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.env = []string{"MUSTER_VAR_token=" + token.value}
	for _, body := range []string{
		"command = [\"sh\", var.token]\n hosts \"local\" {}",
		"command = [\"sh\", \"--key=${var.token}\"]\n hosts \"local\" {}",
		"command = [\"sh\"]\n workdir = var.token\n hosts \"local\" {}",
		"command = [\"sh\"]\n setup = \"export T=${var.token}\"\n hosts \"local\" {}",
		"command = [\"sh\"]\n hosts \"ssh\" {\n names = [var.token]\n }",
		"command = [\"sh\"]\n env = { (var.token) = 1 }\n hosts \"local\" {}",
		"command = [\"sh\"]\n env = { N = var.token + 1 }\n hosts \"local\" {}",
	} {
		path := u.file("seen.hcl", "variable \"token\" { sensitive = true }\njob \"seen\" {\n "+body+"\n}\n")
		u.run("run", path).exits(78).says("seen.hcl:", "ensitive").noneOf(body, []secret{token})
	}
}

func TestASecretOfARestartRuleIsNotReported(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.env = []string{"MUSTER_VAR_token=" + token.value}
	path := u.file("again.hcl", fmt.Sprintf(`variable "token" { sensitive = true }
job "again" {
  command = ["sh", "-c", "test \"$TOKEN\" = %s"]
  hosts "ssh" {
    names = ["host-a"]
  }
  restart {
    attempts = 1
    on "exit" {
      attempts = 1
      env      = { TOKEN = var.token }
    }
  }
}
`, "$(cat "+u.file("expected", token.value)+")"))
	u.run("run", path).exits(0).noneOf("run", []secret{token})
	for _, words := range []string{"report -", "report - --json", "status -", "logs -"} {
		u.run(strings.Fields(words)...).noneOf(words, []secret{token})
	}
	if err := os.Remove(u.path("expected")); err != nil {
		t.Fatal(err)
	}
	if found := filesShow(t, []secret{token}, append(placesOf(bed.Host("host-a")), u.dir)...); len(found) > 0 {
		t.Errorf("files: %q", found)
	}
}

func TestTheFoldersOfARunAreTheUsersOwn(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.runJob(job{script: "umask 0; true", hosts: three[:2]}).exits(0)
	for _, home := range []string{u.dir, bed.Host("host-z").Home, bed.Host("host-a").Home} {
		root := filepath.Join(home, ".local/state/muster")
		folders := []string{}
		for _, folder := range runFolders(home) {
			folders = append(folders, folder, filepath.Dir(folder))
		}
		if home != u.dir && len(folders) == 0 {
			t.Errorf("no run has left anything in %s", home)
		}
		for _, folder := range append(folders, root) {
			info, err := os.Stat(folder)
			if err != nil {
				t.Errorf("%v", err)
			} else if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %v", folder, info.Mode())
			}
		}
	}
}

// B10, B65
func TestVariablesOfTheLaunchingMachineStayThere(t *testing.T) {
	bed := threeHosts(t)
	set := map[string]string{
		"FOO": "1", "CUDA_VISIBLE_DEVICES": "0", "HOSTNAME": "laptop", "TMPDIR": "/run/x", "LD_LIBRARY_PATH": "/laptop/lib",
		"PYTHONPATH": "/laptop/python", "CONDA_PREFIX": "/laptop/conda", "DISPLAY": ":7", "XDG_RUNTIME_DIR": "/run/user/7", "SLURM_NTASKS": "7", "NCCL_DEBUG": "INFO",
	}
	u := newUser(t, bed)
	for name, value := range set {
		u.env = append(u.env, name+"="+value)
	}
	script := fmt.Sprintf(dumpSelf, u.dir)
	u.runJob(job{script: script, hosts: three[:2]}).exits(0)
	for rank := range 2 {
		got := u.environOf(rank)
		for name, value := range set {
			if got[name] == value {
				t.Errorf("rank %d has %s=%s of the launching machine", rank, name, value)
			}
		}
	}
	// Patterns are about what is the user's; what describes the machine is to be written out.
	u.runJob(job{script: script, hosts: three[:2], more: `forward = ["FO*", "CONDA_*", "X*", "DISPLAY"]`}).exits(0)
	for rank := range 2 {
		got := u.environOf(rank)
		if got["FOO"] != "1" || got["DISPLAY"] != ":7" || got["CONDA_PREFIX"] != "" || got["XDG_RUNTIME_DIR"] == "/run/user/7" {
			t.Errorf("rank %d has FOO=%q, DISPLAY=%q, CONDA_PREFIX=%q, XDG_RUNTIME_DIR=%q", rank, got["FOO"], got["DISPLAY"], got["CONDA_PREFIX"], got["XDG_RUNTIME_DIR"])
		}
	}
	// The machine that one sits at is a host like others: what it has set is its own.
	local := newUser(t, bed).sittingAt("host-z")
	local.env = []string{"FOO=1", "LD_LIBRARY_PATH=/laptop/lib", "SSH_CONNECTION=a b c d", "MUSTER_VAR_token=" + token.value, "RANK=7"}
	local.runJob(job{script: fmt.Sprintf(dumpSelf, local.dir)}).exits(0)
	got := local.environOf(0)
	if got["FOO"] != "1" || got["LD_LIBRARY_PATH"] != "/laptop/lib" || got["SSH_CONNECTION"] != "" || got["RANK"] != "0" || got["MUSTER_VAR_token"] != "" {
		t.Errorf("a local worker has %v", got)
	}
	local.run("plan", local.path("t.hcl"), "--env", "0").exits(0).prints("# the environment of localhost", "FOO=1")
	u.run("run", u.write(job{script: "true", hosts: three[:1], more: `forward = ["CUDA_VISIBLE_DEVICES"]`})).exits(78).says("CUDA_VISIBLE_DEVICES cannot be forwarded")
}
