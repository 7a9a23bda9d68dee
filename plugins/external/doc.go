// Package external runs plugins as programs of their own: a site's, for hardware that muster
// does not know, and muster's own where they must not be linked into it (cgo). A plugin's main
// calls Serve. On muster's side a Prober starts the program, calls it by gRPC over a unix socket
// with mutual TLS (hashicorp/go-plugin), and keeps it for the next call. The protocol is
// pluginpb/plugin.proto; the structs of package gpu are the contract.
//
// A plugin cannot take its host down: every wait has a limit, every answer a maximum size, and
// every failure is an *Error. It can lie about devices, with the user's rights; therefore the
// job file names the program's checksum, which each start verifies.
//
// A Prober has one goroutine for each call, and those of go-plugin; all end with the plugin's
// process, which Close ends. One whose process cannot be killed (state D) stays until it can.
package external
