package sshconfig

import (
	"strconv"
	"strings"
	"time"
)

// reader turns configuration values into settings; the first error sticks.
type reader struct {
	values *Values
	query  Query
	tokens Tokens
	err    error
}

func (r *reader) fail(keyword, format string, args ...any) {
	if r.err == nil {
		r.err = r.values.Errorf(keyword, keyword+": "+format, args...)
	}
}

func (r *reader) expand(keyword, text string, tokens Tokens) string {
	out, err := Expand(text, tokens)
	if err != nil {
		r.fail(keyword, "%v", err)
	}
	return out
}

// path expands a file name: ${ENV}, ~ and percent tokens.
func (r *reader) path(keyword, text string) string {
	text, err := ExpandEnv(text)
	if err != nil {
		r.fail(keyword, "%v", err)
	}
	return ExpandTilde(r.expand(keyword, text, r.tokens), r.query.Home)
}

func (r *reader) number(keyword string) int {
	text := r.values.First(keyword, "0")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || (keyword == "Port" && n > 65535) {
		r.fail(keyword, "%q is not a usable number", text)
	}
	return n
}

// seconds reads a time such as 30, 30s or 1m30s; "none" is 0.
func (r *reader) seconds(keyword string) time.Duration {
	text := r.values.First(keyword, "none")
	if strings.EqualFold(text, "none") {
		return 0
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	d, err := time.ParseDuration(strings.ToLower(text))
	if err != nil || d < 0 {
		r.fail(keyword, "%q is not a time", text)
	}
	return d
}

func (r *reader) yes(keyword string) bool {
	text := strings.ToLower(r.values.First(keyword, "no"))
	return text == "yes" || text == "true"
}

// paths are the files of a keyword that accumulates, without "none".
func (r *reader) paths(keyword string) []string {
	var out []string
	for _, v := range r.values.All(keyword) {
		if !strings.EqualFold(v.Args[0], "none") {
			out = append(out, r.path(keyword, v.Args[0]))
		}
	}
	return out
}

// files are the arguments of a keyword that lists files, without "none".
func (r *reader) files(keyword string, fallback ...string) []string {
	names := fallback
	if v, ok := r.values.Find(keyword); ok {
		names = v.Args
	}
	var out []string
	for _, name := range names {
		if !strings.EqualFold(name, "none") {
			out = append(out, r.path(keyword, name))
		}
	}
	return out
}
