package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// onRanks evaluates a job file of one local host with these lines in its ranks block.
func onRanks(lines string) (*Job, Source, hcl.Diagnostics) {
	src := Source{Filename: "job.hcl", Text: fmt.Appendf(nil, "job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n ranks {\n%s\n }\n}", lines)}
	job, diags := src.Evaluate()
	return job, src, diags
}

// TestDevicesSayWhatToWrite: what other programs call devices gets a suggestion in the
// job file's own form.
func TestDevicesSayWhatToWrite(t *testing.T) {
	for written, want := range map[string]string{
		`["0-3"]`:              "as in devices = [0, 1]",
		`["0,1"]`:              "as in devices = [0, 1]",
		`["0, 2-3"]`:           "as in devices = [0, 1]",
		`["0;1"]`:              "as in devices = [0, 1]",
		`["0-63"]`:             "or range(0, 8)",
		`["GPU-ab,GPU-cd"]`:    "names several devices",
		`["cuda:0,cuda:1"]`:    "as in devices = [0, 1]",
		`["3-0"]`:              "names several devices",
		`["0-9999"]`:           "names several devices",
		`["cuda:0"]`:           "A device is its number",
		`["GPU 1"]`:            "names several devices",
		`["/dev/nvidia2"]`:     "A device is its number",
		`["gpu-8932f9"]`:       "A device is its number",
		`["None"]`:             `write devices = "none", without brackets`,
		`["mig-1g.10gb"]`:      `write "1g.10gb"`,
		`["MIG 3g.40gb"]`:      `write "3g.40gb"`,
		`["1g.10gb", 0]`:       "stands beside profiles of MIG",
		`"MIG-1g.10gb"`:        `Write devices = "1g.10gb" for all MIG devices of that profile, or ["1g.10gb", "1g.10gb"] for two`,
		`["MIG-GPU-8932f9/1"]`: "as nvidia-smi -L lists it",
		`["${"$"}{x}"]`:        `"$${x}" names no device`,
		`"0-3"`:                "as in devices = [0, 1].",
		`"0,1"`:                "as in devices = [0, 1].",
		`"cuda:1"`:             "how many GPUs of each host",
		`"GPU-8932f9"`:         "Write each device by itself in a list",
		`"0f:00.0"`:            "Write each device by itself in a list",
		`"ALL"`:                `Did you mean "all"?`,
		`"gpu"`:                "how many GPUs of each host, from 1 to 1024",
		`""`:                   "how many GPUs of each host, from 1 to 1024",
	} {
		_, src, diags := onRanks("devices = " + written)
		if len(diags) != 1 || !strings.Contains(diags[0].Detail, want) || diags[0].Subject.Start.Line != 5 {
			t.Errorf("devices = %s gives\n%swant %s", written, printed(src, diags), want)
		}
	}
}

// TestRanksAndDevicesOneHost: what a host is left with, "" for an error.
func TestRanksAndDevicesOneHost(t *testing.T) {
	for lines, want := range map[string]string{
		"":                                                     "0 false all 0 []",
		"per_host = \"gpu\"":                                   "0 true all 0 []",
		"per_host = 2\ndevices = \"all\"":                      "2 false all 0 []",
		"devices = 3":                                          "0 false count 3 []",
		"devices = \"3\"":                                      "0 false count 3 []",
		"devices = 0":                                          "0 false none 0 []",
		"devices = null\nper_host = null":                      "0 false all 0 []",
		"devices = [1, 0]":                                     "0 false list 0 [1 0]",
		"devices = [2]\nper_host = \"gpu\"":                    "0 true list 0 [2]",
		"devices = [007, 1e1]":                                 "0 false list 0 [7 10]",
		"devices = 2\nper_host = 2":                            "2 false count 2 []",
		"devices = 2\nper_host = 4":                            "",
		"devices = 2\nper_host = 4\nshared=true":               "4 false count 2 []",
		"devices = 4\nper_host = 2":                            "2 false count 4 []",
		"devices=4\nper_host=2\nvisibility=\"rank\"":           "",
		"devices = 2\nper_host = 4\nshared=false":              "",
		"devices = []\nper_host = 4":                           "4 false none 0 []",
		"devices = \"1G.10GB\"":                                "0 false profile 0 [1g.10gb]",
		"devices = [\"3g.40gb\", \"1g.10gb+me\"]":              "0 false profiles 0 [3g.40gb 1g.10gb+me]",
		"devices = [\"1c.3g.40gb\", \"1g.10gb\", \"1g.10gb\"]": "0 false profiles 0 [1c.3g.40gb 1g.10gb 1g.10gb]",
		"devices = [\"1g.10gb\", \"1g.10gb\", \"1g.10gb\"]\nper_host = 2": "2 false profiles 0 [1g.10gb 1g.10gb 1g.10gb]",
		"devices = [\"1g.10gb\", \"1g.10gb\"]\nper_host = 4":              "",
		"devices = []\nbackend = \"gloo\"":                                "0 false none 0 []",
	} {
		job, src, diags := onRanks(lines)
		if diags.HasErrors() != (want == "") {
			t.Errorf("%q gives\n%s", lines, printed(src, diags))
		}
		if job == nil {
			continue
		}
		host, texts := job.Hosts[0], []string{}
		for _, device := range host.Devices.List {
			texts = append(texts, device.Text)
		}
		if got := fmt.Sprintf("%d %t %s %d %s", host.PerHost, host.PerGPU, host.Devices.Kind, host.Devices.Count, texts); got != want {
			t.Errorf("%q gives %s, want %s", lines, got, want)
		}
	}
}

// TestHostsOverrideEach: a number on one host takes "gpu" back, and the other way round;
// the number of all ranks is known only where each host has one.
func TestHostsOverrideEach(t *testing.T) {
	job := evaluate(t, `job "x" {
  command = ["x"]
  hosts "ssh" {
    names = ["a", "b", "c"]
    host "a" {
      ranks { per_host = 2 }
    }
    host "b" {
      ranks { devices = [1] }
    }
  }
  ranks { per_host = "gpu" }
}`)
	a, b, c := job.Hosts[0], job.Hosts[1], job.Hosts[2]
	if a.PerHost != 2 || a.PerGPU || b.PerHost != 0 || !b.PerGPU || b.Devices.Kind != DevicesList || !c.PerGPU || c.Devices.Kind != DevicesAll {
		t.Errorf("got %+v", job.Hosts)
	}
	if size := job.worldSize(); size != 0 {
		t.Errorf("world size %d, but only the plan knows it", size)
	}
}

// TestManyDevices: a list that fills the file is refused at once.
func TestManyDevices(t *testing.T) {
	_, src, diags := onRanks("devices = [" + strings.Repeat(`"x", `, 10_000) + "]")
	if len(diags) != 1 || diags[0].Summary != "Too many devices" {
		t.Errorf("%d diagnostics", len(diags))
	}
	checkPrint(t, src, diags)
}
