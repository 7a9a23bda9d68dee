//go:build linux

package facts

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

func TestAFileSystemIsToldOnce(t *testing.T) {
	gone := measured{space: Space{Path: "/nfs", Uses: []string{UseHome}}}
	at := func(device uint64, path string, uses ...string) measured {
		return measured{device: device, space: Space{Path: path, Uses: uses, Total: 1}}
	}
	all := []measured{gone, at(7, "/home/ann/.local/state/muster", UseLogs), at(8, "/scratch/tmp", UseTemporary), at(7, "/tmp", UseTemporary), at(9, "/dev/shm", UseShared)}
	want := []Space{
		{Path: "/home/ann/.local/state/muster", Uses: []string{UseLogs, UseTemporary}, Total: 1},
		{Path: "/scratch/tmp", Uses: []string{UseTemporary}, Total: 1},
		{Path: "/dev/shm", Uses: []string{UseShared}, Total: 1},
	}
	if got := distinct(all); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := spaceFor(all, UseHome); !reflect.DeepEqual(got, Space{Path: "/nfs"}) {
		t.Errorf("%+v", got)
	}
}

// The folder of logs is not there before the first run.
func TestLogsAreMeasuredWhereTheyAreGoingToBe(t *testing.T) {
	root := hostfstest.Tree(t, map[string]string{"home/ann/train.py": ""})
	all := measure(root, []Space{{Path: "/home/ann/.local/state/muster", Uses: []string{UseLogs}}, {Path: "/home/bob", Uses: []string{UseHome}}, {Uses: []string{UseHome}}})
	if logs := all[0].space; logs.Total == 0 || logs.Free > logs.Total || logs.ReadOnly || all[0].device == 0 {
		t.Errorf("%+v", logs)
	}
	if all[1].space.Total != 0 || all[2].space.Total != 0 {
		t.Errorf("file systems that are not there: %+v", all)
	}
}

func TestAReadOnlyFileSystemIsSeen(t *testing.T) {
	readOnly := map[string]bool{} // of two on one folder the later one counts
	for line := range strings.Lines(Root("").Read("/proc/self/mounts")) {
		if fields := strings.Fields(line); len(fields) > 3 { // device, folder, type, options
			readOnly[fields[1]] = slices.Contains(strings.Split(fields[3], ","), "ro")
		}
	}
	for dir, want := range readOnly {
		if m := askSpace("", measured{space: Space{Path: dir}}); want && m.space.Total > 0 && !m.space.ReadOnly {
			t.Errorf("%s: %+v", dir, m.space)
		}
	}
	if m := askSpace("", measured{space: Space{Path: t.TempDir()}}); m.space.ReadOnly || m.space.Total == 0 {
		t.Errorf("%+v", m.space)
	}
}

func TestPlacesAreThoseOfThisUser(t *testing.T) {
	t.Setenv("TMPDIR", "/scratch/tmp")
	t.Setenv("XDG_STATE_HOME", "/state")
	var paths []string
	for _, p := range places("/home/ann") {
		paths = append(paths, p.Path)
	}
	if !slices.Equal(paths, []string{"/home/ann", "/state/muster", "/scratch/tmp", "/tmp", "/dev/shm"}) {
		t.Errorf("%v", paths)
	}
}
