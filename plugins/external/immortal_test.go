//go:build linux

package external

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"
)

// immortals start processes that do not die when killed, as in state D.
type immortals struct{ let chan struct{} }

type immortal struct {
	Process
	let chan struct{}
}

func (i immortals) Start(ctx context.Context, s Spec) (Process, error) {
	p, err := Children{}.Start(ctx, s)
	return immortal{p, i.let}, err
}

func (i immortal) Kill() error {
	select {
	case <-i.let:
		return i.Process.Kill()
	default:
		return nil
	}
}

func TestWhatCannotBeKilledIsLeftAndNoOtherIsStarted(t *testing.T) {
	self, _ := os.Executable()
	let := make(chan struct{})
	s := startProgram(t, Program{Path: self, Args: []string{"play", "stops"}, ProbeLimit: 200 * time.Millisecond, killLimit: 300 * time.Millisecond}, immortals{let})
	die := sync.OnceFunc(func() { close(let); s.session.process.kill() })
	t.Cleanup(die)
	s.fails(KindFailed, "does not go away", "pid")
	s.fails(KindFailed, "no other is started")
	if pids := marked(s.mark); len(pids) != 1 {
		t.Errorf("processes %v", pids)
	}
	die()
	eventually(t, "it is gone", func() bool { return within(s.session.gone, 0) })
	s.fails(KindFailed, "did not answer")
}

// lateStarter is a keeper that does not answer.
type lateStarter struct{}

func (lateStarter) Start(ctx context.Context, _ Spec) (Process, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestAStarterThatDoesNotAnswerIsSaid(t *testing.T) {
	self, _ := os.Executable()
	startProgram(t, Program{Path: self, StartLimit: 200 * time.Millisecond}, lateStarter{}).fails(KindFailed, "not ready within")
}
