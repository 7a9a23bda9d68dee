// Package faulttest kills, stops and cuts parts of runs at random moments and looks at
// what remains: exit status and first cause, what workers wrote, what is left on hosts.
// All of it is in tests, by seeds that replay (see TestFaults for ranks that work together,
// TestSweepFaults for tasks that do not). It knows the product as
// its user does, by commands and files, and the hosts' processes by their command lines.
//
// Linux and root only: the hosts are launcher/testbed's.
package faulttest
