// Package link keeps the parts of a run in touch: a hub (in the coordinator) and members (the agents), each
// known by the key that it made for this run. Links survive lost connections and deliver each message once;
// heartbeats and leases count on boot clocks. Messages are bytes, members are names.
package link
