package remote

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// BenchmarkStart compares a connection with one program started on each of some
// hosts with as many parallel runs of OpenSSH's "ssh host true".
func BenchmarkStart(b *testing.B) {
	for _, hosts := range []int{1, 8} {
		c := newClient(b)
		var targets []Target
		for range hosts {
			s := newServer(b, []ssh.PublicKey{c.key})
			c.knows(b, s, "ed25519")
			targets = append(targets, s.target())
		}
		c.config(b, "IdentityFile "+c.path("id_ed25519")+"\nUserKnownHostsFile "+c.path("known_hosts")+"\n")
		b.Run(fmt.Sprintf("muster/%d", hosts), func(b *testing.B) {
			for b.Loop() {
				startEverywhere(b, c, targets)
			}
		})
		b.Run(fmt.Sprintf("openssh/%d", hosts), func(b *testing.B) {
			for b.Loop() {
				sshEverywhere(b, c, targets)
			}
		})
		// OpenSSH's default key exchange takes more time than the rest together.
		b.Run(fmt.Sprintf("openssh-curve25519/%d", hosts), func(b *testing.B) {
			for b.Loop() {
				sshEverywhere(b, c, targets, "-o", "KexAlgorithms=curve25519-sha256")
			}
		})
	}
}

func startEverywhere(b *testing.B, c *client, targets []Target) {
	d := c.dialer()
	d.Programs = fakePrograms{"muster-agent": "#!/bin/true\n"}
	errs := make([]error, len(targets))
	var work sync.WaitGroup
	for i, target := range targets {
		work.Go(func() { errs[i] = startOne(b, d, target) })
	}
	work.Wait()
	must(b, errors.Join(errs...))
}

func startOne(b *testing.B, d *Dialer, target Target) error {
	h, err := d.Connect(bounded(b), target)
	if err != nil {
		return err
	}
	defer h.Close()
	p, err := h.Start(bounded(b), agentLaunch())
	if err != nil {
		return err
	}
	io.Copy(io.Discard, p.Stdout)
	return p.Wait()
}

func sshEverywhere(b *testing.B, c *client, targets []Target, options ...string) {
	errs := make([]error, len(targets))
	var work sync.WaitGroup
	for i, target := range targets {
		work.Go(func() {
			args := append([]string{"-F", c.path("config"), "-p", fmt.Sprint(target.Port)}, options...)
			errs[i] = exec.Command("ssh", append(args, "root@"+target.Name, "true")...).Run()
		})
	}
	work.Wait()
	must(b, errors.Join(errs...))
}
