//go:build linux

// Command muster-agent is keeper and agent on a host. muster copies it there and
// starts it; nobody types it.
package main

import (
	"os"

	"github.com/muster-dev/muster/launcher/agent"
)

func main() { os.Exit(agent.Main(nil, os.Args[1:])) }
