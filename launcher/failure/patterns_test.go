package failure

import (
	"testing"

	"github.com/muster-dev/muster/launcher/failure/pattern"
)

// Patterns are compiled when they are first used, which must not be on the day of need.
func TestEveryPatternCompiles(t *testing.T) {
	if n := pattern.CompileAll(); n < 60 {
		t.Errorf("only %d patterns", n)
	}
}
