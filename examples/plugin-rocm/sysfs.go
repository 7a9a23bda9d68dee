package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// folder is a folder of sysfs, in which each file holds a value or lines of "NAME VALUE".
type folder string

func (f folder) in(names ...string) folder {
	return folder(filepath.Join(append([]string{string(f)}, names...)...))
}

// numbered lists the folders whose names are a prefix and a number, by number.
func (f folder) numbered(prefix string) (numbers []int) {
	entries, _ := os.ReadDir(string(f)) // none is no folder
	for _, entry := range entries {
		digits, is := strings.CutPrefix(entry.Name(), prefix)
		if n, err := strconv.Atoi(digits); is && err == nil && n >= 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

func (f folder) exists() bool {
	_, err := os.Stat(string(f))
	return err == nil
}

// text is empty where there is none.
func (f folder) text(name string) string {
	text, _ := os.ReadFile(string(f.in(name)))
	return strings.TrimSpace(string(text))
}

// number reads a decimal number.
func (f folder) number(name string) (*uint64, error) {
	text, err := os.ReadFile(string(f.in(name)))
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &n, nil
}

// properties reads lines of "NAME NUMBER".
func (f folder) properties(name string) map[string]uint64 {
	found := map[string]uint64{}
	for line := range strings.Lines(f.text(name)) {
		if words := strings.Fields(line); len(words) == 2 {
			if n, err := strconv.ParseUint(words[1], 10, 64); err == nil {
				found[words[0]] = n
			}
		}
	}
	return found
}
