//go:build linux

// Command hosts starts testbed hosts on this machine, says how to reach them and
// removes them at Ctrl-C. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, options()); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1)
	}
}

// options reads the command line.
func options() testbed.Options {
	var o testbed.Options
	flag.IntVar(&o.Hosts, "n", 3, "number of hosts")
	flag.BoolVar(&o.SharedHome, "shared-home", false, "all hosts have one home of root")
	flag.BoolVar(&o.Docker0, "docker0", false, "every host has a docker0 interface")
	flag.BoolVar(&o.SecondNet, "second-net", false, "every host has an interface in a second network")
	flag.BoolVar(&o.PeerNames, "peer-names", false, "hosts resolve each other's names")
	list(&o.Names, "name", "name of the next host (node1, node2, ... if not given)")
	list(&o.Keep, "keep", "path below /root, /tmp or /run that the hosts see too, read only")
	list(&o.KeepRW, "keep-rw", "the same, writable")
	flag.Func("gpus", "GPUs of every host, one of: "+strings.Join(gpus.Names(), ", "), func(name string) error {
		machine := gpus.Named(name)
		if machine == nil {
			return errors.New("no such scenario")
		}
		here, err := machine.OnThisMachine() // so that processes can be bound
		if err == nil {
			o.Each = func(i int, h *testbed.HostOptions) { h.GPUs = here.OwnCards(i) }
		}
		return err
	})
	list(&o.SSHDConfig, "sshd", "line for sshd_config, such as 'AllowStreamLocalForwarding no'")
	flag.Parse()
	return o
}

// list defines a flag that may be repeated.
func list(to *[]string, name, usage string) {
	flag.Func(name, usage+" (may be repeated)", func(value string) error {
		*to = append(*to, value)
		return nil
	})
}

func run(ctx context.Context, o testbed.Options) error {
	bed, err := testbed.Start(ctx, o)
	if err != nil {
		return err
	}
	describe(bed)
	<-ctx.Done()
	fmt.Println("\nremoving the hosts")
	return bed.Close()
}

func describe(bed *testbed.Bed) {
	var names []string
	for _, h := range bed.Hosts {
		names = append(names, h.Name)
		fmt.Printf("%-12s %-14s ssh -F %s %s\n", h.Name, h.Addr, bed.SSHConfig, h.Name)
	}
	all := strings.Join(names, ",")
	fmt.Printf(`
muster finds the hosts in %[1]s/.ssh/config. For one command:
    HOME=%[1]s muster probe -H %[2]s
or in a job file: hosts "ssh" { names = ["%[3]s"] }

Files for all hosts and this machine: %[4]s
Homes and logs of the hosts:          %[5]s/
Ctrl-C removes everything.
`, bed.ClientHome, all, strings.Join(names, `", "`), bed.Shared, bed.Dir)
}
