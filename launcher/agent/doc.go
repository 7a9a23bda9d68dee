// Package agent is what runs on every host of a run: the keeper, which owns the
// run's processes there and ends them when nobody else can, and its child, the
// agent, which starts and watches workers on the coordinator's orders. It knows
// nothing of HCL, SSH or terminals. Linux only.
//
// Who ends what: the agent ends workers; the keeper ends everything when the agent
// is dead or silent; the agent ends everything when the keeper is dead; the kernel
// ends workers (parent-death signal) when both are.
package agent
