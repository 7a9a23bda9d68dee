// Package agent is the agent of a run on a host, the child of the run's keeper: a loop that carries out the
// coordinator's commands by components with their own state, one package each: worker, devices, mps, progress, stacks,
// prepare. It also has the commands of muster-agent. Linux only.
//
// Who ends what: the agent ends workers; the keeper ends everything when the agent is dead or silent; the agent ends
// everything when the keeper is dead; the kernel ends workers (parent-death signal) when both are.
package agent
