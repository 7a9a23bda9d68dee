package text

import (
	"slices"
	"testing"
)

func TestWidth_CountsCellsAndNoColours(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "\x1b[31mred\x1b[0m": 3, "é": 1, "🚀": 2} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
	}
	if got := Truncate("日本語のホスト", 7); got != "日本語…" {
		t.Errorf("Truncate gives %q", got)
	}
	for width, want := range map[int]string{14: "日本語のホスト", 8: "…ホスト", 7: "…ホスト", 6: "…スト"} {
		if got := TruncateLeft("日本語のホスト", width); got != want {
			t.Errorf("TruncateLeft gives %q in %d cells, want %q", got, width, want)
		}
	}
}

func TestWrap_BreaksAtSpacesOnly(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 7, "one two\nthree"},
		{"one two\nthree four", 20, "one two\nthree four"},
		{"add it by --name host-with-hyphens", 12, "add it by\n--name\nhost-with-hyphens"},
		{"日本 日本 日本", 9, "日本 日本\n日本"},
		{"short", 30, "short"},
		{"", 30, ""},
	} {
		if got := Wrap(c.text, c.width); got != c.want {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func TestShellSplit_ReadsAsAShellWithoutExpanding(t *testing.T) {
	for line, want := range map[string][]string{
		"":                           nil,
		"a b\tc":                     {"a", "b", "c"},
		`--name 'two words' "x y"`:   {"--name", "two words", "x y"},
		`a\ b '' ""`:                 {"a b", "", ""},
		`$HOME "$(date)" '\n'`:       {"$HOME", "$(date)", `\n`},
		`"say \"hi\" \n" pre'fix'ed`: {`say "hi" \n`, "prefixed"},
	} {
		got, err := ShellSplit(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ShellSplit(%q) = %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'open`, `"open`, `end\`} {
		if _, err := ShellSplit(line); err == nil {
			t.Errorf("%q is split", line)
		}
	}
}
