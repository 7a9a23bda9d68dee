//go:build !linux

package link

import "time"

var start = time.Now()

// Now counts from the start of the process. Hubs and members run on Linux only;
// elsewhere this package is merely linked.
func Now() Instant { return Instant(time.Since(start)) + 1 }
