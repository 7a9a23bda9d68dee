package wire

import (
	"net"
	"syscall"
)

// AcksAtOnce: this system can be told not to delay acknowledgements.
const AcksAtOnce = true

// acknowledgeAtOnce makes the kernel send the next acknowledgement without
// waiting for data to go with it. The kernel forgets it after a while.
func acknowledgeAtOnce(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}
