// Command gotest runs go test for the Makefile and prints what a person needs: a line
// per package, all that a failed test has said, and nothing of those that passed. A
// test that is skipped for root fails the run: root has all that tests need.
//
//	go run ./cmd/gotest -race ./launcher/...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	status, err := run(os.Args[1:], os.Stdout, os.Geteuid() == 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	os.Exit(status)
}

func run(args []string, to io.Writer, noSkip bool) (int, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	t := newTally(to)
	if err := t.read(out); err != nil {
		return 1, errors.Join(err, cmd.Wait())
	}
	status := t.close(noSkip)
	var failed *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &failed) {
		return 1, nil // why was said
	} else if err != nil {
		return 1, err
	}
	return status, nil
}

// read takes in all events. What is not one is passed on.
func (t *tally) read(r io.Reader) error {
	decoder := json.NewDecoder(r)
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			_, _ = io.Copy(io.Discard, r) // go test must not block
			return fmt.Errorf("what go test printed: %w", err)
		}
		t.take(e)
	}
}
