package sshconfig

import (
	"os"
	"os/user"
	"strings"
)

// HomeDir is HOME, which ssh_config's ~ stands for, or what the system says.
func HomeDir() string {
	home, err := os.UserHomeDir()
	if err == nil {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return "/"
}

// LocalUser is the name of the user who runs this.
func LocalUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// Tilde shortens a path of the home directory for messages, in a form that a
// shell reads too.
func Tilde(path string) string {
	if rest, ok := strings.CutPrefix(path, HomeDir()+"/"); ok && !strings.ContainsAny(rest, " '\"$") {
		return "~/" + rest
	}
	return path
}
