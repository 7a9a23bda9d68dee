//go:build linux

// Package oneshot holds the commands of muster-agent that print what this host has kept of a run, and end.
package oneshot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/sampling"
)

const (
	journal = "events.jsonl"
	// chunk is how many bytes of output a line has at most.
	chunk = 32 << 10
)

// parse reads the flags of a command, which all have -run.
func parse(name string, args []string, more func(*flag.FlagSet)) (run string, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&run, "run", "", "id of the run")
	if more != nil {
		more(flags)
	}
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	// End with the caller: what is read may hang.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	return run, nil
}

func printLine(w io.Writer, v any) error {
	_, err := w.Write(append(message.Encode(v), '\n'))
	return err
}

// findState finds the folder of a run on this host that has a file: its own, or, since a reboot gives the host another
// id, any. It returns "" where there is none.
func findState(run, file string) (string, error) {
	own, err := rundir.State(run, facts.Identity(""))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(own, file)); err == nil {
		return own, nil
	}
	all, err := filepath.Glob(filepath.Join(filepath.Dir(own), "*", file))
	if err != nil || len(all) == 0 {
		return "", nil
	}
	return filepath.Dir(all[0]), nil
}

// Lookup prints what this host knows of a run that it is or was the head host of.
func Lookup(args []string) error {
	run, err := parse("lookup", args, nil)
	if err != nil {
		return err
	}
	dir, err := findState(run, journal)
	if err != nil {
		return err
	}
	found := message.Lookup{}
	if dir != "" {
		found = lookup(dir)
	}
	return printLine(os.Stdout, found)
}

func lookup(dir string) message.Lookup {
	found := message.Lookup{Known: true}
	socket, _ := os.ReadFile(filepath.Join(dir, rundir.ControlPath))
	if conn, err := dialUnix(string(socket)); err == nil && len(socket) > 0 {
		conn.Close()
		found.Control = string(socket)
		var observed message.Observed
		text, err := os.ReadFile(filepath.Join(filepath.Dir(found.Control), rundir.Observed))
		if err == nil && json.Unmarshal(text, &observed) == nil {
			found.Observed = &observed
		}
	}
	events, _ := os.ReadFile(filepath.Join(dir, journal))
	for line := range bytes.Lines(events) {
		if line = bytes.TrimSpace(line); json.Valid(line) {
			found.Journal = append(found.Journal, json.RawMessage(line))
		}
	}
	return found
}

// Output prints what ranks of this host have written, as lines of message.Output.
func Output(args []string) error {
	var of string
	run, err := parse("output", args, func(flags *flag.FlagSet) {
		flags.StringVar(&of, "of", "", "ATTEMPT/RANK@BYTE, separated by commas: where to begin, -1: at the last lines")
	})
	if err != nil {
		return err
	}
	for word := range strings.SplitSeq(of, ",") {
		var attempt, rank int
		var from int64
		if _, err := fmt.Sscanf(word, "%d/%d@%d", &attempt, &rank, &from); err != nil {
			return fmt.Errorf("-of %q: %w", word, err)
		}
		if err := printOutput(run, attempt, rank, from); err != nil {
			return err
		}
	}
	return nil
}

func printOutput(run string, attempt, rank int, from int64) error {
	dir, err := findState(run, ranklog.Path("", attempt, rank))
	if err != nil || dir == "" {
		return err
	}
	path := ranklog.Path(dir, attempt, rank)
	if from == message.FromTail {
		from = ranklog.TailStart(path)
	}
	reader, err := ranklog.Open(path, from)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		segment, err := reader.Next(chunk, true)
		if err != nil {
			break // the end for now
		}
		output := message.Output{Rank: rank, Lane: uint32(segment.Lane), Data: segment.Data}
		if err := printLine(os.Stdout, output); err != nil {
			return err
		}
	}
	return printLine(os.Stdout, message.Output{Rank: rank, End: true})
}

// Samples prints what was kept of this host's samples of a run, also while it goes on: a line for each period, the
// oldest first.
func Samples(args []string) error {
	run, err := parse("samples", args, nil)
	if err != nil {
		return err
	}
	dir, err := findState(run, sampling.FileName)
	if err != nil || dir == "" {
		return err
	}
	series, err := samples.Read(filepath.Join(dir, sampling.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, line := range series.Lines() {
		if err := printLine(out, line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Environ writes this process's environment to a file, each entry ended by a zero byte.
func Environ(args []string) error {
	return os.WriteFile(args[0], []byte(strings.Join(os.Environ(), "\x00")+"\x00"), 0o600)
}

// Proxy joins the standard streams to a unix socket, where the SSH server does not forward sockets.
func Proxy(args []string) error {
	conn, err := dialUnix(args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

func dialUnix(path string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}
