//go:build unix

package gpus

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Programs are the stand-ins, built: paths of files.
type Programs struct {
	Library   string // libnvidia-ml.so.1
	NvidiaSMI string // nvidia-smi
	Worker    string // cudaworker
	// MPSControl and MPSServer are nvidia-cuda-mps-control and nvidia-cuda-mps-server, in one
	// folder.
	MPSControl, MPSServer string
}

// here is the import path of this package; the programs are below it.
const here = "github.com/muster-dev/muster/launcher/testbed/gpus"

//go:embed nvml/*.c nvml/*.h
var sources embed.FS

// Build builds the stand-ins, once for each process, into a cache folder of the user where
// what is there already stays. It needs gcc, the go command and a working folder in
// this module; the header nvml.h is that of go-nvml.
var Build = sync.OnceValues(build)

func build() (Programs, error) {
	folder, err := cache()
	if err != nil {
		return Programs{}, fmt.Errorf("gpus: %w", err)
	}
	unlock, err := lock(filepath.Join(folder, "lock"))
	if err != nil {
		return Programs{}, fmt.Errorf("gpus: %w", err)
	}
	defer unlock()
	p := Programs{NvidiaSMI: filepath.Join(folder, "nvidia-smi"), Worker: filepath.Join(folder, "cudaworker"),
		MPSControl: filepath.Join(folder, MPSControl), MPSServer: filepath.Join(folder, MPSServer)}
	var libraryErr error
	var both sync.WaitGroup
	both.Go(func() { p.Library, libraryErr = buildLibrary(folder, nil) })
	goErr := buildGo(folder)
	both.Wait()
	if err := errors.Join(libraryErr, goErr); err != nil {
		return Programs{}, fmt.Errorf("gpus: %w", err)
	}
	return p, nil
}

// Library builds the library of a scenario: that of Build, without the functions that the
// scenario lacks.
func Library(s *Scenario) (path string, err error) {
	built, err := Build()
	lacks := slices.DeleteFunc(slices.Clone(s.Lacks), func(name string) bool { return !strings.HasPrefix(name, "nvml") })
	if err != nil || len(lacks) == 0 {
		return built.Library, err
	}
	unlock, err := lock(filepath.Join(filepath.Dir(built.Library), "lock"))
	if err != nil {
		return "", fmt.Errorf("gpus: %w", err)
	}
	defer unlock()
	if path, err = buildLibrary(filepath.Dir(built.Library), lacks); err != nil {
		return "", fmt.Errorf("gpus: %w", err)
	}
	return path, nil
}

// cache is a folder for this checkout: another one may have other sources.
func cache() (string, error) {
	root, err := goCommand("list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	sum := sha256.Sum256([]byte(root))
	folder := filepath.Join(user, "muster-testbed", fmt.Sprintf("gpus-%x", sum[:6]))
	return folder, os.MkdirAll(folder, 0o755)
}

// lock keeps other processes from building into the same folder at the same time.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// LockState takes the one lock that the driver has, of the machine in a folder: who looks
// what is held and takes some himself does so with it.
func LockState(folder string) (unlock func(), err error) {
	path := filepath.Join(folder, StateFolder, "lock")
	unlock, err = lock(path)
	if err == nil {
		_ = os.Chmod(path, 0o666) // another user's it is already, if this fails
	}
	return unlock, err
}

func buildGo(folder string) error {
	_, err := goCommand("build", "-trimpath", "-ldflags", "-s -w", "-o", folder+"/",
		here+"/cmd/nvidia-smi", here+"/cmd/cudaworker", here+"/cmd/"+MPSControl, here+"/cmd/"+MPSServer)
	return err
}

func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// buildLibrary compiles the C sources without some functions, unless that was done before.
func buildLibrary(folder string, without []string) (string, error) {
	module, err := goCommand("list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml")
	if err != nil {
		return "", err
	}
	if module == "" {
		return "", errors.New("nvml.h is missing: run go mod download github.com/NVIDIA/go-nvml")
	}
	sum := sha256.New()
	fmt.Fprintln(sum, module, without)
	entries, err := sources.ReadDir("nvml")
	if err != nil {
		return "", err
	}
	texts := map[string][]byte{}
	for _, entry := range entries {
		text, err := sources.ReadFile("nvml/" + entry.Name())
		if err != nil {
			return "", err
		}
		texts[entry.Name()] = text
		fmt.Fprintf(sum, "%s\n%s\n", entry.Name(), text)
	}
	library := filepath.Join(folder, fmt.Sprintf("libnvidia-ml-%x.so.1", sum.Sum(nil)[:8]))
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	// A name counts for more than the pattern of what is exported.
	texts["exports.map"] = fmt.Appendf(nil, "{ global: nvml*; local: %s*; };\n", strings.Join(append(slices.Clone(without), ""), "; "))
	return library, compile(texts, filepath.Join(module, "pkg", "nvml"), library)
}

func compile(texts map[string][]byte, header, library string) error {
	folder, err := os.MkdirTemp("", "muster-nvml-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	args := []string{"-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
		"-isystem", header, "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=exports.map", "-o", library + ".new"}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".c") {
			args = append(args, name)
		}
	}
	cmd := exec.Command("gcc", append(args, "-lpthread")...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the NVML stand-in: %w\n%s", err, out)
	}
	return os.Rename(library+".new", library)
}
