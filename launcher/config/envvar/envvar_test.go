package envvar

import "testing"

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"A", "A", true}, {"A", "AB", false}, {"A*", "A", true}, {"A*", "AB", true}, {"*A", "BA", true}, {"*A", "AB", false}, {"A*A", "A", false},
		{"A*A", "AA", true}, {"A*B*C", "AxBxC", true}, {"A*B*C", "AxCxB", false}, {"A*B*B", "AB", false}, {"A**", "A", true},
		{"HOME", "HOME", true}, {"H*", "HOME", false}, {"SSH_*", "SSH_AUTH_SOCK", false}, {"SSH_AUTH_SOCK", "SSH_AUTH_SOCK", true}, {"*_TOKEN", "HF_TOKEN", true},
	} {
		if got := Names(test.pattern, test.name); got != test.want {
			t.Errorf("%s names %s: %v", test.pattern, test.name, got)
		}
	}
}
