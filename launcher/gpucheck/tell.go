package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// words are the outcomes as people read them.
var words = map[string]string{passed: "ok", failedCheck: "FAIL", notPossible: "not possible here"}

// progress says on the standard error what came of a check, as soon as it is known.
func (s *session) progress(r result) {
	fmt.Fprintf(os.Stderr, "%-17s %s\n", words[r.Outcome], r.Name)
}

// machineJSON is what was checked.
type machineJSON struct {
	Driver string   `json:"driver"`
	CUDA   string   `json:"cuda"`
	GPUs   []string `json:"gpus"`
}

// tell prints the results and keeps them in the folder.
func (s *session) tell(results []result) error {
	text, err := json.MarshalIndent(map[string]any{"version": 1, "machine": s.machine(), "checks": results}, "", "  ")
	if err != nil {
		return err
	}
	var table strings.Builder
	s.table(&table, results)
	s.keep("checks.json", string(text)+"\n")
	s.keep("checks.txt", table.String())
	if s.json {
		_, err = fmt.Println(string(text))
	} else {
		_, err = fmt.Print(table.String())
	}
	return err
}

func (s *session) machine() machineJSON {
	m := machineJSON{GPUs: []string{}}
	for _, r := range s.rows {
		m.Driver = r.Driver
		m.GPUs = append(m.GPUs, fmt.Sprintf("%d: %s, %d MiB", r.Index, r.Name, r.Total))
	}
	if s.nvml != nil && s.nvml.CUDA != nil {
		m.CUDA = *s.nvml.CUDA
	}
	return m
}

func (s *session) table(w io.Writer, results []result) {
	m := s.machine()
	fmt.Fprintf(w, "driver %s, CUDA %s\n", m.Driver, m.CUDA)
	for _, gpu := range m.GPUs {
		fmt.Fprintln(w, "GPU", gpu)
	}
	counts := map[string]int{}
	fmt.Fprintln(w)
	for _, r := range results {
		counts[r.Outcome]++
		fmt.Fprintf(w, "%-53s %-17s %6.1f s\n", r.Name, words[r.Outcome], r.Seconds)
		for _, line := range lines(r) {
			fmt.Fprintln(w, "   ", line)
		}
	}
	fmt.Fprintf(w, "\n%d ok, %d FAIL, %d not possible here; what was said is in %s\n", counts[passed], counts[failedCheck], counts[notPossible], s.out)
}

// lines are what stands below a result: why, and notes.
func lines(r result) []string {
	var all []string
	if r.Why != "" {
		all = strings.Split(strings.TrimSpace(r.Why), "\n")
	}
	return append(all, r.Notes...)
}
