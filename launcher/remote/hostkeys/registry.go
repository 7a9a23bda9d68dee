package hostkeys

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Registry keeps the known_hosts files that were read, for many connections, and
// the keys that were accepted but could not be written down.
type Registry struct {
	mu       sync.Mutex
	loaded   map[string]*knownHosts // by names and state of the files
	accepted map[string][]byte      // by lookup name
}

// load reads a list of files, unless they are as they were the last time.
func (r *Registry) load(files []string) (*knownHosts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fingerprint(files)
	if k := r.loaded[id]; k != nil {
		return k, nil
	}
	k, err := loadKnownHosts(files)
	if err != nil {
		return nil, err
	}
	if r.loaded == nil {
		r.loaded = map[string]*knownHosts{}
	}
	r.loaded[id] = k
	return k, nil
}

// fingerprint changes with the files.
func fingerprint(files []string) string {
	var b strings.Builder
	for _, file := range files {
		fmt.Fprintf(&b, "%q", file)
		if info, err := os.Stat(file); err == nil {
			fmt.Fprintf(&b, " %d %d", info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// accept remembers a key for the life of the dialer.
func (r *Registry) accept(lookup string, key ssh.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted == nil {
		r.accepted = map[string][]byte{}
	}
	r.accepted[lookup] = key.Marshal()
}

func (r *Registry) isAccepted(lookup string, key ssh.PublicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Equal(r.accepted[lookup], key.Marshal())
}
