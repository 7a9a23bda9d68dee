package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// scripts are what ranks run by Python.
//
//go:embed torch/*.py
var scripts embed.FS

// torch is what Python says of its own.
type torch struct {
	Version string `json:"torch"`
	NCCL    string `json:"nccl"` // "": there is none
	CUDA    bool   `json:"cuda"`
	Python  string `json:"python"`
}

// script lays a script of these into the folder.
func (s *session) script(name string) (path string, err error) {
	text, err := scripts.ReadFile("torch/" + name)
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.out, runFolder, name)
	return path, os.WriteFile(path, text, 0o644)
}

// findTorch asks Python, once. The error is why there is no torch to check anything by.
func (s *session) findTorch(ctx context.Context) error {
	if s.noTorch == nil && s.torch == (torch{}) {
		s.noTorch = s.askPython(ctx)
	}
	return s.noTorch
}

func (s *session) askPython(ctx context.Context) error {
	const another = "; -python names another Python"
	program, err := exec.LookPath(s.python)
	if err != nil {
		return impossible(fmt.Sprintf("there is no %s%s", s.python, another))
	}
	path, err := s.script("versions.py")
	if err != nil {
		return err
	}
	o, err := s.command(ctx, program, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(o.stdout), &s.torch); err != nil || o.exit != 0 {
		why := cmp.Or(lastLine(o.last()), fmt.Sprintf("it ends with status %d and says nothing", o.exit))
		return impossible(fmt.Sprintf("%s has no torch that works: %s%s", program, why, another))
	}
	s.python = program
	if !s.torch.CUDA {
		return impossible(fmt.Sprintf("torch %s of %s has no CUDA here%s", s.torch.Version, program, another))
	}
	return nil
}

func lastLine(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// torchHere is an error where no torch can be tried on a GPU.
func (s *session) torchHere(ctx context.Context) error {
	if err := s.whole(); err != nil {
		return err
	}
	return s.findTorch(ctx)
}

// checkTorchFound: muster reads files where Python imports.
func checkTorchFound(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	j, err := s.writePython("torch-found", "versions.py", "")
	if err != nil {
		return err
	}
	o, err := s.command(ctx, s.muster, "probe", j.path)
	if err != nil {
		return err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	if o.exit != 0 {
		return fmt.Errorf("muster probe ends with status %d: %s", o.exit, o.last())
	}
	if !strings.Contains(o.stdout, "torch "+s.torch.Version) {
		return fmt.Errorf("%s imports torch %s, and muster probe does not tell of it; it is in runs/%s.txt", s.torch.Python, s.torch.Version, j.name)
	}
	s.note("torch %s, NCCL %s", s.torch.Version, s.torch.NCCL)
	if s.torch.NCCL != "" && !strings.Contains(o.stdout, "NCCL "+s.torch.NCCL) {
		s.note("muster does not find that NCCL")
	}
	return nil
}

// writePython writes a job whose one rank runs a script by Python on the first GPU.
func (s *session) writePython(what, script, more string) (job, error) {
	path, err := s.script(script)
	j := s.name(what)
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText([]string{s.python, path}, []string{"devices = [" + quote(s.usable[0].UUID) + "]"}, more))
	return j, err
}

// runPython plans such a job and runs it to its end. into takes the rank's JSON.
func (s *session) runPython(ctx context.Context, j job, into any) (plannedRank, said, error) {
	p, o, err := s.runPlanned(ctx, j, into)
	if p == nil {
		return plannedRank{}, o, err
	}
	return p.Ranks[0], o, err
}

// runPlanned is runPython for jobs of several ranks: into takes the JSON of the first that
// says any. The plan is nil where there is none.
func (s *session) runPlanned(ctx context.Context, j job, into any) (*planned, said, error) {
	p, err := s.plan(ctx, j)
	if err != nil {
		return nil, said{}, err
	}
	o, err := s.command(ctx, s.muster, "run", j.path)
	if err != nil {
		return p, o, err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	if o.exit != 0 {
		return p, o, fmt.Errorf("muster run ends with status %d: %s", o.exit, o.last())
	}
	for line := range strings.Lines(o.stdout) {
		if _, text, is := strings.Cut(line, "| {"); is && json.Unmarshal([]byte("{"+text), into) == nil {
			return p, o, nil
		}
	}
	return p, o, errors.New("the rank has not said what it found")
}

// allocators are blocks that together have all settings. What this torch does not know
// muster is to leave out.
var allocators = []string{`
    max_split_size                    = "128MiB"
    max_non_split_rounding            = "64MiB"
    garbage_collection_threshold      = 0.8
    roundup_power2_divisions          = { "256MiB" = 1, "512MiB" = 2, "1GiB" = 4, ">" = 8 }
    memory_fraction                   = 0.9`, `
    expandable_segments         = true
    roundup_power2_divisions    = 4
    large_segment_size          = "32MiB"`, `
    backend = "cudaMallocAsync"`,
}

// checkAllocator has torch read what muster makes of the allocator block: it stops at the
// first thing that it does not know.
func checkAllocator(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	for i, block := range allocators {
		j, err := s.writePython(fmt.Sprintf("torch-allocator-%d", i), "allocator.py", "  allocator {"+block+"\n  }\n")
		if err != nil {
			return err
		}
		var got struct{ Settings map[string]string }
		rank, _, err := s.runPython(ctx, j, &got)
		if err != nil {
			return err
		}
		if len(got.Settings) == 0 {
			return fmt.Errorf("the rank was given no settings of%s", block)
		}
		for name, value := range got.Settings {
			if want := rank.env(name); value != want {
				return fmt.Errorf("the rank has %s=%s, and %s in the plan", name, value, want)
			}
			s.note("%s=%s", name, value)
		}
	}
	return nil
}

// checkUnknownSetting: does torch stop at what it does not know? If it does not, the check
// before this one proves less.
func checkUnknownSetting(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	j, err := s.writePython("torch-unknown", "allocator.py", "  env = { PYTORCH_CUDA_ALLOC_CONF = \"no_such_setting:1\" }\n")
	if err != nil {
		return err
	}
	o, err := s.command(ctx, s.muster, "run", j.path)
	if err != nil {
		return err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	switch o.exit {
	case 0:
		s.note("torch %s goes on", s.torch.Version)
	case refused:
		return fmt.Errorf("muster has refused it: %s", o.last())
	default:
		s.note("torch %s stops there", s.torch.Version)
	}
	return nil
}

// bufferSize is what the block below asks for, in the form that NCCL reads.
const bufferSize = "8388608"

const ncclBlock = `  nccl {
    buffer_size  = "8MiB"
    debug        = "INFO"
    debug_subsys = ["INIT", "ENV"]
  }
`

// checkNCCL has one rank make a communicator in the environment of a plan.
func checkNCCL(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	if s.torch.NCCL == "" {
		return impossible(fmt.Sprintf("torch %s has no NCCL", s.torch.Version))
	}
	j, err := s.writePython("torch-nccl", "nccl.py", ncclBlock)
	if err != nil {
		return err
	}
	var got struct {
		Sum   float64
		World int
	}
	rank, o, err := s.runPython(ctx, j, &got)
	if err != nil {
		return err
	}
	if got.World != 1 || got.Sum != 1 {
		return fmt.Errorf("a world of %d, and a sum of %v", got.World, got.Sum)
	}
	if value := rank.env("NCCL_BUFFSIZE"); value != bufferSize {
		return fmt.Errorf("the plan has NCCL_BUFFSIZE=%s", value)
	}
	const words = "NCCL_BUFFSIZE set by environment to "
	_, read, said := strings.Cut(o.all(), words)
	switch {
	case !said:
		s.note("NCCL does not tell the size of its buffers")
	case !strings.HasPrefix(read, bufferSize):
		read, _, _ = strings.Cut(read, "\n")
		return fmt.Errorf("NCCL says %s%s", words, read)
	default:
		s.note("NCCL says %s%s", words, bufferSize)
	}
	return nil
}
