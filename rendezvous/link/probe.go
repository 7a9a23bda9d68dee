package link

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Reach says whether an address leads to the hub, as one member saw it.
type Reach struct {
	Addr  string        `json:"addr"`            // host:port that was tried
	Local string        `json:"local,omitempty"` // own IP that the connection left from
	Error string        `json:"error,omitempty"` // why not; empty: reached, and the hub's key was shown
	Took  time.Duration `json:"took,omitempty"`
}

// probeTimeout bounds how long an address may take to prove itself.
const probeTimeout = 5 * time.Second

// Probe tries all addresses of the hub at once and returns results as they come;
// the channel is closed after the last. An address proves itself by the hub's
// key: another machine that has the same address (each host's docker0, say) does
// not pass.
func Probe(ctx context.Context, identity *Identity, hub Pin, addrs []string) <-chan Reach {
	results := make(chan Reach, len(addrs))
	done := make(chan struct{}, len(addrs))
	for _, addr := range addrs {
		go func() {
			results <- probe(ctx, identity, hub, addr)
			done <- struct{}{}
		}()
	}
	go func() {
		defer close(results)
		for range addrs {
			<-done
		}
	}()
	return results
}

func probe(ctx context.Context, identity *Identity, hub Pin, addr string) Reach {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := Now()
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: identity.TLSConfig(func(p Pin) bool { return p == hub })}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return Reach{Addr: addr, Error: err.Error(), Took: Now().Sub(start)}
	}
	defer conn.Close()
	local, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return Reach{Addr: addr, Local: local, Took: Now().Sub(start)}
}
