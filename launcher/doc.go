// Package launcher is what the user's commands do, phase by phase: connect to the hosts, start
// an agent on each, learn their facts, plan, hand the run over to its coordinator, stay with it,
// and come back to it later. An Observer shows how that goes.
package launcher
