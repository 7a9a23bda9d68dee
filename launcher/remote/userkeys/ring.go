package userkeys

import "sync"

// Ring holds the key files of many connections.
type Ring struct {
	mu    sync.Mutex
	files map[string]*File
}

func (r *Ring) get(path string) *File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.files[path]; k != nil {
		return k
	}
	if r.files == nil {
		r.files = map[string]*File{}
	}
	k := loadFile(path)
	r.files[path] = k
	return k
}
