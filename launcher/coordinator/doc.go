// Package coordinator is the process of the head host that decides for a run. It evaluates and plans the job, feeds
// what happens to the run's state machine, and carries out its actions: commands to agents, events, the report, and
// the output that somebody reads.
package coordinator
