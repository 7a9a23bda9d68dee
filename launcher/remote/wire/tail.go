package wire

import (
	"io"
	"sync"
)

// Tail keeps the last of what is written to it.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 8 << 10

var _ io.Writer = (*Tail)(nil)

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// Text is what was kept.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
