// Plugin-rocm is a plugin of muster for AMD GPUs, and an example of how to write one:
//
//  1. Write a type with Probe(ctx) (*plugins.GPUs, error): all that one look finds. What
//     could not be read is nil, with a reason in Why; a device that is broken is a device
//     with another state than "ok"; an error means that nothing is known at all.
//  2. Call external.Serve with it in main, after flags, having printed nothing.
//  3. Index is how the device's own tools count, and UUID the same on every machine.
//  4. Links say which devices have fast ways between them, whoever makes these: "NV2" is
//     two fast links. Muster puts ranks that talk most on devices that all have some.
//  5. Visibility says by which variable a process is told its devices, and how.
//  6. Build it, try it (muster-plugin-rocm probe), copy it to the same path on all hosts.
//  7. Name path and sha256sum in the job file: see examples/plugin-rocm.hcl.
//
// Muster starts the program on each host with no environment, kills it when it hangs, and
// shows its last words when it fails. Another language than Go will do: see
// plugins/external/pluginpb/plugin.proto.
//
// This one reads sysfs only, so that it runs without ROCm's libraries, in any container:
//
//	go build -o muster-plugin-rocm ./examples/plugin-rocm
package main

import (
	"flag"

	"github.com/muster-dev/muster/plugins/external"
)

func main() {
	sysfs := flag.String("sysfs", "/sys", "where sysfs is; another folder to try it on")
	flag.Parse()
	external.Serve("rocm", rocm{sysfs: folder(*sysfs)})
}
