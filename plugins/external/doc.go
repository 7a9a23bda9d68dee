// Package external is plugins that are programs of their own: a site's for hardware that
// muster does not know, and muster's own where they must not be part of it (cgo). A
// plugin's main calls Serve; muster's side is Prober, which starts the program, asks it
// by gRPC over a unix socket with mutual TLS (hashicorp/go-plugin), and keeps it for the
// next time. Who is to be told of errors of devices when they happen has a Prober of its
// own watch, for that may wait. What is asked and answered is in pluginpb/plugin.proto; the structs of
// package plugins are the contract.
//
// It refuses to know who is the parent of a plugin: that is a Starter's matter. Children
// is the one for programs without a keeper.
//
// A plugin cannot take its host down: every wait has a limit, every answer a size, and
// whatever goes wrong is an *Error with a Kind and words. It can fool it, though: it says
// what the host then believes of its devices, with the rights of the user. So the job
// file names the sum of the program, which is checked at each start.
//
// Goroutines: a Prober has one for each life of its plugin, and those of go-plugin; they
// end with the process, which Close ends. One whose process cannot be killed (state D)
// stays until it can. Children keeps one thread for as long as this process lives.
package external
