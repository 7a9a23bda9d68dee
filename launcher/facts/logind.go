//go:build linux

package facts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// logind reads its configuration; the zero value stands for a host without it.
func logind(root Root, user string, uid int) Logind {
	if _, err := os.Stat(string(root) + "/run/systemd/users"); err != nil {
		return Logind{}
	}
	_, noLinger := os.Stat(string(root) + "/var/lib/systemd/linger/" + user)
	settings := logindSettings(root)
	l := Logind{
		Session:           os.Getenv("XDG_SESSION_ID") != "",
		KillUserProcesses: isYes(settings["KillUserProcesses"]) && !excluded(settings, user),
		// The default is yes; system users, root among them, are spared.
		RemoveIPC: (settings["RemoveIPC"] == "" || isYes(settings["RemoveIPC"])) && uid >= firstUser,
		Linger:    noLinger == nil,
	}
	return l
}

// firstUser is the first user id that is not a system user's (SYS_UID_MAX + 1 where
// distributions have not changed it).
const firstUser = 1000

func excluded(settings map[string]string, user string) bool {
	list, set := settings["KillExcludeUsers"]
	if !set {
		list = "root"
	}
	if only := strings.Fields(settings["KillOnlyUsers"]); len(only) > 0 && !slices.Contains(only, user) {
		return true
	}
	return slices.Contains(strings.Fields(list), user)
}

func isYes(value string) bool {
	return slices.Contains([]string{"yes", "true", "1", "on"}, strings.ToLower(value))
}

// logindSettings puts the files over each other as systemd does: the main file, then
// the drop-ins by name, those of /etc over those of /run over those of /usr/lib.
func logindSettings(root Root) map[string]string {
	dropIns := map[string]string{}
	for _, dir := range []string{"/usr/lib", "/run", "/etc"} {
		files, _ := filepath.Glob(string(root) + dir + "/systemd/logind.conf.d/*.conf")
		for _, f := range files {
			dropIns[filepath.Base(f)] = f
		}
	}
	files := []string{string(root) + "/etc/systemd/logind.conf"}
	var names []string
	for name := range dropIns {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		files = append(files, dropIns[name])
	}
	settings := map[string]string{}
	for _, f := range files {
		text, _ := os.ReadFile(f)
		addSettings(settings, string(text))
	}
	return settings
}

func addSettings(settings map[string]string, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			settings[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
}
