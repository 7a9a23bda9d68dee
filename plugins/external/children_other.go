//go:build !linux

package external

import (
	"context"
	"errors"
)

// Children starts plugins as children of this process, on Linux.
type Children struct{}

var _ Starter = Children{}

// Start says that it cannot.
func (Children) Start(context.Context, Spec) (Process, error) {
	return nil, errors.New("plugins run on Linux only: they are started by their descriptor")
}
