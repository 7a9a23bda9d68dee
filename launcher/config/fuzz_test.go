package config

import (
	"errors"
	"os"
	"strings"
	"testing"
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
			if strings.ContainsRune(v.Value, 0) || !envName.MatchString(v.Name) || ownedBy(v.Name) != "" {
				t.Errorf("bad variable %+v", v)
			}
		}
		if strings.HasPrefix(host.Name, "-") || strings.HasPrefix(host.User, "-") {
			t.Errorf("%+v begins with a dash", host)
		}
	}
	if len(job.Hosts) == 0 || len(job.Command) == 0 || !jobName.MatchString(job.Name) {
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
		key, ok := deviceKey(device.Text)
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

// FuzzSize: a size is written as it was meant; what is no size has advice.
func FuzzSize(f *testing.F) {
	for _, seed := range []string{"70GiB", "1.5 TiB", "70GB", "70", "0.1MiB", "99999999999999999999TiB", "-1GiB", "1e3MiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := parseSize(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("no advice")
			}
			return
		}
		if again, err := parseSize(formatSize(size)); size >= 1<<10 && size%(1<<10) == 0 && (err != nil || again != size) {
			t.Errorf("%q is %d, written %s, which is %d, %v", text, size, formatSize(size), again, err)
		}
	})
}

// FuzzExpandHosts: what is expanded expands to itself; errors lie in the text.
func FuzzExpandHosts(f *testing.F) {
	for _, seed := range []string{"gpu[01-04]", "a,b[1,3-4]c:22", "u\\x@[2001:db8::1]:22", "a[1-[2]]", "[", "::1", "x@y@z:[1-2]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := ExpandHosts(text)
		if host, ok := errors.AsType[*HostError](err); ok {
			if host.Offset < -1 || host.Length < 0 || host.Offset > len(text) || host.Problem == "" {
				t.Errorf("%q: %+v", text, host)
			}
			return
		}
		if err != nil || len(names) == 0 || len(names) > maxHosts {
			t.Fatalf("%q: %d names, %v", text, len(names), err)
		}
		for _, name := range names {
			again, err := ExpandHosts(name)
			if err != nil || len(again) != 1 || again[0] != name || strings.HasPrefix(name, "-") {
				t.Errorf("%q of %q expands to %q, %v", name, text, again, err)
			}
		}
	})
}
