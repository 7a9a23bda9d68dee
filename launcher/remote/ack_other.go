//go:build !linux

package remote

import "net"

// acksAtOnce: acknowledgements are delayed; data that carries them is sent instead.
const acksAtOnce = false

func acknowledgeAtOnce(net.Conn) {}
