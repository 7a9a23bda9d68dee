package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// newest is the C library that the distributions of ten years ago have (RHEL 7): glibc
// 2.17.
const newest = 2*1000 + 17

func TestThePluginRunsWithOldCLibraries(t *testing.T) {
	t.Chdir("../..")
	platform := runtime.GOOS + "/" + runtime.GOARCH
	c := compilerFor(platform)
	if c == nil || !c.glibc || crossCompilers[platform] == "" {
		t.Skipf("no compiler here makes such a plugin for %s", platform)
	}
	plugin, err := nvmlPlugin(platform, c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plugin")
	if err := (build{ldflags: "-s -w"}).build(plugin, platform, path); err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		var major, minor int
		if _, err := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &major, &minor); err == nil && major*1000+minor > newest {
			t.Errorf("%s is asked for as of %s: see oldlibc.h", s.Name, s.Version)
		}
	}
}

func TestWithoutACompilerThereIsNoPlugin(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CC", "no-compiler -m64")
	for _, platform := range []string{"linux/amd64", "linux/arm64", "linux/riscv64"} {
		list, err := programs(platform)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if strings.Contains(p.name, "plugin") {
				t.Errorf("%s: %s", platform, p.name)
			}
		}
	}
}

func TestACompilerWithoutHeadersIsNone(t *testing.T) {
	folder := t.TempDir()
	script := filepath.Join(folder, "cc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", script)
	if c := compilerFor(runtime.GOOS + "/" + runtime.GOARCH); c != nil {
		t.Errorf("%+v", c)
	}
}
