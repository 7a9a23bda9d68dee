// Package pattern is regular expressions that are compiled when they are first used: a
// hundred of them would cost every start of muster ten milliseconds, and few runs fail.
package pattern

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression of Go's syntax.
type Pattern struct {
	text string
	once sync.Once
	re   *regexp.Regexp
}

// New is for package variables: a test of package failure compiles all that there are.
func New(text string) *Pattern { return &Pattern{text: text} }

func (p *Pattern) compiled() *regexp.Regexp {
	p.once.Do(func() { p.re = regexp.MustCompile(p.text) })
	return p.re
}

// MatchString and the others are regexp's.
func (p *Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// FindString is the leftmost match.
func (p *Pattern) FindString(s string) string { return p.compiled().FindString(s) }

// FindStringSubmatch is the leftmost match with its groups.
func (p *Pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

// FindAllStringSubmatch are the first n matches with their groups.
func (p *Pattern) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}

// FindAllStringSubmatchIndex are the places of the first n matches and their groups.
func (p *Pattern) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringSubmatchIndex(s, n)
}

// ReplaceAllString puts by in place of all matches.
func (p *Pattern) ReplaceAllString(s, by string) string { return p.compiled().ReplaceAllString(s, by) }
