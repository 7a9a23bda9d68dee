package facts

import (
	"time"

	"golang.org/x/sys/unix"
)

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

// spaceWait is how long a file system may take to tell its size: a file server that has
// gone would keep statfs(2) forever.
const spaceWait = 50 * time.Millisecond

// space asks statfs(2). The goroutine ends with the system call, which is abandoned when
// it takes too long.
func space(root Root, path string) Space {
	if path == "" {
		return Space{}
	}
	answer := make(chan Space, 1)
	go func() {
		s := Space{Path: path}
		var fs unix.Statfs_t
		if err := unix.Statfs(string(root)+path, &fs); err == nil {
			unit := uint64(max(fs.Frsize, 0))
			s.Total, s.Free = fs.Blocks*unit, fs.Bavail*unit
		}
		answer <- s
	}()
	wait := time.NewTimer(spaceWait)
	defer wait.Stop()
	select {
	case s := <-answer:
		return s
	case <-wait.C:
		return Space{Path: path}
	}
}
