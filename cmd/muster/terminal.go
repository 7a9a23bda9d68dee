package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

func openScreen() *terminal.Screen { return terminal.NewScreen(os.Stdout, os.Stderr) }

// prompter asks on the terminal itself. Standard input is never read: it may be a list
// that a loop around muster reads.
type prompter struct{ tty *os.File }

// openPrompter returns nil where there is nobody to ask.
func openPrompter() remote.Prompter {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return prompter{tty}
}

func (p prompter) Secret(question string) (string, error) {
	fmt.Fprintf(p.tty, "\r\x1b[K%s ", question)
	secret, err := term.ReadPassword(int(p.tty.Fd()))
	fmt.Fprintln(p.tty)
	return string(secret), err
}

func (p prompter) Confirm(question string) (bool, error) {
	fmt.Fprintf(p.tty, "\r\x1b[K%s (yes/no) ", question)
	answer, err := bufio.NewReader(p.tty).ReadString('\n')
	return strings.TrimSpace(answer) == "yes", err
}
