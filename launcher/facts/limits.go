//go:build linux

package facts

import "golang.org/x/sys/unix"

// limits asks getrlimit(2).
func limits() Limits {
	return Limits{Memlock: limit(unix.RLIMIT_MEMLOCK), NoFile: limit(unix.RLIMIT_NOFILE)}
}

func limit(resource int) Limit {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return Limit{}
	}
	return Limit{Soft: finite(r.Cur), Hard: finite(r.Max)}
}

func finite(n uint64) *uint64 {
	if n == unix.RLIM_INFINITY {
		return nil
	}
	return &n
}
