//go:build linux

package testbed

import (
	"fmt"
	"strings"
)

// sshdConfig is the host's sshd_config. sshd takes the first value of a keyword,
// so the test's lines come first, but a Match block reaches to the end of the
// file, so these come last.
func (h *Host) sshdConfig() string {
	before, matches := splitMatch(h.opts.SSHDConfig)
	own := []string{
		fmt.Sprintf("Port %d", h.Port),
		"HostKey /etc/ssh/ssh_host_rsa_key",
		"HostKey /etc/ssh/ssh_host_ecdsa_key",
		"HostKey /etc/ssh/ssh_host_ed25519_key",
		"PidFile " + sshdPidFile,
		"UsePAM no",
		"UseDNS no",
		"PermitRootLogin prohibit-password",
		"PasswordAuthentication no",
		"AllowTcpForwarding yes",
		"AllowStreamLocalForwarding yes",
		"MaxStartups 1000",
		"PrintMotd no",
		"LogLevel VERBOSE",
		"AcceptEnv LANG LC_*",
	}
	if !setsSubsystem(before) { // sshd refuses two of them
		own = append(own, "Subsystem sftp internal-sftp")
	}
	lines := append(append(before, own...), matches...)
	return strings.Join(lines, "\n") + "\n"
}

func splitMatch(lines []string) (before, matches []string) {
	for i, line := range lines {
		if keyword(line) == "match" {
			return append(before, lines[:i]...), lines[i:]
		}
	}
	return append(before, lines...), nil
}

func setsSubsystem(lines []string) bool {
	for _, line := range lines {
		if keyword(line) == "subsystem" {
			return true
		}
	}
	return false
}

func keyword(line string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return strings.ToLower(word)
}
