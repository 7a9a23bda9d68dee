package remote

import "fmt"

// Kind is what went wrong, for those who decide by it.
type Kind string

// Kinds of connection errors.
const (
	KindConfig      Kind = "config"      // ssh_config or a key file cannot be used
	KindResolve     Kind = "resolve"     // the name was not found
	KindRefused     Kind = "refused"     // nothing listens there
	KindUnreachable Kind = "unreachable" // no route
	KindTimeout     Kind = "timeout"     // no answer in time
	KindAuth        Kind = "auth"        // no key was accepted
	KindUnknownKey  Kind = "unknown_key" // host key on no record
	KindChangedKey  Kind = "changed_key" // host key differs from the record
	KindRevokedKey  Kind = "revoked_key" // host key recorded as @revoked
	KindHandshake   Kind = "handshake"   // the other side broke off, or speaks no ssh
	KindProxy       Kind = "proxy"       // a proxy command failed, or a jump host would not pass on
	KindCanceled    Kind = "canceled"    // the caller's context ended
)

// Kinds of start errors.
const (
	KindPlatform   Kind = "platform"   // no program is carried for the host's platform
	KindNoSpace    Kind = "no_space"   // the disk is full
	KindPermission Kind = "permission" // the cache folder cannot be written
	KindNoExec     Kind = "noexec"     // the cache folder's file system runs no programs
	KindShell      Kind = "shell"      // the login shell did not run what was sent
	KindProgram    Kind = "program"    // the launch asks for what is not there
	KindLost       Kind = "lost"       // the connection ended
)

// ConnectError says why a host could not be connected to.
type ConnectError struct {
	Host string
	Hop  string // the jump host at which it failed; "": at the host itself
	Kind Kind
	Hint string // what the user can do; may be ""
	Err  error
}

func (e *ConnectError) Error() string {
	return withHint(fmt.Sprintf("connect to %s: %v", e.where(), e.Err), e.Hint)
}

func (e *ConnectError) where() string {
	if e.Hop == "" {
		return e.Host
	}
	return fmt.Sprintf("%s: jump host %s", e.Host, e.Hop)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// StartError says why a program could not be started on a host.
type StartError struct {
	Host, Program string
	Kind          Kind
	Hint          string
	Err           error
}

func (e *StartError) Error() string {
	return withHint(fmt.Sprintf("start %s on %s: %v", e.Program, e.Host, e.Err), e.Hint)
}

func (e *StartError) Unwrap() error { return e.Err }

func withHint(text, hint string) string {
	if hint == "" {
		return text
	}
	return text + "; " + hint
}

// ExitError is a program that ended with a status other than 0, or by a signal.
type ExitError struct {
	Status int    // 128 + signal number for the known signals
	Signal string // such as "KILL"; "" where the program ended by itself
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "killed by SIG" + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// LostError is a connection that ended before its program was seen to end.
type LostError struct {
	Host string
	Err  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("connection to %s was lost: %v", e.Host, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }
