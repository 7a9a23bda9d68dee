package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/muster-dev/muster/launcher/message"
)

// words are what the agent says to the launcher and hears from it, a JSON object a
// line, over the standard streams that the keeper was started with.
type words struct {
	mu  sync.Mutex
	in  *os.File
	out *os.File
}

func (w *words) say(m message.FromAgent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A launcher that has left hears nothing more; the run does not need it to.
	_, _ = w.out.Write(append(message.Encode(m), '\n'))
}

const maxLine = 4 << 20

// listen hands each line to hear until the launcher has left, which reads as nil.
func (w *words) listen(hear func(*message.ToAgent, error)) {
	lines := bufio.NewScanner(w.in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m message.ToAgent
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			hear(nil, fmt.Errorf("launcher said %.80q: %w", lines.Text(), err))
			return
		}
		hear(&m, nil)
	}
	hear(nil, errors.Join(io.EOF, lines.Err()))
}
