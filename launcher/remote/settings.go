package remote

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

const (
	defaultTimeout    = 20 * time.Second
	defaultKeepAlive  = 15 * time.Second
	defaultAliveCount = 3
)

// settings resolves a target by the configuration files.
func (d *Dialer) settings(ctx context.Context, target Target) (*sshconfig.Settings, error) {
	cfg, err := d.loadConfig()
	if err != nil {
		return nil, err
	}
	q := sshconfig.Query{
		Host: target.Name, User: target.User, Port: target.Port,
		LocalUser: sshconfig.LocalUser(), Home: sshconfig.HomeDir(),
	}
	values, err := cfg.Resolve(ctx, q)
	if err != nil {
		return nil, err
	}
	s, err := values.Settings(q)
	if err != nil {
		return nil, err
	}
	s.Timeout = cmp.Or(s.Timeout, d.Timeout, defaultTimeout)
	s.Alive = cmp.Or(s.Alive, d.KeepAlive, defaultKeepAlive)
	s.AliveCount = cmp.Or(s.AliveCount, defaultAliveCount)
	return s, nil
}
