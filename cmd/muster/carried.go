package main

import (
	"github.com/muster-dev/muster/launcher/remote"
)

// carriedPrograms are the programs that this binary can put on hosts.
func carriedPrograms() (remote.Programs, error) { return remote.NewCarried(carried()) }
