// Package remote is a host that things can be run on: over SSH, or this machine.
// It connects, makes sure that muster's own programs are there, starts one of
// them with its standard streams in hand, and opens unix sockets of the host. It
// knows nothing of jobs and ranks.
//
// A connection owns the goroutines that serve it; Host.Close ends and awaits
// them. Programs that were started outlive their Host.
package remote

import (
	"context"
	"io"
	"io/fs"
	"net"

	"github.com/muster-dev/muster/launcher/remote/bootstrap"
	"github.com/muster-dev/muster/launcher/remote/programs"
)

// Target is where to connect.
type Target struct {
	Name string // ssh alias, name or address, as the job file has it
	User string // "": as ssh_config or the local user says
	Port int    // 0: as ssh_config says, else 22
}

// Host is a connected host.
type Host interface {
	// Name is the target's name.
	Name() string
	// Start runs prog on the host, installing it first where it is missing. It
	// runs in the user's home directory. The process's life does not depend on
	// ctx, which bounds the start alone. A failure is a *StartError.
	Start(ctx context.Context, launch Launch) (*Process, error)
	// DialUnix connects to a unix socket of the host. Deadlines of the
	// connection may be refused with os.ErrNoDeadline.
	DialUnix(ctx context.Context, path string) (net.Conn, error)
	// Close ends the connection. Programs that were started go on.
	Close() error
}

// Launch is a program of muster's own to be started, and what else has to be
// there for it.
type Launch struct {
	Program string   // "muster-agent"
	Also    []string // further programs to install beside it, such as "muster"
	// Optional are further ones that a host may do without.
	Optional []Optional
	// Args are the program's arguments. An argument of the form {NAME} stands for
	// the absolute path of program NAME on the host, or for nothing where an optional
	// one is lacking. Arguments are seen by every user of the host: nothing secret goes here.
	Args []string
}

// Optional is a program that is installed where it is of use, and lacking elsewhere.
type Optional = bootstrap.Optional

// Process is a started program. Its Stdout begins with the program's own first
// byte: what the host's shell files printed before is left out.
type Process struct {
	// Stdin is the program's standard input; Close ends it and nothing else.
	Stdin io.WriteCloser
	// Stdout has to be read: what is left unread blocks the program.
	Stdout io.Reader
	// Wait blocks until the program ended or the connection was lost. A status
	// other than 0, or a signal, is an *ExitError; a lost connection, which says
	// nothing of the program, is a *LostError. It may be called more than once.
	Wait func() error
	// Stderr returns what the program and the shell that started it wrote there so
	// far, at most a few KiB, for error messages.
	Stderr func() string
	// Close gives up the streams. It does not end a program that does without.
	Close func() error
}

// Binary is one of muster's programs for one platform.
type Binary = programs.Binary

// Programs finds muster's programs by name and platform.
type Programs = programs.Programs

// NewCarried are the programs inside the launcher; see programs.Carried.
func NewCarried(files fs.FS) (Programs, error) { return programs.NewCarried(files) }

// Progress is told about uploads. Calls come from several goroutines.
type Progress interface {
	// Upload says that done of total compressed bytes of program were sent.
	Upload(host, program string, done, total int64)
}

// Prompter asks the user. It is nil where there is no terminal. Calls come one
// at a time.
type Prompter interface {
	// Secret asks for a passphrase without echo. The question ends in a colon.
	Secret(question string) (string, error)
	// Confirm asks a question that only a typed "yes" accepts. It ends in a question
	// mark; that the answer is yes or no is for the Prompter to say.
	Confirm(question string) (bool, error)
}
