//go:build linux

package facts

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/rundir"
	"golang.org/x/sys/unix"
)

// places are the folders that a run writes to, each with its use.
func places(home string) []Space {
	all := []Space{{Path: home, Uses: []string{UseHome}}}
	if logs, err := rundir.Home(); err == nil {
		all = append(all, Space{Path: logs, Uses: []string{UseLogs}})
	}
	if dir := os.Getenv("TMPDIR"); filepath.IsAbs(dir) {
		all = append(all, Space{Path: dir, Uses: []string{UseTemporary}})
	}
	return append(all, Space{Path: "/tmp", Uses: []string{UseTemporary}}, Space{Path: sharedMemory, Uses: []string{UseShared}})
}

const sharedMemory = "/dev/shm"

// spaceWait is how long file systems may take to tell their sizes: a file server that has
// gone would keep statfs(2) forever.
const spaceWait = 50 * time.Millisecond

// measured is what a place's file system has told; nothing where it is not there or silent.
type measured struct {
	at     int
	device uint64 // st_dev
	space  Space
}

// measure asks for all places at once. A goroutine ends with its system calls, which are
// abandoned when they take too long.
func measure(root Root, places []Space) []measured {
	answers := make(chan measured, len(places))
	all := make([]measured, len(places))
	for at, place := range places {
		all[at] = measured{at: at, space: Space{Path: place.Path, Uses: place.Uses}}
		go func() { answers <- askSpace(root, all[at]) }()
	}
	wait := time.NewTimer(spaceWait)
	defer wait.Stop()
	for range places {
		select {
		case m := <-answers:
			all[m.at] = m
		case <-wait.C:
			return all
		}
	}
	return all
}

// askSpace asks statfs(2) about a folder, or about the one above that it is going to be
// made in: muster makes that of its logs.
func askSpace(root Root, m measured) measured {
	dir := m.space.Path
	if slices.Contains(m.space.Uses, UseLogs) {
		for dir != "/" && !root.Exists(dir) {
			dir = path.Dir(dir)
		}
	}
	var fs unix.Statfs_t
	info, err := os.Stat(string(root) + dir)
	if dir == "" || err != nil || unix.Statfs(string(root)+dir, &fs) != nil {
		return m
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		m.device = stat.Dev
	}
	unit := uint64(max(fs.Frsize, 0))
	m.space.Total, m.space.Free = fs.Blocks*unit, fs.Bavail*unit
	m.space.Inodes, m.space.InodesFree = fs.Files, fs.Ffree
	m.space.ReadOnly = fs.Flags&unix.ST_RDONLY != 0
	return m
}

// distinct are the file systems that have answered, each once, with all its uses.
func distinct(all []measured) []Space {
	var found []Space
	at := map[uint64]int{}
	for _, m := range all {
		if m.space.Total == 0 {
			continue
		}
		i, known := at[m.device]
		if !known {
			at[m.device] = len(found)
			found = append(found, m.space)
			continue
		}
		for _, use := range m.space.Uses {
			if !slices.Contains(found[i].Uses, use) {
				found[i].Uses = append(slices.Clip(found[i].Uses), use)
			}
		}
	}
	return found
}

// spaceFor is the file system of a use.
func spaceFor(all []measured, use string) Space {
	for _, m := range all {
		if slices.Contains(m.space.Uses, use) {
			m.space.Uses = nil
			return m.space
		}
	}
	return Space{}
}
