//go:build linux

package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's own messages for asking about sockets: sock_diag(7) and
// include/uapi/linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	tcpListen        = 10 // state TCP_LISTEN
	diagRequestSize  = 56 // struct inet_diag_req_v2
	diagSourcePort   = 8  // offset of the source port in a request, and
	diagReplySource  = 4  // in a reply (struct inet_diag_msg), both in network order
	diagReplyInode   = 68 // offset of the inode in a reply
	diagReplySize    = 72
)

// diagWait bounds the answer, which is the kernel's and takes microseconds.
const diagWait = time.Second

// diagListeners asks the kernel for the sockets that listen on a port, as names of
// /proc/PID/fd. It tells only of those: reading the tables of /proc/net takes milliseconds
// where there are many connections.
func diagListeners(port int) (map[string]bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask for listening sockets: %w", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(diagWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("ask for listening sockets: %w", err)
	}
	sockets := map[string]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
		if err := unix.Sendto(fd, diagRequest(family, port), 0, kernel); err != nil {
			return nil, fmt.Errorf("ask for listening sockets: %w", err)
		}
		if err := readDiag(fd, port, sockets); err != nil {
			return nil, fmt.Errorf("ask for listening sockets: %w", err)
		}
	}
	return sockets, nil
}

// diagRequest asks for a dump of a family's listening TCP sockets.
func diagRequest(family uint8, port int) []byte {
	message := make([]byte, unix.SizeofNlMsghdr+diagRequestSize)
	header := (*unix.NlMsghdr)(unsafe.Pointer(&message[0]))
	header.Len, header.Type, header.Flags = uint32(len(message)), sockDiagByFamily, unix.NLM_F_REQUEST|unix.NLM_F_DUMP
	request := message[unix.SizeofNlMsghdr:]
	request[0], request[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], 1<<tcpListen)
	binary.BigEndian.PutUint16(request[diagSourcePort:], uint16(port)) // the kernel leaves others out
	return message
}

// readDiag reads a dump to its end.
func readDiag(fd, port int, into map[string]bool) error {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		done, err := parseDiag(buffer[:n], port, into)
		if done || err != nil {
			return err
		}
	}
}

// parseDiag takes in one datagram of a dump.
func parseDiag(data []byte, port int, into map[string]bool) (done bool, err error) {
	for len(data) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(data))
		if length < unix.SizeofNlMsghdr || length > len(data) {
			return true, errors.New("the kernel's answer is cut short")
		}
		body := data[unix.SizeofNlMsghdr:length]
		switch binary.NativeEndian.Uint16(data[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errors.New("the kernel refuses")
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case sockDiagByFamily:
			if len(body) >= diagReplySize && int(binary.BigEndian.Uint16(body[diagReplySource:])) == port {
				into[fmt.Sprintf("socket:[%d]", binary.NativeEndian.Uint32(body[diagReplyInode:]))] = true
			}
		}
		data = data[min(len(data), (length+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return false, nil
}
