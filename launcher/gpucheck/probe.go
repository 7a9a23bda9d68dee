package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

// raw are commands whose output is kept as it is.
var raw = []struct {
	file string
	argv []string
}{
	{"nvidia-smi-q-x.xml", []string{"nvidia-smi", "-q", "-x"}},
	{"nvidia-smi-L.txt", []string{"nvidia-smi", "-L"}},
	{"nvidia-smi-topo-m.txt", []string{"nvidia-smi", "topo", "-m"}},
	{"nvidia-smi-nvlink-s.txt", []string{"nvidia-smi", "nvlink", "-s"}},
	{"nvidia-smi.txt", []string{"nvidia-smi"}},
}

// checkMachine reads nvidia-smi's table and keeps what else it prints.
func checkMachine(ctx context.Context, s *session) error {
	rows, text, err := s.query(ctx)
	s.keep("nvidia-smi-query-gpu.csv", text)
	if err != nil {
		return fmt.Errorf("there is no NVIDIA GPU to check here: %w", err)
	}
	s.rows = rows
	if s.apps, err = s.listApps(ctx); err != nil {
		return err
	}
	for _, r := range raw {
		o, err := s.command(ctx, r.argv...)
		if err != nil {
			return err
		}
		s.keep(r.file, o.stdout+o.stderr)
		if o.exit != 0 { // such as nvlink -s without NVLink: kept for that
			s.note("%s ends with status %d", strings.Join(r.argv, " "), o.exit)
		}
	}
	for _, a := range s.apps {
		s.note("pid %d (%s) computes on %s already", a.PID, a.Name, a.UUID)
	}
	return nil
}

func checkNVML(ctx context.Context, s *session) (err error) {
	s.nvml, err = s.prober(ctx, "probe-nvml.json", s.plugin, "probe")
	return err
}

func checkSMI(ctx context.Context, s *session) (err error) {
	s.smi, err = s.prober(ctx, "probe-nvidia-smi.json", s.muster, "agent", "nvidia-smi", "probe")
	return err
}

// prober runs a prober by hand, and again: the first look may have woken the driver.
func (s *session) prober(ctx context.Context, file string, argv ...string) (*gpu.Inventory, error) {
	first, err := s.command(ctx, argv...)
	if err != nil {
		return nil, err
	}
	second, err := s.command(ctx, argv...)
	if err != nil {
		return nil, err
	}
	s.keep(file, second.stdout)
	s.note("it took %.2f s, the second time %.2f s", first.took.Seconds(), second.took.Seconds())
	if second.exit != 0 {
		return nil, fmt.Errorf("status %d: %s", second.exit, second.last())
	}
	var found gpu.Inventory
	if err := json.Unmarshal([]byte(second.stdout), &found); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, note := range found.Notes {
		s.note("it notes: %s", note)
	}
	return &found, nil
}

// bothProbers is an error where a prober did not answer.
func (s *session) bothProbers() error {
	if s.nvml == nil || s.smi == nil {
		return impossible("a prober has not answered")
	}
	return nil
}

func checkProbersAgree(_ context.Context, s *session) error {
	if err := s.bothProbers(); err != nil {
		return err
	}
	return s.judge(compare("nvml", "nvidia-smi", s.nvml, s.smi))
}

// judge makes a comparison the outcome of a check.
func (s *session) judge(c comparison) error {
	s.note("%d values are equal", c.equal)
	for _, text := range c.moved {
		s.note("may have moved: %s", text)
	}
	for _, text := range c.alone {
		s.note("%s", text)
	}
	if len(c.wrong) > 0 {
		return errors.New(strings.Join(c.wrong, "\n"))
	}
	return nil
}

func checkReasons(_ context.Context, s *session) error {
	if err := s.bothProbers(); err != nil {
		return err
	}
	if missing := append(unexplained(s.nvml), unexplained(s.smi)...); len(missing) > 0 {
		return errors.New(strings.Join(missing, "\n"))
	}
	reasons := map[string]int{} // and of how many GPUs
	for _, g := range s.nvml.GPUs {
		for name, why := range g.Why {
			reasons[name+": "+why]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		s.note("nvml, %d of %d GPUs: %s", reasons[reason], len(s.nvml.GPUs), reason)
	}
	return nil
}

func checkRows(_ context.Context, s *session) error {
	if err := s.bothProbers(); err != nil {
		return err
	}
	if len(s.rows) == 0 {
		return impossible("there is no table")
	}
	c := compareRows("nvml", s.nvml, s.rows)
	more := compareRows("nvidia-smi's prober", s.smi, s.rows)
	c.equal += more.equal
	c.wrong, c.moved, c.alone = append(c.wrong, more.wrong...), append(c.moved, more.moved...), append(c.alone, more.alone...)
	return s.judge(c)
}

// probed is muster probe --json, as far as it is of devices.
type probed struct {
	Hosts []struct {
		Source  string            `json:"gpu_source"`
		None    string            `json:"gpu_none"`
		Driver  *string           `json:"driver"`
		CUDA    *string           `json:"cuda"`
		GPUs    []gpu.GPU         `json:"gpus"`
		Links   [][]gpu.Link      `json:"links"`
		Islands [][]int           `json:"islands"`
		Why     map[string]string `json:"gpu_why"`
		Notes   []string          `json:"gpu_notes"`
	} `json:"hosts"`
}

func checkMusterProbe(ctx context.Context, s *session) error {
	o, err := s.command(ctx, s.muster, "probe", "--json")
	s.keep("muster-probe.json", o.stdout)
	if err != nil {
		return err
	}
	s.note("it took %.2f s", o.took.Seconds())
	var p probed
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil || len(p.Hosts) != 1 {
		return fmt.Errorf("status %d, no JSON of one host (%v): %s", o.exit, err, o.last())
	}
	h := p.Hosts[0]
	if h.Source != "nvml" {
		return fmt.Errorf("the source is %q: %s", h.Source, strings.Join(append(h.Notes, h.None), "\n"))
	}
	if err := s.bothProbers(); err != nil {
		return err
	}
	return s.judge(compare("muster probe", "nvml", &gpu.Inventory{Driver: h.Driver, CUDA: h.CUDA, GPUs: h.GPUs, Links: h.Links}, s.nvml))
}

// checkNoContext probes once more in each way while it looks at who computes: a context of
// CUDA would show.
func checkNoContext(ctx context.Context, s *session) error {
	if len(s.rows) == 0 {
		return impossible("there is no GPU")
	}
	done := make(chan error, 1)
	go func() {
		for _, argv := range [][]string{{s.plugin, "probe"}, {s.muster, "agent", "nvidia-smi", "probe"}, {s.muster, "probe", "--json"}} {
			if _, err := s.command(ctx, argv...); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	seen := map[app]bool{}
	looks := 0
	var ended, failed error
	for running := true; running; looks++ {
		select {
		case ended = <-done: // and one look after the end
			running = false
		case <-time.After(20 * time.Millisecond):
		}
		now, err := s.listApps(ctx)
		failed = errors.Join(failed, err)
		for _, a := range newApps(s.apps, now) {
			seen[a] = true
		}
	}
	s.note("looked %d times", looks)
	for a := range seen {
		failed = errors.Join(failed, fmt.Errorf("pid %d (%s) appeared on %s", a.PID, a.Name, a.UUID))
	}
	return errors.Join(ended, failed)
}
