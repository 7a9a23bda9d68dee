package main

import (
	"github.com/muster-dev/muster/launcher/agent"
	"github.com/muster-dev/muster/launcher/coordinator"
)

// onHost runs what muster itself starts on hosts.
func onHost(args []string) (status int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "agent":
		return agent.Main(args[:1], args[1:]), true
	case "coordinator":
		return coordinator.Main(args[1:]), true
	}
	return 0, false
}
