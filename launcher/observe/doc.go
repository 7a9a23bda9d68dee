// Package observe keeps what a program reports about itself while it runs: how far it is, what it does, numbers of its
// own, and what torch holds of GPU memory. It reads lines and keeps the newest of each.
//
// The protocol: a worker finds the path of a unix datagram socket in MUSTER_SOCKET, one per rank. A datagram is one
// line, or several:
//
//	step 1200            how far it is; what counts back, as a validation does, is no progress
//	epoch 3              steps that follow count within it
//	phase eval           what it does now, in the program's own words
//	value loss 2.31      a number of the program's own; nan, inf and -inf are numbers too
//	checkpoint /path     it has written a checkpoint, which is progress
//
// Lines are UTF-8 of at most MaxLine bytes. A datagram needs no reader: a program that sends without blocking is never
// held up, and never killed by a signal, whatever became of muster. Lines that begin with "torch" are those of muster's
// hook (package hook).
package observe
