package config

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config/deviceref"
	"github.com/muster-dev/muster/launcher/config/envvar"
)

// FuzzEvaluate: any text is a job or errors, the same each time, without a crash.
func FuzzEvaluate(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*.hcl", "testdata/invalid/*.hcl"} {
		for _, name := range files(f, pattern) {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text), "1")
		}
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		src := Source{Filename: "job.hcl", Text: []byte(text), Vars: map[string]string{"x": value}}
		job, diags := src.Evaluate()
		if (job == nil) != diags.HasErrors() {
			t.Fatalf("job is nil: %v, diagnostics: %v", job == nil, diags)
		}
		for _, diag := range diags {
			if diag.Summary == "" || diag.Detail == "" {
				t.Errorf("%+v lacks a text", diag)
			}
		}
		first := printed(src, diags)
		if _, again := src.Evaluate(); printed(src, again) != first {
			t.Errorf("two evaluations differ:\n%s\n%s", first, printed(src, again))
		}
		if job != nil {
			checkJob(t, job)
		}
	})
}

func checkJob(t *testing.T, job *Job) {
	checkGroups(t, job.Placement.Groups)
	for i, host := range job.Hosts[:min(len(job.Hosts), 5)] {
		checkDevices(t, host)
		env, _ := job.EnvOf(i, RankScope{Global: i, WorldSize: 10, HostName: host.Name, HostIndex: i})
		for _, v := range env {
			if strings.ContainsRune(v.Value, 0) || !envvar.IsName(v.Name) || envvar.Owner(v.Name, false) != "" {
				t.Errorf("bad variable %+v", v)
			}
		}
		if strings.HasPrefix(host.Name, "-") || strings.HasPrefix(host.User, "-") {
			t.Errorf("%+v begins with a dash", host)
		}
	}
	if len(job.Hosts) == 0 || len(job.Command) == 0 || !jobNameForm.MatchString(job.Name) {
		t.Errorf("bad job %+v", job)
	}
}

func checkGroups(t *testing.T, groups []Group) {
	for i, group := range groups {
		if group.Size < 2 || i > 0 && groups[i-1].Size%group.Size != 0 {
			t.Errorf("bad groups %+v", groups)
		}
	}
}

func checkDevices(t *testing.T, host Host) {
	named := map[string]bool{}
	for _, device := range host.Devices.List {
		key, ok := deviceref.Key(device.Text)
		if host.Devices.Kind != DevicesList {
			continue // profiles
		}
		if !ok || named[key] {
			t.Errorf("bad device %q", device.Text)
		}
		named[key] = true
	}
	switch kind := host.Devices.Kind; {
	case (kind == DevicesCount) != (host.Devices.Count > 0), (kind == DevicesList) != (len(named) > 0),
		kind == DevicesNone && host.PerGPU, kind == "", host.PerGPU && host.PerHost > 0:
		t.Errorf("bad host %+v", host)
	}
}
