package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// row is a GPU in nvidia-smi's own table. Sizes are in MiB; -1: not told.
type row struct {
	Index       int
	UUID        string
	PCI         string // in nvidia-smi's form
	Name        string
	Total, Used int
	Mode        string // as muster has it: "default", "exclusive_process"
	MIG         string // "Enabled", "Disabled", "[N/A]"
	Driver      string
}

const rowFields = "index,uuid,pci.bus_id,name,memory.total,memory.used,compute_mode,mig.mode.current,driver_version"

func (s *session) query(ctx context.Context) ([]row, string, error) {
	o, err := s.command(ctx, "nvidia-smi", "--query-gpu="+rowFields, "--format=csv")
	if err != nil {
		return nil, "", err
	}
	if o.exit != 0 {
		return nil, o.stdout, fmt.Errorf("nvidia-smi ends with status %d: %s", o.exit, strings.TrimSpace(o.all()))
	}
	rows, err := parseRows(o.stdout)
	return rows, o.stdout, err
}

// parseRows reads the table of rowFields with its header.
func parseRows(text string) ([]row, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace, r.LazyQuotes = true, true
	r.FieldsPerRecord = strings.Count(rowFields, ",") + 1
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi --query-gpu: %w", err)
	}
	if len(records) < 2 {
		return nil, errors.New("nvidia-smi --query-gpu shows no GPU")
	}
	var rows []row
	for _, f := range records[1:] {
		index, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi --query-gpu: index %q", f[0])
		}
		rows = append(rows, row{index, f[1], f[2], f[3], mebibytes(f[4]), mebibytes(f[5]), strings.ToLower(f[6]), f[7], f[8]})
	}
	return rows, nil
}

// mebibytes reads "81559 MiB"; -1 where it is no size.
func mebibytes(text string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " MiB"))
	if err != nil {
		return -1
	}
	return n
}

// sysfs is the address in the form of gpu.GPU.
func (r row) sysfs() string {
	address, _ := gpu.SysfsPCI(r.PCI)
	return address
}

func (r row) partitioned() bool { return r.MIG == "Enabled" }

// app is a process that computes on a GPU, as nvidia-smi lists it.
type app struct {
	PID  int
	UUID string // of the GPU
	Name string
}

// listApps lists the processes that compute.
func (s *session) listApps(ctx context.Context) ([]app, error) {
	o, err := s.command(ctx, "nvidia-smi", "--query-compute-apps=pid,gpu_uuid,used_memory,process_name", "--format=csv,noheader")
	if err == nil && o.exit != 0 {
		err = fmt.Errorf("nvidia-smi --query-compute-apps ends with status %d: %s", o.exit, strings.TrimSpace(o.all()))
	}
	return parseApps(o.stdout), err
}

// parseApps reads the list; the name stands last, since it may hold commas. Lines that are
// no process, such as "No running processes found", are left out.
func parseApps(text string) []app {
	var apps []app
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ", ", 4)
		if pid, err := strconv.Atoi(f[0]); err == nil && len(f) == 4 {
			apps = append(apps, app{pid, f[1], f[3]})
		}
	}
	return apps
}

// newApps are those of now that were not there before.
func newApps(before, now []app) []app {
	return slices.DeleteFunc(slices.Clone(now), func(a app) bool {
		return slices.ContainsFunc(before, func(b app) bool { return a.PID == b.PID && a.UUID == b.UUID })
	})
}
