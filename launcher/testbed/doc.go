// Package testbed makes hosts: for tests, and for trying muster by hand
// (go run ./launcher/testbed/cmd/hosts). It needs Linux and root.
//
// A host is a process tree under a small init in network, mount, uts, ipc and
// pid namespaces of its own. It has its own name, addresses, /etc, boot_id,
// machine-id, /tmp, /var/tmp, /run, /dev/shm, home of root and sshd; the rest
// of the file system is the machine's. Hosts of one bed share a bridge in a
// network namespace that belongs to the bed, and the machine reaches them over
// one veth pair.
//
// Everything but a folder of files hangs on the process that started the bed:
// the inits die with it, namespaces die with their processes, links with their
// namespaces. The folder that a killed process leaves is removed by the next bed
// of the same number.
//
// The init is this very program started again: an init function of this package
// takes over when the environment says so (see boot.go), before main and before
// flags are parsed. So only tests, the hosts command and launcher/bench may import the
// package.
//
// The package knows nothing of muster itself: not its agents, jobs or ranks.
//
// Goroutines: one for each bed's thread, ended by Bed.Close, and one for each
// running init, ended by Host.Stop or Bed.Close.
package testbed
