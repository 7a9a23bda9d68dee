// Package launcher is what the user's command does, phase by phase: connect to the
// hosts, start an agent on each, learn their facts, plan, hand the run over to its
// coordinator, watch it. It knows nothing of HCL's syntax or of SSH, and prints
// nothing itself: a View does.
package launcher
