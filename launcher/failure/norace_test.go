//go:build !race

package failure

// raceEnabled is whether tests run under the race detector, which makes them slow.
const raceEnabled = false
