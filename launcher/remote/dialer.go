package remote

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster/launcher/remote/hostkeys"
	"github.com/muster-dev/muster/launcher/remote/sshconfig"
	"github.com/muster-dev/muster/launcher/remote/userkeys"
)

const defaultLimit = 64

// Dialer connects to hosts by ssh, as the user's ssh configuration says. The
// zero value works; one Dialer serves all hosts of a launch, because what the
// user is asked, key files, known_hosts and connections to jump hosts are shared.
// It must not be copied.
type Dialer struct {
	// ConfigFiles are read in this order; nil: ~/.ssh/config, /etc/ssh/ssh_config.
	ConfigFiles []string
	Prompter    Prompter // nil: nobody to ask
	Programs    Programs
	Progress    Progress // may be nil
	// Limit is how many hosts are connected to at once; 0: 64.
	Limit int
	// Timeout bounds one connection attempt up to the login, where ssh_config has no
	// ConnectTimeout; 0: 20 s. The user's time to answer does not count.
	Timeout time.Duration
	// KeepAlive is how long a host may be silent before it is asked for a sign of
	// life, where ssh_config has no ServerAliveInterval; 0: 15 s. Three (or
	// ServerAliveCountMax) unanswered ones end the connection.
	KeepAlive time.Duration
	// StartTimeout bounds how long a host may be silent while a program is started
	// and installed; 0: 60 s.
	StartTimeout time.Duration
	// Notice is told in a line what the user ought to know, such as a newly
	// recorded host key; may be nil. Calls come one at a time.
	Notice func(text string)

	configOnce sync.Once
	config     *sshconfig.Config
	configErr  error

	slotsOnce sync.Once
	slots     *semaphore.Weighted

	asking   questions
	noticing sync.Mutex
	hosts    hostkeys.Registry
	keys     userkeys.Ring
	hops     hops
}

func (d *Dialer) loadConfig() (*sshconfig.Config, error) {
	d.configOnce.Do(func() {
		home, files := sshconfig.HomeDir(), d.ConfigFiles
		if files == nil {
			files = []string{filepath.Join(home, ".ssh", "config"), "/etc/ssh/ssh_config"}
		}
		d.config, d.configErr = sshconfig.Load(home, files...)
	})
	return d.config, d.configErr
}

func (d *Dialer) notice(format string, args ...any) {
	if d.Notice == nil {
		return
	}
	d.noticing.Lock()
	defer d.noticing.Unlock()
	d.Notice(fmt.Sprintf(format, args...))
}

// acquire waits for one of the slots that bound how much is connected at once.
func (d *Dialer) acquire(ctx context.Context) (release func(), err error) {
	d.slotsOnce.Do(func() {
		limit := int64(d.Limit)
		if limit <= 0 {
			limit = defaultLimit
		}
		d.slots = semaphore.NewWeighted(limit)
	})
	if err := d.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { d.slots.Release(1) }, nil
}

// Connect connects to one host. A failure is a *ConnectError.
func (d *Dialer) Connect(ctx context.Context, target Target) (Host, error) {
	release, err := d.acquire(ctx)
	if err != nil {
		return nil, &ConnectError{Host: target.Name, Kind: KindCanceled, Err: err}
	}
	defer release()
	r, err := d.route(ctx, target)
	if err != nil {
		return nil, err
	}
	h, err := d.connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// maxAttempts bounds the handshakes for one host: each but the last ends with a
// question that the user answered, or a server too busy to answer.
const maxAttempts = 12

// connect tries until nothing is left that the user's answer could change.
func (d *Dialer) connect(ctx context.Context, r *route) (*sshHost, error) {
	for n := 1; ; n++ {
		h, remedy, err := d.attempt(ctx, r)
		if err == nil {
			return h, nil
		}
		again, asking := d.apply(ctx, r.settings, remedy, n)
		if asking != nil {
			return nil, alsoSaying(err, asking)
		}
		if !again || n == maxAttempts {
			return nil, err
		}
	}
}

// apply does what can be done about a failed attempt: have the user trust the
// key, or give the passphrase, or leave a busy server alone a while. It reports
// whether another attempt is worth it, and what went wrong in asking.
func (d *Dialer) apply(ctx context.Context, s *sshconfig.Settings, fix remedy, n int) (bool, error) {
	if ctx.Err() != nil {
		return false, nil
	}
	switch {
	case fix.trust != nil:
		return d.accept(ctx, s, fix.trust)
	case fix.open != nil:
		err := fix.open.Unlock(func(question string) (string, error) { return d.secret(ctx, question) })
		return err == nil, err
	case fix.dropped && n <= maxDrops:
		return pause(ctx, n), nil
	}
	return false, nil
}

// alsoSaying adds to a connection's error that the user could not be asked.
func alsoSaying(err, asking error) error {
	var failed *ConnectError
	if !errors.As(err, &failed) {
		return errors.Join(err, asking)
	}
	out := *failed
	out.Err = fmt.Errorf("%w (asking the user failed: %w)", failed.Err, asking)
	return &out
}
