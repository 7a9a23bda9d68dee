package report

import "fmt"

// Error is an end of a command that the user has to know about, with the exit status that it
// asks for.
type Error struct {
	Exit    int
	Message string
	Err     error // the cause where it matters, or nil
}

func (e *Error) Error() string { return e.Message }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error that asks for an exit status.
func Errorf(exit int, format string, args ...any) *Error {
	return &Error{Exit: exit, Message: fmt.Sprintf(format, args...)}
}
