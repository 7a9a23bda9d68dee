package observe

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// Mark is how far a program is. -1 is what is not known.
type Mark struct {
	Epoch int
	Step  int
}

// Nowhere is the mark of a program that has said nothing.
var Nowhere = Mark{-1, -1}

// Known is whether there is anything in it.
func (m Mark) Known() bool { return m.Epoch >= 0 || m.Step >= 0 }

// Compare orders marks: later ones are greater. Steps that begin again with each epoch count within it.
func (m Mark) Compare(other Mark) int {
	steps := cmp.Compare(m.Step, other.Step)
	if m.Step >= 0 && other.Step >= 0 && (m.Epoch < 0 || other.Epoch < 0) {
		return steps
	}
	return cmp.Or(cmp.Compare(m.Epoch, other.Epoch), steps)
}

func (m Mark) String() string {
	switch {
	case m.Epoch >= 0 && m.Step >= 0:
		return fmt.Sprintf("epoch %d, step %d", m.Epoch, m.Step)
	case m.Step >= 0:
		return fmt.Sprintf("step %d", m.Step)
	case m.Epoch >= 0:
		return fmt.Sprintf("epoch %d", m.Epoch)
	}
	return "no step"
}

type markJSON struct {
	Epoch *int `json:"epoch,omitempty"`
	Step  *int `json:"step,omitempty"`
}

// MarshalJSON writes an object without what is not known.
func (m Mark) MarshalJSON() ([]byte, error) {
	var j markJSON
	if m.Epoch >= 0 {
		j.Epoch = &m.Epoch
	}
	if m.Step >= 0 {
		j.Step = &m.Step
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Mark) UnmarshalJSON(text []byte) error {
	*m = Nowhere
	j := markJSON{&m.Epoch, &m.Step}
	return json.Unmarshal(text, &j)
}
