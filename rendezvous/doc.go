// Package rendezvous is how the parts of a run find each other and stay in
// touch: a hub (in the coordinator) and members (the agents), each known by the
// key it made for this run, joined by links that survive lost connections, with
// heartbeats and leases on clocks that nobody can set. It knows nothing of jobs,
// GPUs or SSH: messages are bytes, members are names.
package rendezvous
