// Package sshconfig reads OpenSSH's client configuration and answers what it
// says of one host. It keeps ssh's rules: the first value wins, Include works
// anywhere, Match blocks are honoured, "Match final" asks for a second pass.
// It opens no connection and starts no goroutine; "Match exec" runs its command.
//
// Of the keywords it interprets those that muster follows. Algorithms are muster's
// own choice, CanonicalizeHostname is not done, and all that concerns sessions,
// terminals and forwarding is of no interest.
package sshconfig

import (
	"fmt"
	"strings"
)

// Config is a set of parsed configuration files, in ssh's order.
type Config struct {
	files     [][]directive
	wantFinal bool
}

// Position is a line of a file.
type Position struct {
	File string
	Line int
}

func (p Position) String() string { return fmt.Sprintf("%s line %d", p.File, p.Line) }

// Error is a configuration error and where it stands.
type Error struct {
	Pos Position
	Msg string
}

func (e *Error) Error() string { return e.Pos.String() + ": " + e.Msg }

func (p Position) errorf(format string, args ...any) error {
	return &Error{Pos: p, Msg: fmt.Sprintf(format, args...)}
}

// Value is one setting of a keyword.
type Value struct {
	Args []string
	Pos  Position
}

// Values is what the configuration says of one host.
type Values struct {
	set map[string][]Value
}

// Find returns the value of a keyword.
func (v *Values) Find(keyword string) (Value, bool) {
	all := v.set[strings.ToLower(keyword)]
	if len(all) == 0 {
		return Value{}, false
	}
	return all[0], true
}

// First returns the first argument of a keyword, or fallback where it is not set.
func (v *Values) First(keyword, fallback string) string {
	if value, ok := v.Find(keyword); ok {
		return value.Args[0]
	}
	return fallback
}

// All returns the values of a keyword that accumulates, such as IdentityFile.
func (v *Values) All(keyword string) []Value { return v.set[strings.ToLower(keyword)] }

// Errorf is an error at the place where keyword was set.
func (v *Values) Errorf(keyword, format string, args ...any) error {
	value, _ := v.Find(keyword)
	return value.Pos.errorf(format, args...)
}
