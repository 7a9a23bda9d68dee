package link

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_BOOTTIME (clock_gettime(2)), which nobody sets and which goes on
// while the machine is suspended.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime(CLOCK_BOOTTIME) cannot fail on Linux 2.6.39 and later: %v", err))
	}
	return Instant(ts.Nano())
}
