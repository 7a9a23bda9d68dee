package remote

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Terminal asks the user at the terminal, whatever standard input and output are
// connected to.
type Terminal struct {
	tty   *os.File
	state *term.State
}

var _ Prompter = (*Terminal)(nil)

// OpenTerminal opens the terminal that this process belongs to; an error: there
// is none.
func OpenTerminal() (*Terminal, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the terminal: %w", err)
	}
	return newTerminal(tty)
}

func newTerminal(tty *os.File) (*Terminal, error) {
	state, err := term.GetState(int(tty.Fd()))
	if err != nil {
		tty.Close()
		return nil, fmt.Errorf("read the terminal's state: %w", err)
	}
	return &Terminal{tty: tty, state: state}, nil
}

// Close leaves the terminal as it was found, also while a question is open.
func (t *Terminal) Close() error {
	term.Restore(int(t.tty.Fd()), t.state)
	return t.tty.Close()
}

// Secret asks for a passphrase without echo.
func (t *Terminal) Secret(question string) (string, error) {
	fmt.Fprint(t.tty, question)
	secret, err := term.ReadPassword(int(t.tty.Fd()))
	fmt.Fprintln(t.tty)
	if err != nil {
		return "", fmt.Errorf("read the passphrase: %w", err)
	}
	return string(secret), nil
}

// Confirm asks until the answer is yes or no.
func (t *Terminal) Confirm(question string) (bool, error) {
	lines := bufio.NewReader(t.tty)
	for {
		fmt.Fprint(t.tty, question)
		line, err := lines.ReadString('\n')
		if err != nil {
			return false, fmt.Errorf("read the answer: %w", err)
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "yes":
			return true, nil
		case "no":
			return false, nil
		}
		question = `Please type "yes" or "no": `
	}
}
