package config

import (
	"regexp"
	"strings"
	"testing"
)

// anyPlace is a place in a file, as jobs have it.
var anyPlace = regexp.MustCompile(`testdata/syntax/train\.hcl(\.json)?:[0-9,:-]+`)

// TestJSON_IsTheSameJob: a job file in HCL's JSON syntax gives the same job as its native form,
// but for places.
func TestJSON_IsTheSameJob(t *testing.T) {
	var jobs []string
	for _, name := range []string{"testdata/syntax/train.hcl", "testdata/syntax/train.hcl.json"} {
		src := readFile(t, name)
		job, diags := src.Evaluate()
		if len(diags) > 0 {
			t.Fatal(printed(src, diags))
		}
		jobs = append(jobs, anyPlace.ReplaceAllString(string(dump(t, job)), "PLACE"))
		vars, _ := job.EnvOf(0, RankScope{Global: 6, HostName: "gpu01", WorldSize: 10, HostEnv: map[string]string{"LD_LIBRARY_PATH": "/x"}})
		if got := vars[0].Value + " " + vars[2].Value; vars[0].Name != "LIBS" || got != "/opt/lib:/x 2" {
			t.Errorf("%s: %v", name, vars)
		}
	}
	if jobs[0] != jobs[1] {
		t.Errorf("native:\n%s\nJSON:\n%s", jobs[0], jobs[1])
	}
}

// TestJSON_ErrorsHaveTheirPlaces: what is wrong is told as in native files, all at once.
func TestJSON_ErrorsHaveTheirPlaces(t *testing.T) {
	src := Source{Filename: "job.json", Text: []byte(`{
  "variable": { "token": { "default": "x9", "sensitive": true } },
  "job": { "j": {
    "comand": ["python"],
    "workdir": 3,
    "setup": "${HOME}",
    "env": { "A": "${env(\"HOME\")}", "RANK": 1 },
    "hosts": { "ssh": { "names": ["gpu[1-"] } },
    "stop": { "grace": "30" }
  } }
}`)}
	_, diags := src.Evaluate()
	text := printed(src, diags)
	for _, want := range []string{
		`Did you mean "command"?`, "at job.json:4,", "workdir is text in quotes, not the number 3.", "at job.json:5,", "There is no \"HOME\".",
		"There is no function \"env\".", "RANK cannot be set in env", "at job.json:7,", "\"[\" without \"]\"", "at job.json:8,", "\"30\" is not a time",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "x9") {
		t.Errorf("a secret is shown:\n%s", text)
	}
}
