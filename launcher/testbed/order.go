//go:build linux

package testbed

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// bootOrder is all that an init has to know; it goes through a pipe as JSON. The
// init decides nothing.
type bootOrder struct {
	Hostname string
	BootID   string
	State    string   // an empty folder on the machine, to mount on
	Binds    []bind   // in order, after the private folders are mounted
	Etc      []file   // into the host's own /etc
	Links    []string // ip commands
	Clock    time.Duration
	SSHPid   string
}

// bind makes Source of the machine appear as Target on the host.
type bind struct {
	Source, Target string
	ReadOnly       bool
}

type file struct {
	Path string
	Mode os.FileMode
	Text string
}

const sshdPidFile = "/run/sshd.pid"

func (h *Host) order() bootOrder {
	return bootOrder{
		Hostname: h.Name,
		BootID:   newUUID() + "\n",
		State:    h.dir(),
		Binds:    h.binds(),
		Etc:      h.etc(),
		Links:    h.links(),
		Clock:    h.opts.ClockOffset,
		SSHPid:   sshdPidFile,
	}
}

func (h *Host) binds() []bind {
	binds := []bind{
		{Source: h.Home, Target: "/root"},
		{Source: filepath.Join(h.dir(), "var-tmp"), Target: "/var/tmp"},
		{Source: h.bed.Shared, Target: h.bed.Shared},
	}
	if user := h.bed.opts.User; user != "" {
		binds = append(binds, bind{Source: h.userHome(), Target: homeOf(user)})
	}
	for _, path := range h.bed.opts.Keep {
		binds = append(binds, bind{Source: path, Target: path, ReadOnly: true})
	}
	for _, path := range h.bed.opts.KeepRW {
		binds = append(binds, bind{Source: path, Target: path})
	}
	return binds
}

// links are the ip commands that bring up the host's interfaces.
func (h *Host) links() []string {
	script := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 broadcast + dev %s", h.Addr, h.opts.NIC),
		fmt.Sprintf("link set %s up", h.opts.NIC),
		fmt.Sprintf("route add default via %s", h.bed.net.addr(mainNet, bridgeOctet)),
	}
	if h.SecondAddr.IsValid() {
		script = append(script,
			fmt.Sprintf("addr add %s/24 broadcast + dev %s", h.SecondAddr, h.opts.SecondNIC),
			fmt.Sprintf("link set %s up", h.opts.SecondNIC))
	}
	if h.opts.Docker0 {
		script = append(script,
			"link add docker0 type bridge",
			"addr add 172.17.0.1/16 broadcast + dev docker0",
			"link set docker0 up",
			"link set veth1a2b3c master docker0 up")
	}
	return script
}

// etc is the content of the host's own files in /etc.
func (h *Host) etc() []file {
	files := []file{
		{"hostname", 0o644, h.Name + "\n"},
		{"machine-id", 0o444, h.opts.MachineID + "\n"},
		{"hosts", 0o644, h.hostsFile()},
		{"ssh/sshd_config", 0o644, h.sshdConfig()},
	}
	for _, k := range h.keys {
		base := "ssh/ssh_host_" + k.kind + "_key"
		files = append(files, file{base, 0o600, k.private}, file{base + ".pub", 0o644, k.public})
	}
	return append(files, h.accounts()...)
}

// hostsFile is /etc/hosts as Debian's installer writes it.
func (h *Host) hostsFile() string {
	text := "127.0.0.1\tlocalhost\n127.0.1.1\t" + h.Name + "\n\n" +
		"::1     localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n"
	if !h.bed.opts.PeerNames {
		return text
	}
	for _, peer := range h.bed.Hosts {
		if peer != h {
			text += fmt.Sprintf("%s\t%s\n", peer.Addr, peer.Name)
		}
	}
	return text
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// newUUID returns a random UUID as the kernel prints boot_id.
func newUUID() string {
	h := randomHex(16)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}
