// Package endtoend holds no code but tests of the muster that is shipped: the static
// binary, built once for all of them, run as a user would run it against the hosts of
// testbeds. What they look at is what a user sees: the command line, the two streams, the
// exit status, the files of the run, and what is left on the hosts (nothing). They know
// nothing of the product's insides.
//
// MUSTER_BINARY names a binary to test in place of one built from this tree.
package endtoend
