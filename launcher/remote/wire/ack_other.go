//go:build !linux

package wire

import "net"

// AcksAtOnce: acknowledgements are delayed; data that carries them is sent instead.
const AcksAtOnce = false

func acknowledgeAtOnce(net.Conn) {}
