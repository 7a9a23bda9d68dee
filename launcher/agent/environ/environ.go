//go:build linux

// Package environ makes the environments that workers, setup and daemons start with.
package environ

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// sessionVariables belong to the login or the shell that started the agent, not to the host, and would mislead a
// worker. MUSTER_, torchrun's own and MASTER_ names are the plan's alone: those of an outer run must not reach workers.
var sessionVariables = []string{
	"_", "SHLVL", "OLDPWD", "PWD",
	"SSH_*", "XDG_SESSION_*", "XDG_VTNR", "XDG_SEAT",
	"DBUS_SESSION_BUS_ADDRESS", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
	"INVOCATION_ID", "JOURNAL_STREAM", "MAIL", "MOTD_SHOWN",
	"MUSTER_*", "TORCHELASTIC_*", "PET_*", "MASTER_ADDR", "MASTER_PORT",
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
	"ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
}

func isSessionVariable(name string) bool {
	return slices.ContainsFunc(sessionVariables, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// Host is the environment of the host as workers and setup get it.
func Host(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && !isSessionVariable(name) {
			env[name] = value
		}
	}
	return env
}

// Layered puts layers over each other, lowest first, and returns what exec takes, sorted.
func Layered(layers ...map[string]string) []string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer)
	}
	environ := make([]string, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		environ = append(environ, name+"="+merged[name])
	}
	return environ
}

// LookPath finds a program as a shell would: in the PATH of env, relative to workdir.
func LookPath(program string, env []string, workdir string) (string, error) {
	if strings.Contains(program, "/") {
		program = hostfs.Absolute(program, workdir)
		return program, executable(program)
	}
	folders := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			folders = value
		}
	}
	if file := hostfs.Root("").LookPath(program, folders, workdir); file != "" {
		return file, nil
	}
	return "", fmt.Errorf("%w: %s in PATH=%s", exec.ErrNotFound, program, folders)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	if info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable (chmod +x, or start it by its interpreter)", path)
	}
	return nil
}

// FindWorkdir is the folder that a job names, below the home folder where it is relative.
func FindWorkdir(workdir, home string) (string, error) {
	if workdir == "" {
		workdir = "~"
	}
	workdir = Expand(workdir, home, home)
	info, err := os.Stat(workdir)
	if err != nil {
		return "", fmt.Errorf("workdir: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("workdir: %s is not a folder", workdir)
	}
	return workdir, nil
}

// Expand makes a path absolute: after ~ below home, else below base.
func Expand(path, home, base string) string {
	switch rest, ok := strings.CutPrefix(path, "~/"); {
	case ok:
		return filepath.Join(home, rest)
	case path == "~":
		return home
	case filepath.IsAbs(path):
		return path
	}
	return filepath.Join(base, path)
}
