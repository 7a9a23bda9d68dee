package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
)

// endWithAsker ends this process when whoever asks has gone: what is read may hang.
func endWithAsker() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}

// lookupMain prints what this host knows of a run that it is or was the head host of.
func lookupMain(_, args []string) error {
	flags := flag.NewFlagSet("lookup", flag.ContinueOnError)
	run := flags.String("run", "", "id of the run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	endWithAsker()
	dir, err := findState(*run, "events.jsonl")
	if err != nil {
		return err
	}
	found := message.Lookup{}
	if dir != "" {
		found = lookup(dir)
	}
	_, err = os.Stdout.Write(append(message.Encode(found), '\n'))
	return err
}

func lookup(dir string) message.Lookup {
	found := message.Lookup{Known: true}
	socket, _ := os.ReadFile(filepath.Join(dir, rundir.ControlPath))
	if conn, err := dialUnix(string(socket)); err == nil && len(socket) > 0 {
		conn.Close()
		found.Control = string(socket)
		found.Observed = observedBeside(found.Control)
	}
	journal, _ := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	for line := range bytes.Lines(journal) {
		if line = bytes.TrimSpace(line); json.Valid(line) {
			found.Journal = append(found.Journal, json.RawMessage(line))
		}
	}
	return found
}

// observedBeside is what the coordinator with that control socket has heard of ranks.
func observedBeside(socket string) *message.Observed {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(socket), rundir.Observed))
	var found message.Observed
	if err != nil || json.Unmarshal(text, &found) != nil {
		return nil // nothing has been told yet
	}
	return &found
}

// findState finds the folder of a run on this host that has a file: its own, or, since
// a reboot gives the host another id, any. It returns "" where there is none.
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

// outputMain prints what ranks of this host have written, as lines of message.Output.
func outputMain(_, args []string) error {
	flags := flag.NewFlagSet("output", flag.ContinueOnError)
	run := flags.String("run", "", "id of the run")
	of := flags.String("of", "", "ATTEMPT/RANK@BYTE, separated by commas: where to begin, -1: at the last lines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	endWithAsker()
	for word := range strings.SplitSeq(*of, ",") {
		var attempt, rank int
		var from int64
		if _, err := fmt.Sscanf(word, "%d/%d@%d", &attempt, &rank, &from); err != nil {
			return fmt.Errorf("-of %q: %w", word, err)
		}
		if err := printOutput(*run, attempt, rank, from); err != nil {
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
		segment, err := reader.Next(pushSize, true)
		if err != nil {
			break // the end for now
		}
		line := append(message.Encode(message.Output{Rank: rank, Lane: uint32(segment.Lane), Data: segment.Data}), '\n')
		if _, err := os.Stdout.Write(line); err != nil {
			return err
		}
	}
	_, err = os.Stdout.Write(append(message.Encode(message.Output{Rank: rank, End: true}), '\n'))
	return err
}

func dialUnix(path string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}
