//go:build linux

package software

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

const (
	cuda12 = "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n__version__ = '2.4.0+cu121'\ndebug = False\ncuda: Optional[str] = '12.1'\nhip: Optional[str] = None\n"
	onCPU  = "__version__ = '2.4.0+cpu'\ncuda: Optional[str] = None\n"
	oldOne = "__version__ = '1.13.1+cu117'\ncuda = '11.7'\n"
	nvidia = "__version__ = '2.4.0a0+3bcc3cddb5.nv24.07'\ncuda: Optional[str] = '12.5'\n"
)

// venvOf is a venv of /usr/bin/python3 in /home/ann/venv.
func venvOf(settings string) map[string]string {
	return map[string]string{
		"usr/bin/python3.11":                "",
		"usr/bin/python3":                   "-> python3.11",
		"usr/lib/python3.11/os.py":          "",
		"home/ann/venv/bin/python3":         "-> /usr/bin/python3",
		"home/ann/venv/bin/python":          "-> python3",
		"home/ann/venv/pyvenv.cfg":          "home = /usr/bin\nversion = 3.11.7\n" + settings,
		"home/ann/venv/lib64":               "-> lib",
		"home/ann/venv/bin/torchrun":        "#!/home/ann/venv/bin/python\nimport re\n",
		"home/ann/venv/bin/longrun":         "#!/bin/sh\n'''exec' /home/ann/venv/bin/python \"$0\" \"$@\"\n' '''\nimport re\n",
		"home/ann/venv/bin/spaced":          "#!/bin/sh\n'''exec' \"/home/ann/venv/bin/python\" \"$0\" \"$@\"\n' '''\n",
		"home/ann/venv/bin/movable":         "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''\n",
		"home/ann/venv/bin/accelerate":      "#!/usr/bin/env -S python3 -u\n",
		"home/ann/code/run.sh":              "#!/bin/bash\nexec python train.py\n",
		"home/ann/code/wrapped":             "#!/usr/bin/env conda\n",
		"home/ann/code/binary":              "\x7fELF",
		"home/ann/venv/lib/python3.11/keep": "",
	}
}

const venvPackages = "home/ann/venv/lib/python3.11/site-packages/"

var ncclWheel = map[string]string{
	venvPackages + "torch/version.py":                       cuda12,
	venvPackages + "nvidia_nccl_cu12-2.20.5.dist-info/keep": "",
}

func TestVersionsAreReadWithoutStartingPython(t *testing.T) {
	fresh := venvOf("include-system-site-packages = false\n")
	for _, test := range []struct {
		name    string
		files   map[string]string
		program string
		environ map[string]string
		want    facts.Software
	}{
		{"a venv by PATH", hostfstest.Merge(fresh, ncclWheel), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cu121", NCCL: "2.20.5"}},
		{"a venv by path", hostfstest.Merge(fresh, ncclWheel), "../venv/bin/python3", nil,
			facts.Software{Python: "/home/ann/venv/bin/python3", Version: "3.11.7", Torch: "2.4.0+cu121", NCCL: "2.20.5"}},
		{"a path from home", hostfstest.Merge(fresh, ncclWheel), "~/venv/bin/python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cu121", NCCL: "2.20.5"}},
		{"torch made for CPUs", hostfstest.Merge(fresh, map[string]string{venvPackages + "torch/version.py": onCPU}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cpu", Why: "torch 2.4.0+cpu is made without CUDA"}},
		{"NCCL built in, whatever the system has", hostfstest.Merge(fresh, map[string]string{venvPackages + "torch/version.py": oldOne,
			"usr/lib/x86_64-linux-gnu/libnccl.so.2": "-> libnccl.so.2.22.3"}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "1.13.1+cu117", Why: "torch 1.13.1+cu117 has NCCL built in, or loads one that does not tell its version"}},
		{"only what pip noted down", hostfstest.Merge(fresh, map[string]string{venvPackages + "torch-2.3.1.dist-info/METADATA": ""}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.3.1", Why: "torch 2.3.1 has NCCL built in, or loads one that does not tell its version"}},
		{"the system's torch is not a closed venv's", hostfstest.Merge(fresh, map[string]string{"usr/lib/python3/dist-packages/torch/version.py": cuda12,
			venvPackages + "keep": ""}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Why: "there is no torch in /home/ann/venv/lib/python3.11/site-packages"}},
		{"it is an open one's", hostfstest.Merge(venvOf("include-system-site-packages = true\n"), map[string]string{"usr/lib/python3/dist-packages/torch/version.py": onCPU}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cpu", Why: "torch 2.4.0+cpu is made without CUDA"}},
		{"PYTHONPATH comes first", hostfstest.Merge(fresh, ncclWheel, map[string]string{"opt/mine/torch/version.py": "__version__ = '2.6.0'\n"}), "python",
			map[string]string{"PYTHONPATH": ":/opt/mine"}, facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.6.0", NCCL: "2.20.5"}},
		{"the user's before the system's", hostfstest.Merge(fresh, map[string]string{"home/ann/.local/lib/python3.11/site-packages/torch/version.py": onCPU,
			"usr/lib/python3/dist-packages/torch/version.py": cuda12}), "/usr/bin/python3", nil,
			facts.Software{Python: "/usr/bin/python3", Version: "3.11", Torch: "2.4.0+cpu", Why: "torch 2.4.0+cpu is made without CUDA"}},
		{"NVIDIA's container", hostfstest.Merge(fresh, map[string]string{"usr/local/lib/python3.11/dist-packages/torch/version.py": nvidia,
			"usr/lib/x86_64-linux-gnu/libnccl.so.2": "-> libnccl.so.2.22.3"}), "/usr/bin/python3", map[string]string{"HOME": ""},
			facts.Software{Python: "/usr/bin/python3", Version: "3.11", Torch: "2.4.0a0+3bcc3cddb5.nv24.07", NCCL: "2.22.3"}},
		{"conda", map[string]string{"opt/conda/bin/python": "-> python3.12", "opt/conda/bin/python3.12": "",
			"opt/conda/lib/python3.12/site-packages/torch/version.py": "__version__ = '2.5.1'\ncuda: Optional[str] = '12.4'\n",
			"opt/conda/lib/python3.1":                                 "-> python3.12", "opt/conda/include/python3.12/patchlevel.h": "/* Version as a string */\n#define PY_VERSION      \t\"3.12.4\"\n", "opt/conda/conda-meta/nccl-2.21.5.1-h1234_0.json": "{}"}, "/opt/conda/bin/python", nil,
			facts.Software{Python: "/opt/conda/bin/python", Version: "3.12.4", Torch: "2.5.1", NCCL: "2.21.5.1"}},
		{"a package that is developed elsewhere", hostfstest.Merge(fresh, map[string]string{venvPackages + "dev.pth": "import x\n/home/ann/pytorch\n",
			"home/ann/pytorch/torch/version.py": onCPU}), "python", nil,
			facts.Software{Python: "/home/ann/venv/bin/python", Version: "3.11.7", Torch: "2.4.0+cpu", Why: "torch 2.4.0+cpu is made without CUDA"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			environ := hostfstest.Merge(map[string]string{"PATH": "/home/ann/venv/bin:/usr/bin", "HOME": "/home/ann"}, test.environ)
			if got := Find(hostfstest.Tree(t, test.files), test.program, environ, "/home/ann/code"); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestScriptsLeadToTheirInterpreter(t *testing.T) {
	root := hostfstest.Tree(t, hostfstest.Merge(venvOf(""), ncclWheel, map[string]string{"home/ann/bin/moved": "-> ../venv/bin/movable"}))
	environ := map[string]string{"PATH": "/home/ann/venv/bin:/home/ann/bin", "HOME": "/home/ann"}
	for program, want := range map[string]string{
		"torchrun": "/home/ann/venv/bin/python", "longrun": "/home/ann/venv/bin/python",
		"spaced": "/home/ann/venv/bin/python", "movable": "/home/ann/venv/bin/python3",
		"moved": "/home/ann/venv/bin/python3", "accelerate": "/home/ann/venv/bin/python3",
	} {
		if got := Find(root, program, environ, "/"); got.Python != want || got.Torch == "" {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

func TestAShimOfPyenvIsSeenThrough(t *testing.T) {
	const shim = "#!/usr/bin/env bash\nexec pyenv exec python\n"
	root := hostfstest.Tree(t, map[string]string{
		"home/ann/.pyenv/shims/python": shim, "home/ann/.pyenv/shims/torchrun": shim, "home/ann/.pyenv/version": "3.12.1\n",
		"home/ann/.pyenv/versions/3.12.1/bin/python": "", "home/ann/.pyenv/versions/3.9.2/bin/python": "", "home/ann/.pyenv/versions/3.9.18/bin/python": "",
		"home/ann/old/.python-version": "3.9\n", "home/ann/old/src/train.py": "", "usr/bin/python": "",
	})
	for _, test := range []struct{ program, workdir, version, want string }{
		{"python", "/home/ann", "", "/home/ann/.pyenv/versions/3.12.1/bin/python"},
		{"python", "/home/ann/old/src", "", "/home/ann/.pyenv/versions/3.9.18/bin/python"},
		{"python", "/home/ann/old", "3.9.2", "/home/ann/.pyenv/versions/3.9.2/bin/python"},
		{"python", "/home/ann/old", "system", "/usr/bin/python"},
		{"torchrun", "/home/ann", "", ""},
	} {
		environ := map[string]string{"PATH": "/home/ann/.pyenv/shims:/usr/bin", "PYENV_VERSION": test.version}
		if got := Find(root, test.program, environ, test.workdir); got.Python != test.want {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

func TestWhatHidesTheInterpreterIsSaid(t *testing.T) {
	root := hostfstest.Tree(t, venvOf(""))
	environ := map[string]string{"PATH": "/home/ann/venv/bin"}
	for program, want := range map[string]string{
		"uv": "uv run hides", "/opt/conda/bin/conda": "conda run hides", "apptainer": "inside a container image", "bash": "a shell hides",
		"./run.sh": "/home/ann/code/run.sh is a shell script", "./wrapped": "conda run hides", "./binary": "neither a Python nor a script",
		"python2": "there is no python2 in PATH (/home/ann/venv/bin)", "./gone": "/home/ann/code/gone is not there",
	} {
		if got := Find(root, program, environ, "/home/ann/code"); !strings.Contains(got.Why, want) || got.Python != "" {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

func TestTheVersionOfPythonIsToldAsExactlyAsFilesDo(t *testing.T) {
	lib := map[string]string{"opt/py/bin/python3": "", "opt/py/lib/python3.12/os.py": ""}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"by the library", lib, "3.12"},
		{"of two libraries neither", hostfstest.Merge(lib, map[string]string{"opt/py/lib/python3.11/os.py": ""}), ""},
		{"of two libraries the one that the program is named after", map[string]string{"opt/py/bin/python3": "-> python3.11", "opt/py/bin/python3.11": "", "opt/py/lib/python3.11/os.py": "", "opt/py/lib/python3.12/os.py": ""}, "3.11"},
		{"virtualenv's note", hostfstest.Merge(lib, map[string]string{"opt/py/pyvenv.cfg": "version_info = 3.12.1.final.0\nversion = 3.12.1\n"}), "3.12.1"},
		{"headers are newer than the note", hostfstest.Merge(lib, map[string]string{"opt/py/pyvenv.cfg": "version = 3.12.1\n", "opt/py/include/python3.12/patchlevel.h": "#define PY_VERSION \"3.12.9\"\n"}), "3.12.9"},
	} {
		if got := Find(hostfstest.Tree(t, test.files), "/opt/py/bin/python3", nil, "/"); got.Version != test.want {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// What hides the interpreter can be started all the same, or not.
func TestAProgramThatCannotBeStartedIsSaid(t *testing.T) {
	root := hostfstest.Tree(t, hostfstest.Merge(venvOf(""), map[string]string{
		"home/ann/venv/bin/uv": "\x7fELF", "home/ann/venv/bin/stale": "#!/old/venv/bin/python\n", "home/ann/venv/bin/lost": "#!/usr/bin/env -S python9 -u\n",
		"usr/bin/env": "\x7fELF", "bin/sh": "\x7fELF", "bin/bash": "\x7fELF",
	}))
	environ := map[string]string{"PATH": "/home/ann/venv/bin", "HOME": "/home/ann"}
	for program, want := range map[string]string{
		"python": "", "torchrun": "", "uv": "", "./run.sh": "", "./binary": "", "longrun": "", "~/code/run.sh": "",
		"poetry":  "there is no poetry in PATH (/home/ann/venv/bin)",
		"python2": "there is no python2 in PATH (/home/ann/venv/bin)",
		"./gone":  "/home/ann/code/gone is not there, or cannot be run",
		"stale":   "/home/ann/venv/bin/stale names an interpreter: /old/venv/bin/python is not there, or cannot be run",
		"lost":    "/home/ann/venv/bin/lost names an interpreter: there is no python9 in PATH (/home/ann/venv/bin)",
	} {
		if got := Find(root, program, environ, "/home/ann/code"); got.Missing != want {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

// The tree above is of our own making; this one, where tests with torch have left it, is not.
func TestVersionsOfARealVenv(t *testing.T) {
	found, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".cache/muster-tests/torch-*/bin/torchrun"))
	if len(found) == 0 {
		t.Skip("no venv with torch is here")
	}
	bin := filepath.Dir(found[0])
	_, want, _ := strings.Cut(filepath.Base(filepath.Dir(bin)), "torch-")
	for _, program := range []string{"python", "torchrun"} {
		s := Find("", program, map[string]string{"PATH": bin, "HOME": os.Getenv("HOME")}, "/")
		if s.Version == "" || s.Missing != "" || !strings.HasPrefix(s.Torch, want) || s.NCCL == "" && !strings.Contains(s.Why, "without CUDA") {
			t.Errorf("%s: %+v", program, s)
		}
	}
}
