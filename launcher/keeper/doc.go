// Package keeper is the process that owns the processes of a run on a host. It starts the agent and, on the head host,
// the coordinator, holds copies of the workers' output pipes, and ends everything when the agent is dead or silent. The
// agent talks to it over a Conn, and starts what must outlive the agent (plug-ins, daemons) through a Supervisor.
package keeper
