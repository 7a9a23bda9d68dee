// Package plural counts things in words: "1 rank", "2 ranks". It knows nothing of what is
// counted.
package plural

import "fmt"

// Of is a number of things whose plural ends in s.
func Of[N int | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Are is Of with the verb that follows it: "1 rank is", "2 ranks are".
func Are[N int | uint64](n N, what string) string {
	if n == 1 {
		return Of(n, what) + " is"
	}
	return Of(n, what) + " are"
}
