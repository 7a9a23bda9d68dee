package text

import "fmt"

// DidYouMean is a question after the nearest candidate, with a space before it; "" where none is
// near.
func DidYouMean(name string, candidates []string) string {
	if near := Nearest(name, candidates, 2); near != "" {
		return fmt.Sprintf(" Did you mean %q?", near)
	}
	return ""
}
