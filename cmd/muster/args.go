package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// reorder moves flags before the arguments of a command, up to "--", since the parser
// stops at the first argument and people write flags after the job file.
func reorder(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	i := slices.IndexFunc(app.Commands, func(c *cli.Command) bool { return c.HasName(args[1]) })
	if i < 0 {
		return args
	}
	var flags, words []string
	rest := args[2:]
	for len(rest) > 0 && rest[0] != "--" {
		word := rest[0]
		rest = rest[1:]
		if !strings.HasPrefix(word, "-") || word == "-" {
			words = append(words, word)
			continue
		}
		flags = append(flags, word)
		if takesValue(app.Commands[i], word) && len(rest) > 0 {
			flags, rest = append(flags, rest[0]), rest[1:]
		}
	}
	ordered := append(slices.Clone(args[:2]), flags...)
	// "--" keeps the parser from the words; what follows a "--" of the user's own comes
	// after a second one.
	ordered = append(append(ordered, "--"), words...)
	return append(ordered, rest...)
}

// takesValue reports whether a flag as written is followed by its value in a word of
// its own.
func takesValue(c *cli.Command, word string) bool {
	name := strings.TrimLeft(word, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), name) {
			_, isBool := f.(*cli.BoolFlag)
			return !isBool
		}
	}
	return false
}

// split separates the arguments of a command from the words after the user's "--".
func split(args []string) (own, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// suggestion asks whether the command that a mistyped one is close to is meant.
func suggestion(app *cli.App, typed string) string {
	if question := cli.SuggestCommand(app.Commands, typed); question != "" {
		return " (" + strings.ToLower(question[:1]) + question[1:] + ")"
	}
	return ""
}
