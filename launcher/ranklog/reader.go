//go:build linux

package ranklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Reader reads a log from a place on, lane by lane, also while it is being written.
type Reader struct {
	log    *os.File
	index  *os.File
	offset int64 // next byte of the log to deliver
	entry  int64 // where in the map its record may start
}

// Segment is a run of bytes from one lane.
type Segment struct {
	Lane   Lane
	Offset int64 // in the file
	Data   []byte
}

// Open opens a log for reading from offset on.
func Open(path string, offset int64) (*Reader, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	index, err := os.Open(mapPath(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Close()
		return nil, fmt.Errorf("read log map: %w", err)
	}
	return &Reader{log: log, index: index, offset: offset}, nil
}

// Next returns the next segment, at most limit bytes, or io.EOF when the map knows of no more for now. With final set,
// bytes beyond the map (its writer was killed between the two) are delivered too, as stdout.
func (r *Reader) Next(limit int, final bool) (Segment, error) {
	rec, err := r.record()
	if errors.Is(err, io.EOF) && final {
		rec = record{end: r.offset + int64(limit), lane: Stdout}
	} else if err != nil {
		return Segment{}, err
	}
	data := make([]byte, min(int64(limit), rec.end-r.offset))
	n, err := r.log.ReadAt(data, r.offset)
	if n == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.EOF
		}
		return Segment{}, err
	}
	seg := Segment{Lane: rec.lane, Offset: r.offset, Data: data[:n]}
	r.offset += int64(n)
	return seg, nil
}

func (r *Reader) record() (record, error) {
	if r.index == nil {
		return record{}, io.EOF
	}
	for {
		rec, ok := r.recordAt(r.entry)
		if !ok {
			return record{}, io.EOF
		}
		if rec.end > r.offset {
			return rec, nil
		}
		// The last record may still grow; it is final once another follows.
		if _, followed := r.recordAt(r.entry + recordSize); !followed {
			return record{}, io.EOF
		}
		if rec, _ = r.recordAt(r.entry); rec.end > r.offset {
			return rec, nil
		}
		r.entry += recordSize
	}
}

// recordAt reads one record; one that is not whole yet counts as none.
func (r *Reader) recordAt(place int64) (record, bool) {
	var b [recordSize]byte
	if _, err := r.index.ReadAt(b[:], place); err != nil {
		return record{}, false
	}
	return decodeRecord(b[:]), true
}

// Close closes the files.
func (r *Reader) Close() error {
	if r.index != nil {
		defer r.index.Close()
	}
	return r.log.Close()
}

// Tail returns at most the last limit bytes of one lane, oldest first.
func Tail(path string, lane Lane, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	// The other lane may have written more lately; look back a bounded way.
	from := max(0, info.Size()-int64(max(8*limit, lookBack)))
	r, err := Open(path, from)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var tail []byte
	for {
		seg, err := r.Next(chunk, true)
		if err != nil {
			break
		}
		if seg.Lane == lane {
			tail = append(tail, seg.Data...)
			tail = tail[max(0, len(tail)-limit):]
		}
	}
	return tail, nil
}

// TailStart is where the last lines of a log begin: at a line's start, some 2 KiB before its end.
func TailStart(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= tailStart {
		return 0
	}
	text := make([]byte, tailStart)
	from := info.Size() - tailStart
	n, _ := f.ReadAt(text, from)
	return from + int64(bytes.IndexByte(text[:n], '\n')+1)
}

const (
	tailStart = 2 << 10
	chunk     = 64 << 10
	lookBack  = 1 << 20
)
