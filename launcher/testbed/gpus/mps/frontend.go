//go:build linux

package mps

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
)

// reply is what the daemon answers to a command.
type reply struct {
	Text    string `json:"text"`
	Status  int    `json:"status"` // that the front end ends with
	Refused bool   `json:"refused,omitempty"`
}

// frontEnd passes commands on, line by line, and prints the answers. Its status is 0 where
// there is a daemon that it can talk to, whatever that answers.
func frontEnd(pipes string, in io.Reader, out io.Writer) int {
	conn, words := dial(pipes)
	if conn == nil {
		fmt.Fprintln(out, words)
		return 1
	}
	defer conn.Close()
	answers, status := json.NewDecoder(conn), 0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r reply
		_, err := fmt.Fprintln(conn, lines.Text())
		if err == nil {
			err = answers.Decode(&r)
		}
		if err != nil || r.Refused {
			fmt.Fprintln(out, notAllowed)
			return 1
		}
		fmt.Fprint(out, r.Text)
		status = max(status, r.Status)
	}
	return status
}

func dial(pipes string) (conn net.Conn, words string) {
	pid, err := recorded(pipes)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, notAllowed
	case err != nil || !exists(pid):
		return nil, noDaemon
	}
	conn, err = net.Dial("unix", filepath.Join(pipes, commandSocket))
	if err != nil {
		return nil, notAllowed
	}
	return conn, ""
}
