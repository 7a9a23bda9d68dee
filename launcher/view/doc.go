// Package view shows things to people and scripts: a run in a terminal or a pipe, a
// plan as a table or JSON. It decides nothing.
package view
