//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// UserID is the user and group of Options.User.
const UserID = 2001

// homeOf is a user's home as hosts see it: /home is the machine's.
func homeOf(user string) string { return "/run/home/" + user }

// userHome is the same as the machine sees it.
func (h *Host) userHome() string { return filepath.Join(h.dir(), "user-home") }

// accounts are the host's own files of who may log in. sshd refuses keys too where the
// password is locked by "!"; "*" is fine.
func (h *Host) accounts() []file {
	var files []file
	for _, name := range []string{"passwd", "group", "shadow"} {
		text, err := os.ReadFile("/etc/" + name)
		if err != nil {
			continue // nobody but root may read the last
		}
		lines, mode := strings.Replace(string(text), "root:!", "root:*", 1), os.FileMode(0o644)
		user := h.bed.opts.User
		switch {
		case name == "shadow":
			mode = 0o640
			lines += line(user, "%s:*:20000:0:99999:7:::\n", user)
		case name == "group":
			lines += line(user, "%s:x:%d:\n", user, UserID)
		default:
			lines += line(user, "%s:x:%d:%[2]d::%s:/bin/bash\n", user, UserID, homeOf(user))
		}
		files = append(files, file{name, mode, lines})
	}
	return files
}

// line is nothing where there is no user.
func line(user, format string, args ...any) string {
	if user == "" {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// writeHomes makes homes that the client may log in to.
func (h *Host) writeHomes(authorized string) error {
	if err := writeHome(h.Home, authorized); err != nil || h.bed.opts.User == "" {
		return err
	}
	home := h.userHome()
	return errors.Join(writeHome(home, authorized), filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, UserID, UserID))
	}))
}
