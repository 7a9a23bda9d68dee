// Package boundaries tests which package may import which: data goes one way, from
// the job file to the report, and the programs that travel to hosts stay small. It
// has no code of its own; the rules, each with its reason, are in rules_test.go.
package boundaries
