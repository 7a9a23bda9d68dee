//go:build linux

// Package proc is what keeper and agent know of processes: starting them so that
// they cannot be lost, one reaper that alone waits for them, and finding and
// ending what belongs to a run. A process is always a pid with its start time, so
// that a recycled pid is never touched. It knows nothing of ranks and jobs.
// Linux only.
package proc
