// Package torchtest holds no code but tests of muster with a real PyTorch (and, in one file,
// JAX), on CPUs by gloo: that workers get from muster what they get from torchrun, that the examples train,
// stop and resume as they say, and how a script's own errors show.
//
// The muster under test is the file that MUSTER_BINARY names, or bin/muster as make build
// makes it. PyTorch is what .ci/torch prints the place of; it is made where it is missing.
//
// Goroutines: one for each running command, ended with its test.
package torchtest
