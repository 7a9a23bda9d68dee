package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestValidFiles: files in testdata/valid are silent and decode to what their
// golden file says.
func TestValidFiles(t *testing.T) {
	for _, name := range files(t, "testdata/valid/*.hcl") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src := readFile(t, name)
			job, diags := src.Evaluate()
			if len(diags) > 0 {
				t.Fatalf("not silent:\n%s", printed(src, diags))
			}
			compareGolden(t, strings.TrimSuffix(name, ".hcl")+".json", dump(t, job))
		})
	}
}

// TestInvalidFiles: files in testdata/invalid give exactly the diagnostics that
// their comments want. See wanted.
func TestInvalidFiles(t *testing.T) {
	for _, name := range files(t, "testdata/invalid/*.hcl") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src := readFile(t, name)
			job, diags := src.Evaluate()
			if (job == nil) != diags.HasErrors() {
				t.Errorf("job is nil: %v, errors: %v", job == nil, diags.HasErrors())
			}
			want, got := wanted(src.Text), found(t, diags)
			if !slices.Equal(got, want) {
				t.Errorf("got:\n  %s\nwant:\n  %s\n\n%s", strings.Join(got, "\n  "), strings.Join(want, "\n  "), printed(src, diags))
			}
		})
	}
}

var (
	wantComment = regexp.MustCompile(`# (want|warn)([+-][0-9]+)?: (.*)$`)
	varComment  = regexp.MustCompile(`(?m)^# var: ([^=]+)=(.*)$`)
)

// wanted reads comments such as "# want: Wrong type | Wrong type" (errors of this
// line), "# want-1: ..." (of the line above) and "# warn: ...".
func wanted(text []byte) []string {
	var want []string
	for i, line := range strings.Split(string(text), "\n") {
		match := wantComment.FindStringSubmatch(strings.TrimRight(line, "\r"))
		if match == nil {
			continue
		}
		distance, _ := strconv.Atoi(match[2])
		for summary := range strings.SplitSeq(match[3], " | ") {
			want = append(want, fmt.Sprintf("%04d %s: %s", i+1+distance, match[1], summary))
		}
	}
	slices.Sort(want)
	return want
}

func found(t *testing.T, diags hcl.Diagnostics) []string {
	var got []string
	for _, diag := range diags {
		kind := "want"
		if diag.Severity == hcl.DiagWarning {
			kind = "warn"
		}
		if diag.Detail == "" || diag.Subject == nil {
			t.Errorf("%q has no detail or no place", diag.Summary)
			continue
		}
		got = append(got, fmt.Sprintf("%04d %s: %s", diag.Subject.Start.Line, kind, diag.Summary))
	}
	slices.Sort(got)
	return got
}

// readFile reads a job file; comments such as "# var: NAME=VALUE" are its -var.
func readFile(t *testing.T, name string) Source {
	t.Helper()
	src, diags := Read(name, nil, nil)
	src.Dir = "/home/u/job" // as if started there
	if diags.HasErrors() {
		t.Fatal(printed(src, diags))
	}
	for _, match := range varComment.FindAllStringSubmatch(string(src.Text), -1) {
		if src.Vars == nil {
			src.Vars = map[string]string{}
		}
		src.Vars[match[1]] = match[2]
	}
	return src
}

func files(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return names
}

func printed(src Source, diags hcl.Diagnostics) string {
	var b strings.Builder
	_ = WriteDiagnostics(&b, src, diags, 100, false)
	return b.String()
}

// dump is the job as golden files have it, with env for the first rank and the
// last rank of each host.
func dump(t *testing.T, job *Job) []byte {
	t.Helper()
	type host struct {
		Host
		Devices    string
		Range      string
		First, End []EnvVar `json:",omitempty"`
	}
	type plugin struct {
		*Plugin
		Range string
	}
	view := struct {
		*Job
		Placement string
		Plugin    *plugin `json:",omitempty"`
		Hosts     []host
		Stop      string
		Logs      string
		Lease     string
	}{Job: job, Placement: fmt.Sprintf("%+v", job.Placement), Stop: fmt.Sprint(job.Stop), Logs: job.Logs.Show.String(), Lease: job.Lease.String()}
	if job.Plugin != nil {
		view.Plugin = &plugin{job.Plugin, job.Plugin.Range.String()}
	}
	before := 0
	for i, h := range job.Hosts {
		v := host{Host: h, Devices: fmt.Sprintf("%+v", h.Devices), Range: h.Range.String()}
		last := max(h.PerHost, 1) - 1
		v.First = envOf(t, job, i, RankScope{Global: before, Local: 0, WorldSize: 16, HostName: h.Name, HostIndex: i})
		v.End = envOf(t, job, i, RankScope{Global: before + last, Local: last, WorldSize: 16, HostName: h.Name, HostIndex: i})
		before += last + 1
		view.Hosts = append(view.Hosts, v)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(view); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func envOf(t *testing.T, job *Job, host int, scope RankScope) []EnvVar {
	t.Helper()
	env, diags := job.EnvOf(host, scope)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return env
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (update with -update); got:\n%s", name, got)
	}
}
