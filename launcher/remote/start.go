package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster/launcher/remote/bootstrap"
)

const defaultStartTimeout = 60 * time.Second

// start is one program on its way to run.
type start struct {
	host    *sshHost
	script  *bootstrap.Script
	channel *channelProcess
	lines   *bootstrap.Lines
	silence *time.Timer // ends ctx when the host keeps silent
	sending int64       // size of the program that was sent last
}

// Start runs a program on the host, installing it first where it is missing.
func (h *sshHost) Start(ctx context.Context, launch Launch) (*Process, error) {
	p, err := h.start(ctx, launch)
	if err == nil {
		return p, nil
	}
	out := &StartError{Host: h.name, Program: launch.Program, Kind: KindShell, Err: err}
	var why *startFailure
	var lost *LostError
	switch {
	case errors.As(err, &why):
		out.Kind, out.Hint = why.kind, why.hint
	case errors.As(err, &lost):
		out.Kind = KindLost
	case ctx.Err() != nil:
		out.Kind = KindCanceled
	}
	return nil, out
}

// programNames are the programs of a launch; the one to start is the first.
func programNames(launch Launch) []string {
	names := []string{launch.Program}
	for _, also := range launch.Also {
		if !slices.Contains(names, also) {
			names = append(names, also)
		}
	}
	return names
}

// startFailure is a reason that the host gave, or that was found before asking.
type startFailure struct {
	kind Kind
	text string
	hint string
}

func (e *startFailure) Error() string { return e.text }

var errSilence = errors.New("silent for too long")

func (h *sshHost) start(ctx context.Context, launch Launch) (*Process, error) {
	if h.programs == nil {
		return nil, &startFailure{kind: KindProgram, text: "no programs are carried"}
	}
	wanted := bootstrap.Wanted{Programs: programNames(launch), Optional: launch.Optional, Args: launch.Args}
	script, err := bootstrap.New(strings.ToLower(rand.Text()), wanted, h.programs)
	if err != nil {
		return nil, &startFailure{kind: KindProgram, text: err.Error()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &start{host: h, script: script}
	s.silence = time.AfterFunc(h.bound, func() { cancel(errSilence) })
	defer s.silence.Stop()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s.follow(ctx)
}

// open opens the session that the program is going to live in.
func (s *start) open(ctx context.Context) error {
	channel, requests, err := s.host.open(ctx, "session", nil)
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return &startFailure{KindShell, "the host opens no session: " + refused.Message, "MaxSessions in its sshd_config may be too small"}
	}
	if err != nil {
		return err
	}
	s.channel = s.host.process(channel, requests)
	s.lines = bootstrap.NewLines(channel, s.script.Word)
	return nil
}

// follow hands the text to the login shell and reads what it prints until it has
// become the program. That runs beside the wait for ctx, because requests and
// reads of a channel cannot be bounded.
func (s *start) follow(ctx context.Context) (*Process, error) {
	done := make(chan error, 1)
	if !s.host.work.start(func() { done <- s.serve(ctx) }) {
		return nil, s.host.lostError()
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = s.explainSilence(context.Cause(ctx))
	}
	if err != nil {
		s.channel.channel.Close()
		return nil, err
	}
	s.host.wire.Relax()
	return s.channel.handOver(s.lines.Rest()), nil
}

// serve answers the lines of the text. It returns at the line before the program.
func (s *start) serve(ctx context.Context) error {
	if err := s.channel.exec("exec /bin/sh -c '" + s.script.Text + "'"); err != nil {
		return err
	}
	for {
		verb, rest, err := s.lines.Next()
		if err != nil {
			return s.ended(err)
		}
		s.silence.Reset(s.host.bound)
		switch verb {
		case "exec":
			return nil
		case "failed":
			return s.failed(rest)
		case "missing":
			if err := s.upload(ctx, rest); err != nil {
				return err
			}
		}
	}
}

// ended explains a shell that ended, or a connection, before the program began.
func (s *start) ended(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	wait := s.channel.wait()
	var lost *LostError
	if errors.As(wait, &lost) {
		return wait
	}
	text := "the login shell did not run what it was told"
	if wait != nil {
		text += fmt.Sprintf(" (%v)", wait)
	}
	return &startFailure{KindShell, text + s.said(), "muster needs a login shell that runs commands; is one set for this user, and no ForceCommand?"}
}

func (s *start) explainSilence(cause error) error {
	if !errors.Is(cause, errSilence) {
		return cause
	}
	text := fmt.Sprintf("the host said nothing for %s after the login", s.host.bound)
	return &startFailure{KindShell, text + s.said(), "do its shell files (.bashrc, .profile, config.fish) wait for something, such as a slow file system?"}
}

// said quotes what the host printed so far, for an error.
func (s *start) said() string {
	out := ""
	if junk := strings.TrimSpace(s.lines.Junk()); junk != "" {
		out += fmt.Sprintf("; it printed: %q", clip(junk))
	}
	if text := strings.TrimSpace(s.channel.stderr.Text()); text != "" {
		out += fmt.Sprintf("; on standard error: %q", clip(text))
	}
	return out
}

// clip keeps the beginning of a text that is too long for a message.
func clip(text string) string {
	const maxClip = 500
	if len(text) <= maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + "..."
}
