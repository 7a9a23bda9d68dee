//go:build linux

package mps

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// contextMemory is what a server's context takes on each device.
const contextMemory = 30 << 20

// filesEach is how many open files a client costs its server: so many that the usual
// limit of 1024 does for 16 of them. The real figure is not known, only that many clients
// need 16384.
const filesEach = 64

// server is the process that has the contexts. mu guards what is below it.
type server struct {
	folder  string
	machine *gpus.Scenario
	devices []cuda.Device
	line    *packets // to the daemon
	log     *logFile
	files   int

	mu       sync.Mutex
	settings settings
	state    string
	clients  []*client
	retiring bool
}

// Server is nvidia-cuda-mps-server on the machine in a folder. It returns the exit status.
func Server(folder string, errs io.Writer) int {
	line, err := packetsOf(os.NewFile(3, "control"))
	if err != nil {
		fmt.Fprintf(errs, "%s is started by %s only\n", serverName, controlName)
		return 1
	}
	log, _ := openLog("server.log") // the daemon has warned
	s := &server{folder: folder, line: line, log: log, state: active}
	var start order
	if _, err := line.receive(&start); err != nil {
		return 1
	}
	s.settings, s.files = start.Settings, start.Files
	log.line("Other", "Startup")
	log.line("Other", "Connecting to control daemon on socket: %s/%s", pipeFolder(), clientSocket)
	log.line("Other", "Initializing server process")
	if f := strike(folder, gpus.MPSServer); f != nil {
		log.line("Server", "%s", cmp.Or(f.Says, "MPS server failed to start"))
		return cmp.Or(f.Error, 1)
	}
	if err := s.open(); err != nil {
		log.line("Server", "%v", err)
		log.line("Server", "MPS server failed to start")
		return 1
	}
	log.line("Server", "Server has started")
	s.mu.Lock()
	s.tell(notice{State: active})
	s.mu.Unlock()
	return s.obey()
}

// open gets a context on each device of the server.
func (s *server) open() error {
	unlock, err := gpus.LockState(s.folder)
	if err != nil {
		return err
	}
	defer unlock()
	if s.machine, err = gpus.Read(s.folder); err != nil {
		return err
	}
	if s.devices = devicesOf(s.machine); len(s.devices) == 0 {
		return errors.New("no CUDA-capable device is detected")
	}
	held, err := gpus.Held(s.folder)
	if err != nil {
		return err
	}
	for i, d := range s.devices {
		s.log.line("Server", "Creating server context on device %d (%s)", i, s.machine.GPUs[d.GPU].Name)
		if err := cuda.Open(s.machine, s.devices, d, cuda.Process{}, contextMemory, held); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		if err := s.book(d, 0); err != nil {
			return err
		}
	}
	return nil
}

// devicesOf are the devices that a server with this process's environment has: where there
// are some of Volta or newer, older ones are left out.
func devicesOf(machine *gpus.Scenario) []cuda.Device {
	all := cuda.FromEnvironment(machine)
	volta := func(d cuda.Device) bool { return isVolta(machine, d) }
	if slices.ContainsFunc(all, volta) {
		return slices.DeleteFunc(slices.Clone(all), func(d cuda.Device) bool { return !volta(d) })
	}
	return all
}

// isVolta tells whether clients have address spaces of their own on the device.
func isVolta(machine *gpus.Scenario, d cuda.Device) bool {
	major, _, _ := strings.Cut(machine.GPUs[d.GPU].Capability, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}

// maxClients is how many contexts of clients a device has room for.
func maxClients(machine *gpus.Scenario, d cuda.Device) int {
	var major, minor int
	_, err := fmt.Sscanf(machine.CUDA, "%d.%d", &major, &minor)
	switch {
	case !isVolta(machine, d):
		return 16
	case err == nil && (major > 13 || major == 13 && minor >= 1):
		return 60
	default:
		return 48
	}
}

// book notes what the server holds of a device: its own, and before Volta what clients
// hold, who are in no list there.
func (s *server) book(d cuda.Device, clients uint64) error {
	_, err := gpus.Note(s.folder, gpus.Holding{PID: os.Getpid(), UUID: d.UUID, Bytes: contextMemory + clients, Kind: "compute", Name: serverName})
	return err
}

// tell sends the daemon a notice; that it is dead is no reason to end. With mu held.
func (s *server) tell(n notice) { _ = s.line.send(n, nil) }

// obey follows the daemon's orders. A server whose daemon has died stays.
func (s *server) obey() int {
	for {
		var o order
		conn, err := s.line.receive(&o)
		if err != nil {
			s.log.line("Server", "Control daemon connection lost")
			for {
				time.Sleep(time.Hour) // clients go on; a signal ends it
			}
		}
		switch o.Do {
		case "client":
			if conn != nil {
				s.newClient(o.Client, conn)
			}
		case "list":
			s.answer(o, func(n *notice) { n.Clients, n.Active = s.rows(), len(s.clients) })
		case "terminate":
			s.answer(o, func(n *notice) { n.Found = s.terminate(o.PID) })
		case "set":
			s.answer(o, func(*notice) { s.settings = o.Settings })
		case "retire":
			s.mu.Lock()
			s.retiring = true
			s.endIfIdle()
			s.mu.Unlock()
		}
	}
}

func (s *server) answer(o order, fill func(*notice)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := notice{ID: o.ID}
	fill(&n)
	s.tell(n)
}

// endIfIdle ends the process where it is to, and nobody is there. With mu held.
func (s *server) endIfIdle() {
	if !s.retiring || len(s.clients) > 0 {
		return
	}
	for i := range s.devices {
		s.log.line("Server", "Destroy server context on device %d", i)
	}
	s.log.line("Server", "Server exiting")
	os.Exit(0)
}

// newClient takes a client in, unless there is no room or a fault is not over.
func (s *server) newClient(h hello, conn *net.UnixConn) {
	s.log.line("Server", "Received new client request")
	strike(s.folder, gpus.MPSServer+" client")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == faulty:
		s.log.line("Server", "Client {%d, 0} is refused: server is not ready", h.PID)
		refuse(conn, errServerNotReady)
		return
	case s.files < filesEach*(len(s.clients)+1):
		s.log.line("Server", "MPS Server failed to create/open SHM segment")
		refuse(conn, errConnectionFailed)
		return
	}
	c := &client{hello: h, server: s, conn: conn, namespace: namespace(h.PID)}
	c.settings()
	s.clients = append(s.clients, c)
	s.log.line("Server", "Worker created")
	booked := map[string]bool{}
	for _, d := range s.devices {
		booked[d.UUID] = !isVolta(s.machine, d)
	}
	c.send(answer{Server: os.Getpid(), Devices: s.devices, Percentage: c.percentage, Limits: c.limits, Booked: booked})
	go c.serve()
}

// namespace is the number of a process's PID namespace, as "ps" prints it.
func namespace(pid int) string {
	var info unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", pid), &info); err != nil {
		return "0"
	}
	return strconv.FormatUint(info.Ino, 10)
}

// rows list the contexts of clients, and those without one. With mu held.
func (s *server) rows() []clientRow {
	var rows []clientRow
	for _, c := range s.clients {
		row := clientRow{PID: c.PID, Namespace: c.namespace, Name: c.Name}
		if len(c.contexts) == 0 {
			rows = append(rows, row)
		}
		for id, context := range c.contexts {
			row.ID, row.UUID, row.MIG = id, context.device.UUID, context.device.MIG
			rows = append(rows, row)
		}
	}
	return rows
}

// terminate ends the contexts of a client. With mu held.
func (s *server) terminate(pid int) (found bool) {
	for _, c := range slices.Clone(s.clients) {
		if c.PID == pid {
			found = true
			c.send(answer{Lost: errTerminated})
			s.log.line("Server", "Volta MPS: status of client {%d, %d} is INACTIVE", c.PID, 0)
			c.leave()
		}
	}
	return found
}

// fault ends the contexts of all who share a GPU with the client, and of those who share
// one with these. With mu held.
func (s *server) fault(by *client, uuid string) {
	if s.state == faulty {
		return
	}
	if i := slices.IndexFunc(s.devices, func(d cuda.Device) bool { return d.UUID == uuid }); i >= 0 && !isVolta(s.machine, s.devices[i]) {
		s.log.line("Server", "Server encountered a fatal exception. Shutting down")
		os.Exit(1) // without own address spaces it is the server's fault
	}
	struck := map[string]bool{uuid: true}
	for range s.clients { // each round reaches one more at least, or is the last
		for _, c := range s.clients {
			if c == by || c.uses(struck) {
				c.lost = true
				for _, context := range c.contexts {
					struck[context.device.UUID] = true
				}
			}
		}
	}
	s.log.line("Server", "Volta MPS: Server is handling a fatal GPU error.")
	s.log.line("Server", "The following clients have a sticky error set:")
	for _, c := range s.clients {
		if c.lost {
			s.log.line("Server", "{%d, %d}", c.PID, 0)
		}
	}
	for i, d := range s.devices {
		if struck[d.UUID] {
			s.log.line("Server", "Destroy server context on device %d", i)
		}
	}
	s.state = faulty
	s.tell(notice{State: faulty})
	for _, c := range s.clients {
		if c.lost {
			s.log.line("Server", "Volta MPS: status of client {%d, %d} is INACTIVE", c.PID, 0)
			c.send(answer{Lost: errIllegalAddress})
		}
	}
}

// recover makes the contexts again when nobody has a lost one any more. With mu held.
func (s *server) recover() {
	if s.state != faulty || slices.ContainsFunc(s.clients, func(c *client) bool { return c.lost }) {
		return
	}
	for i, d := range s.devices {
		s.log.line("Server", "Creating server context on device %d (%s)", i, s.machine.GPUs[d.GPU].Name)
	}
	s.state = active
	s.tell(notice{State: active})
}
