package failure

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// Signature is what makes two failures the same: the class, the exception's type with the
// innermost frame of the user's own, and the words that decided without what changes from
// one attempt to the next.
func Signature(v verdict.Verdict, e Evidence) string {
	parts := []string{v.Class}
	if v.Exception != "" {
		parts = append(parts, v.Exception)
	}
	if v.Where != "" {
		parts = append(parts, v.Where)
	}
	if xid, ok := v.Numbers[verdict.NumXid]; ok {
		parts = append(parts, fmt.Sprintf("xid %.0f", xid))
	}
	if signal, _, _ := e.killer(); signal != "" && v.Exception == "" {
		parts = append(parts, signal)
	}
	switch {
	case v.Class == class.Exit:
		parts = append(parts, fmt.Sprintf("status %d", e.Code))
	case v.Phrase != "":
		parts = append(parts, v.Phrase)
	case v.Said != "":
		parts = append(parts, normal(v.Said))
	}
	if op, _, _ := strings.Cut(v.Collective, " "); op != "" {
		parts = append(parts, op)
	}
	return strings.Join(parts, " | ")
}

// What changes between attempts: addresses, ids, parts of temporary paths, numbers.
var changing = []struct {
	form *pattern.Pattern
	by   string
}{
	{pattern.New(`0x[0-9a-fA-F]+`), "#"},
	{pattern.New(`\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{14,22}\b`), "#"},
	{pattern.New(`(/tmp|/var/tmp|/dev/shm)/[^\s'":,)]+`), "$1/#"},
	{pattern.New(`\b(tmp|torch|torchelastic|nccl|psm)[_-][0-9A-Za-z_-]+`), "$1#"},
	{pattern.New(`\b[0-9a-f]{12,64}\b`), "#"},
	{pattern.New(`attempt[_-][0-9]+`), "attempt"},
	{pattern.New(`[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?`), "#"},
	{pattern.New(`\s+`), " "},
}

// maxSaid is how much of the words counts.
const maxSaid = 120

func normal(said string) string {
	for _, c := range changing {
		said = c.form.ReplaceAllString(said, c.by)
	}
	said = strings.TrimSpace(said)
	if len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "")
	}
	return said
}
