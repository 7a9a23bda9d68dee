package mps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Answer is what the control program said and how it ended.
type Answer struct {
	Text string // of its standard output, and of its standard error where that has the reason
	Code int    // exit status: 0 says only that there is a daemon
}

// Control asks one daemon.
type Control struct {
	// Ask hands commands, one a line, to the control program in the daemon's pipe directory. Its error is that the
	// program could not be run, or did not end in time.
	Ask func(ctx context.Context, commands ...string) (Answer, error)
}

// ErrNoDaemon says that no daemon answers there.
var ErrNoDaemon = errors.New("no MPS daemon answers")

// Refused is a daemon's no. It ends well all the same, so that only its words tell.
type Refused struct{ Command, Words string }

func (r *Refused) Error() string {
	return fmt.Sprintf("the MPS daemon answers %q to %q", r.Words, r.Command)
}

// no begin, or stand in, the answers that are refusals.
var no = []string{
	"Unknown command", "Invalid ", "Insufficient privileges", "not found", "Failed", "failed", "Error", "error", "Cannot ", "cannot",
	"Server will not shutdown", "No default pinned memory limit",
}

// one gives one command and returns the answer, without its end.
func (c Control) one(ctx context.Context, command string) (string, error) {
	answer, err := c.Ask(ctx, command)
	text := strings.TrimSpace(answer.Text)
	switch {
	case err != nil:
		return "", err
	case answer.Code != 0 && text != "":
		return "", fmt.Errorf("%w: %s", ErrNoDaemon, text)
	case answer.Code != 0:
		return "", fmt.Errorf("%w (exit status %d)", ErrNoDaemon, answer.Code)
	}
	for _, words := range no {
		if strings.Contains(text, words) {
			return "", &Refused{command, text}
		}
	}
	return text, nil
}

// Servers are the pids of the daemon's servers: none before its first client.
func (c Control) Servers(ctx context.Context) ([]int, error) {
	text, err := c.one(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	return pids(text)
}

// States of a server.
const (
	Starting = "INITIALIZING"
	Active   = "ACTIVE"
	// Fault is after a fatal fault of a client, until every client that it took along has ended: new ones are
	// refused.
	Fault = "FAULT"
)

// Status is a server's state, one of Starting, Active and Fault.
func (c Control) Status(ctx context.Context, server int) (string, error) {
	return c.one(ctx, fmt.Sprintf("get_server_status %d", server))
}

// ErrBusy says that a server has no time to answer.
var ErrBusy = errors.New("the MPS server is busy")

// Clients are the pids of a server's clients.
func (c Control) Clients(ctx context.Context, server int) ([]int, error) {
	text, err := c.one(ctx, fmt.Sprintf("get_client_list %d", server))
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(text, "<busy>"):
		return nil, ErrBusy
	}
	return pids(text)
}

// pids reads numbers, one a line.
func pids(text string) ([]int, error) {
	var all []int
	for word := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("the MPS daemon lists %q, where a process is meant", word)
		}
		all = append(all, pid)
	}
	return all, nil
}

// SetShares tells the daemon the limits of the servers that it will start, and reads them back: 0 leaves one unset.
// number is the daemon's for the device.
func (c Control) SetShares(ctx context.Context, number int, threads float64, memory uint64) error {
	if threads > 0 {
		if err := c.setThreads(ctx, threads); err != nil {
			return err
		}
	}
	if memory == 0 {
		return nil
	}
	return c.setMemory(ctx, number, memory)
}

func (c Control) setThreads(ctx context.Context, threads float64) error {
	if _, err := c.one(ctx, "set_default_active_thread_percentage "+Percentage(threads)); err != nil {
		return err
	}
	text, err := c.one(ctx, "get_default_active_thread_percentage")
	if err != nil {
		return err
	}
	got, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(got-threads) > 0.05 {
		return fmt.Errorf("the MPS daemon was told an active thread percentage of %s and has %q", Percentage(threads), text)
	}
	return nil
}

func (c Control) setMemory(ctx context.Context, number int, memory uint64) error {
	if _, err := c.one(ctx, fmt.Sprintf("set_default_device_pinned_mem_limit %d %s", number, Amount(memory))); err != nil {
		return err
	}
	text, err := c.one(ctx, fmt.Sprintf("get_default_device_pinned_mem_limit %d", number))
	if err != nil {
		return err
	}
	if got, ok := ParseAmount(text); !ok || got != memory {
		return fmt.Errorf("the MPS daemon was told a pinned memory limit of %s and has %q", Amount(memory), text)
	}
	return nil
}

// Quit has the daemon end once its servers have; those that serve clients still are ended after so many seconds. It
// returns when the daemon has answered, which is at the end.
func (c Control) Quit(ctx context.Context, seconds int) error {
	_, err := c.Ask(ctx, QuitCommand(seconds))
	return err
}

// QuitCommand is the command of Quit.
func QuitCommand(seconds int) string { return fmt.Sprintf("quit -t %d", seconds) }
