package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// theSecret has digits, so that it is no number, word or name by chance.
const theSecret = "Zq7-secret-x9"

// places are where expressions stand, with what becomes of an expression there.
var places = []string{
	"command = [\"x\", %s]",
	"command = %s",
	"command = [\"x\"]\n workdir = %s",
	"command = [\"x\"]\n setup = %s",
	"command = [\"x\"]\n python = %s",
	"command = [\"x\"]\n lease = %s",
	"command = [\"x\"]\n ports = %s",
	"command = [\"x\"]\n forward = %s",
	"command = [\"x\"]\n forward = [%s]",
	"command = [\"x\"]\n ranks {\n per_host = %s\n }",
	"command = [\"x\"]\n ranks {\n devices = %s\n }",
	"command = [\"x\"]\n ranks {\n devices = [%s]\n }",
	"command = [\"x\"]\n ranks {\n groups = %s\n }",
	"command = [\"x\"]\n ranks {\n groups = { (%s) = 2 }\n }",
	"command = [\"x\"]\n ranks {\n min_free = %s\n }",
	"command = [\"x\"]\n ranks {\n backend = %s\n }",
	"command = [\"x\"]\n allocator {\n max_split_size = %s\n }",
	"command = [\"x\"]\n allocator {\n roundup_power2_divisions = { (%s) = 2 }\n }",
	"command = [\"x\"]\n allocator {\n max_split_size_mb = %s\n }",
	"command = [\"x\"]\n plugin \"p\" {\n path = %s\n sha256 = %[1]s\n args = [%[1]s]\n }",
	"command = [\"x\"]\n logs {\n show = %s\n }",
	"command = [\"x\"]\n stop {\n grace = %s\n signal = %[1]s\n }",
	"command = [\"x\"]\n env = { A = %s }",
	"command = [\"x\"]\n env = { A = [%s] }",
	"command = [\"x\"]\n env = { (%s) = 1 }",
	"command = [\"x\"]\n env = { PYTORCH_CUDA_ALLOC_CONF = %s, NCCL_ALGO = %[1]s }",
	"command = [\"x\"]\n env = %s",
	"command = [\"x\"]\n env = { A = env_of_host(%s) }",
	"command = [\"x\"]\n env = { A = append(%[1]s, tostring(gpu.uuid)), B = append(%[1]s, env_of_host(\"X\")) }",
}

// secretExpressions make something of the secret, or fail with it.
var secretExpressions = []string{
	`var.s`, `var["s"]`, `var`, `var.s + 1`, `-var.s`, `!var.s`, `var.s ? 1 : 2`, `var.s.a`, `var.s[0]`, `var.s[*].a`, `"${var.s}"`, `"a${var.s}b"`,
	`"%{if var.s}a%{endif}"`, `"%{for x in var.s}${x}%{endfor}"`, `[var.s]`, `{ a = var.s }`, `{ (var.s) = 1 }`, `{ (var.s) = 1, (var.s) = 2 }`,
	`[for x in [var.s] : x]`, `{ for x in [var.s, var.s] : x => 1 }`, `{ for x in ["a", "b"] : var.s => x }`, `[for x in ["a"] : x if var.s]`,
	`{ a = 1 }[var.s]`, `["a"][var.s]`, `{ a = 1 }[lower(var.s)]`, `var.o.k`, `var.o.none`, `var.o[var.s]`, `var.o`, `[for k, v in var.o : v]`, `merge(var.o, { a = 1 })`, `merge({ A = var.s }, { B = 2 })`,
	`tonumber(var.s)`, `tostring(var.s)`, `tonumber(var.o)`, `jsondecode(var.s)`, `jsonencode(var.s)`, `jsonencode(var.o)`, `format(var.s)`, `format("%d", var.s)`, `format("%s", var.s)`, `format("%v", var.o)`,
	`join(var.s, ["a", "b"])`, `join(",", [var.s])`, `join(",", var.s)`, `split(var.s, "a")`, `split("-", var.s)`, `split("-", var.s)[99]`, `replace(var.s, "a", "b")`, `upper(var.s)`, `lower(var.s)`, `trimspace(var.s)`,
	`coalesce(var.s)`, `coalesce(null, var.s)`, `concat([var.s], ["a"])`, `concat(var.s)`, `length(var.s)`, `length([var.s])`, `max(var.s, 1)`, `min(1, var.s)`, `ceil(var.s)`, `floor(var.s)`, `range(var.s)`,
	`append("a", var.s)`, `append("b", "a", var.s)`, `var.s == "x"`, `var.s == var.o`, `var.s > 3`, `"${var.s}" + "${var.o}"`, `var.s == "" ? var.s : [var.s]`, `(var.s)`, `nothing(var.s)`, `var.s.${var.s}`,
}

// TestSecretsAreNeverShown: whatever is made of a secret, and wherever it stands, nothing
// that is shown has it, and only env carries it.
func TestSecretsAreNeverShown(t *testing.T) {
	for _, place := range places {
		for _, expr := range secretExpressions {
			text := "variable \"s\" {\n sensitive = true\n}\nvariable \"o\" {\n default = {}\n sensitive = true\n}\njob \"x\" {\n hosts \"local\" {}\n " +
				fmt.Sprintf(place, expr) + "\n}\n"
			src := Source{Filename: "job.hcl", Text: []byte(text), Vars: map[string]string{"s": theSecret, "o": `{ k = "` + theSecret + `", "` + theSecret + `" = 1 }`}}
			job, diags := src.Evaluate()
			checkHidden(t, text, printed(src, diags)+diags.Error())
			if job == nil {
				continue
			}
			checkHidden(t, text, fmt.Sprint(job.Command, job.Hosts, job.Placement, job.Allocator, job.Forward))
			vars, more := job.EnvOf(0, RankScope{GPU: &gpu.ID{UUID: "GPU-1"}, HostEnv: map[string]string{"X": "x"}})
			checkHidden(t, text, printed(src, more)+fmt.Sprintf("%v %+v %#v %s", vars, vars, vars, vars))
			for _, v := range vars {
				if hasSecret(v.Name) || hasSecret(v.Value) && !v.Sensitive {
					t.Errorf("%s gives %s = %s", text, v.Name, v.Value)
				}
			}
		}
	}
}

func hasSecret(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "zq7") || strings.Contains(text, "x9")
}

func checkHidden(t *testing.T, file, shown string) {
	t.Helper()
	if hasSecret(shown) {
		t.Errorf("%s shows\n%s", file, shown)
	}
}

// TestSecretDefaultsAreNotShown: nor what is wrong about them.
func TestSecretDefaultsAreNotShown(t *testing.T) {
	for _, def := range []string{`"` + theSecret + `"`, theSecret, "Zq7", `Zq7("x9")`, `tonumber("` + theSecret + `")`, `["` + theSecret + `", 1 + "x9"]`, "3\n default = \"" + theSecret + "\"", `"` + theSecret, "{\n a = " + theSecret + "\n}"} {
		text := "variable \"s\" {\n default = " + def + "\n sensitive = true\n}\njob \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n env = { A = var.s }\n}\n"
		for _, vars := range []map[string]string{nil, {"s": "ABC"}, {"s": theSecret}} {
			src := Source{Filename: "job.hcl", Text: []byte(text), Vars: vars}
			_, diags := src.Evaluate()
			if len(diags) == 0 {
				t.Errorf("%s is silent", text)
			}
			checkHidden(t, text, printed(src, diags))
		}
	}
	text := "variable \"s\" { default = \"" + theSecret + "\", sensitive = true }\n" + "job \"x\" {\n}\n"
	src := Source{Filename: "job.hcl", Text: []byte(text)}
	_, diags := src.Evaluate()
	checkHidden(t, text, printed(src, diags))
}

// TestSecretValuesOfVar: what -var says is not repeated.
func TestSecretValuesOfVar(t *testing.T) {
	for _, def := range []string{"3", "true", "[]", "{}", `""`, "null"} {
		text := "variable \"s\" {\n default = " + def + "\n sensitive = true\n}\njob \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n env = { A = jsonencode(var.s) }\n}\n"
		for _, value := range []string{theSecret, `["` + theSecret, "{ a = " + theSecret + " }", "{" + theSecret + "}", theSecret + "("} {
			src := Source{Filename: "job.hcl", Text: []byte(text), Vars: map[string]string{"s": value, "t": value}}
			_, diags := src.Evaluate()
			checkHidden(t, text, printed(src, diags))
		}
	}
}

const machineJob = `
variable "token" {
  sensitive = true
}
variable "team" { default = "x" }
job "x" {
  command = ["x", var.team]
  hosts "local" {}
  env = { HF_TOKEN = var.token, GONE = null, WANDB_MODE = "offline" }
  forward = ["WANDB_*", "GONE", "${var.team}_KEY", "*_PROXY", "PATH"]
}
`

var machine = []string{
	"MUSTER_VAR_token=t1", "MUSTER_VAR_team=TEAM", "MUSTER_VAR_other=x", "MUSTER_VAR_=x", "WANDB_API_KEY=w1", "WANDB_MODE=online", "WANDB=x", "XWANDB_A=x",
	"GONE=1", "TEAM_KEY=k=1", "HTTP_PROXY=p", "XDG_PROXY=x", "PATH=/bin", "HOME=/home/u", "WANDB_BAD=\xff", "=C:=x", "WANDB_LONG=" + strings.Repeat("x", 200_000),
}

// TestWithEnviron: the launching machine's environment comes into a job by MUSTER_VAR_ and
// forward, and in no other way; env wins.
func TestWithEnviron(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(machineJob)}.WithEnviron(machine)
	job, diags := src.Evaluate()
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	vars, diags := job.EnvOf(0, RankScope{})
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	var got []string
	for _, v := range vars {
		got = append(got, fmt.Sprintf("%s=%s %v %s", v.Name, v.Value, v.Sensitive, v.Source))
	}
	want := []string{
		"HF_TOKEN=t1 true job.hcl:9",
		"HTTP_PROXY=p true forwarded from the launching machine",
		"PATH=/bin true forwarded from the launching machine",
		"TEAM_KEY=k=1 true forwarded from the launching machine",
		"WANDB_API_KEY=w1 true forwarded from the launching machine",
		"WANDB_MODE=offline false job.hcl:9",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if job.Command[1] != "TEAM" {
		t.Errorf("command is %q", job.Command)
	}
}

func TestVarWinsOverEnviron(t *testing.T) {
	given := map[string]string{"team": "Y"}
	src := Source{Filename: "job.hcl", Text: []byte(machineJob), Vars: given}.WithEnviron(append(machine, "Y_KEY=y"))
	if src.Vars["team"] != "Y" || src.Vars["token"] != "t1" || src.Forwarded["Y_KEY"] != "y" || src.Forwarded["TEAM_KEY"] != "" {
		t.Errorf("got %v %v", src.Vars, src.Forwarded)
	}
	if len(given) != 1 {
		t.Error("the caller's map was changed")
	}
}

// TestEnvironOfBrokenFiles: no job file makes it fail.
func TestEnvironOfBrokenFiles(t *testing.T) {
	for _, text := range []string{"", "\x00", "job", "variable {}\nvariable \"token\" {\n", "job \"x\" {\n forward = [x]\n}", "job \"x\" {\n forward = 1\n}\njob \"y\" {\n forward = [\"A\"]\n}", strings.Repeat("(", 1000)} {
		Source{Filename: "x", Text: []byte(text)}.WithEnviron(machine).WithoutSecrets().Evaluate()
	}
}

// TestForwardSaysWhatIsNotSet: a name that is written out, where the machine was asked.
func TestForwardSaysWhatIsNotSet(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(machineJob)}.WithEnviron([]string{"MUSTER_VAR_token=x"})
	_, diags := src.Evaluate()
	if len(diags) != 3 || diags[0].Summary != "Nothing to forward" || !strings.HasPrefix(diags[0].Detail, "GONE is not set") {
		t.Error(printed(src, diags))
	}
}

// TestWithoutSecrets: what is saved has no secret, and the environment puts it back.
func TestWithoutSecrets(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(machineJob), Vars: map[string]string{"token": theSecret, "team": "a"}}.WithEnviron(machine)
	bare := src.WithoutSecrets()
	if len(bare.Vars) != 1 || bare.Vars["team"] != "a" || bare.Forwarded != nil || src.Vars["token"] != theSecret {
		t.Errorf("got %v %v of %v", bare.Vars, bare.Forwarded, src.Vars)
	}
	if again := bare.WithEnviron(machine); again.Vars["token"] != "t1" || again.Forwarded["WANDB_API_KEY"] != "w1" {
		t.Errorf("got %v %v", again.Vars, again.Forwarded)
	}
}

// TestForwardedIsCheckedAgain: a source may come from the network.
func TestForwardedIsCheckedAgain(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(machineJob), Vars: map[string]string{"token": "x"},
		Forwarded: map[string]string{"WANDB_A": "1", "RANK": "1", "OTHER": "1", "WANDB_N": "\x00", "GONE": "", "x_KEY": "", "PATH": ""}}
	job, diags := src.Evaluate()
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	vars, _ := job.EnvOf(0, RankScope{})
	for _, v := range vars {
		if v.Name == "RANK" || v.Name == "OTHER" || v.Name == "WANDB_N" {
			t.Errorf("%s was forwarded", v.Name)
		}
	}
}

func TestHostEnv(t *testing.T) {
	job := evaluate(t, `variable "n" { default = "B_VAR" }
job "x" {
  command = ["x"]
  hosts "ssh" {
    names = ["a", "b"]
    host "b" {
      env = { C = env_of_host("C_VAR") }
    }
  }
  env = {
    LD = append("/opt", env_of_host("LD_LIBRARY_PATH"))
    PY = append(env_of_host(var.n), "/src", ";")
    G  = "${gpu.uuid}/${gpu.index}/${gpu.pci}"
    I  = 7 / (gpu.index - 1)
  }
}`)
	if got := job.HostEnvNames(); !slices.Equal(got, []string{"B_VAR", "C_VAR", "LD_LIBRARY_PATH"}) {
		t.Errorf("got %v", got)
	}
	scope := RankScope{GPU: &gpu.ID{UUID: "GPU-1", PCI: "0000:1b:00.0", Index: 3}, HostEnv: map[string]string{"LD_LIBRARY_PATH": "/lib", "B_VAR": "x:y"}}
	vars, diags := job.EnvOf(1, scope)
	if want := "[C= G=GPU-1/3/0000:1b:00.0 I=3.5 LD=/opt:/lib PY=x:y;/src]"; len(diags) > 0 || fmt.Sprint(vars) != want {
		t.Errorf("got %v %v", vars, diags)
	}
	if _, diags := job.EnvOf(0, RankScope{}); !diags.HasErrors() || !strings.Contains(diags.Error(), "null") {
		t.Errorf("a rank without a GPU: %v", diags)
	}
}
