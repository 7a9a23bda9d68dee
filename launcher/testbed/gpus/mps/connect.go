//go:build linux

package mps

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// Client is this process as a client of MPS.
type Client struct {
	Server     int     // the server's PID
	Percentage float64 // of the threads of a device
	Devices    []cuda.Device
	// Lost yields once: the contexts are lost, for this reason. The process cannot go on.
	Lost <-chan error

	limits  map[string]uint64
	booked  map[string]bool
	conn    net.Conn
	answers chan answer
}

// Connect makes this process a client of the daemon in its pipe folder, as the CUDA library
// does at cuInit. Nil without an error: there is no daemon, and the process runs without
// MPS. It waits for as long as the daemon lets it wait: for a server that starts, for
// another user's clients to end.
func Connect() (*Client, error) {
	conn, err := net.Dial("unix", filepath.Join(pipeFolder(), clientSocket))
	if err != nil {
		return nil, nil // CUDA says nothing either
	}
	h := hello{Name: os.Args[0], Connections: 2, Settings: fromEnvironment()}
	if n, err := strconv.Atoi(os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS")); err == nil && n >= 1 && n <= 32 {
		h.Connections = n
	}
	c, err := introduce(conn, h)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func introduce(conn net.Conn, h hello) (*Client, error) {
	var a answer
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		return nil, Error(errConnectionFailed)
	}
	answers := json.NewDecoder(conn)
	switch err := answers.Decode(&a); {
	case err != nil:
		return nil, Error(errConnectionFailed)
	case a.Error != 0:
		return nil, Error(a.Error)
	}
	lost := make(chan error, 1)
	c := &Client{Server: a.Server, Percentage: a.Percentage, Devices: a.Devices, Lost: lost, limits: a.Limits, booked: a.Booked, conn: conn, answers: make(chan answer, 1)}
	go c.listen(answers, lost)
	return c, nil
}

// listen hands answers on until the server is gone or has ended the contexts.
func (c *Client) listen(answers *json.Decoder, lost chan<- error) {
	defer close(c.answers)
	for {
		var a answer
		switch err := answers.Decode(&a); {
		case err != nil:
			lost <- Error(errRPCFailure)
			return
		case a.Lost != 0:
			lost <- Error(a.Lost)
			return
		}
		c.answers <- a
	}
}

// Limit is how much memory of a device the process may have, in bytes; 0: no limit.
func (c *Client) Limit(d cuda.Device) uint64 { return c.limits[d.UUID] }

// Booked tells whether what the process takes of a device is its server's in all lists, as
// on devices older than Volta.
func (c *Client) Booked(d cuda.Device) bool { return c.booked[d.UUID] }

// Context makes a context on a device, with which the process takes memory.
func (c *Client) Context(d cuda.Device, bytes uint64) error {
	if err := json.NewEncoder(c.conn).Encode(request{Do: "context", UUID: d.UUID, Bytes: bytes}); err != nil {
		return Error(errRPCFailure)
	}
	a, ok := <-c.answers
	switch {
	case !ok:
		return <-c.Lost
	case a.Error != 0:
		return Error(a.Error)
	}
	return nil
}

// Fault lets a kernel of the process meet an illegal address on a device. What comes of it
// comes by Lost.
func (c *Client) Fault(d cuda.Device) error {
	if err := json.NewEncoder(c.conn).Encode(request{Do: "fault", UUID: d.UUID}); err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	return nil
}
