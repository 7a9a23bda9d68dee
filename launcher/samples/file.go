package samples

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
)

// Header is the first line of a file. Behind it, from byte 4096 on, the slots of one level
// after the other: each is as long as the others, empty or a period with a checksum.
type Header struct {
	Version int      `json:"version"`
	Began   float64  `json:"began"` // time of day when sampling began, in seconds since 1970
	Slots   int      `json:"slots"` // ranks that run at once
	Metrics []string `json:"metrics"`
	Levels  []Level  `json:"levels"`
}

const (
	headerSize = 4096
	// A record is: at (float64), span (float32); of each slot rank (int32), attempt (uint32)
	// and the smallest, largest and mean value of each metric (float32); CRC-32 of all that.
	// Everything is little-endian.
	recordHead = 12
	slotHead   = 8
	recordTail = 4
	// flushEvery is how many seconds a period may wait to be written.
	flushEvery = 10
	// mostSlots is more than hosts have.
	mostSlots = 1024
)

func recordSize(slots int) int { return recordHead + slots*(slotHead+int(metrics)*3*4) + recordTail }

// file is a file that is written.
type file struct {
	f       *os.File
	header  Header
	next    []int // of each level: periods that were pushed, or are left after a thinning
	pending []write
	flushed float64
}

type write struct {
	offset int64
	record []byte
}

func create(path string, h Header) (*file, error) {
	if h.Slots > mostSlots {
		return nil, fmt.Errorf("%d ranks on one host are more than the %d that samples are kept of", h.Slots, mostSlots)
	}
	text, err := json.Marshal(h)
	if err != nil || len(text) >= headerSize {
		return nil, fmt.Errorf("a header of %d bytes: %w", len(text), err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	head := bytes.Repeat([]byte{' '}, headerSize)
	copy(head, text)
	head[headerSize-1] = '\n'
	if _, err := f.WriteAt(head, 0); err != nil {
		f.Close()
		return nil, err
	}
	return &file{f: f, header: h, next: make([]int, len(h.Levels))}, nil
}

func (h Header) offset(level, slot int) int64 {
	for _, l := range h.Levels[:level] {
		slot += l.Kept
	}
	return headerSize + int64(slot)*int64(recordSize(h.Slots))
}

// push puts a period into the next slot of a level, in place of the oldest if none is free.
func (f *file) push(level int, b Bucket) {
	slot := f.next[level] % f.header.Levels[level].Kept
	f.next[level]++
	f.pending = append(f.pending, write{f.header.offset(level, slot), encode(b)})
}

func (f *file) isFull(level int) bool { return f.next[level] >= f.header.Levels[level].Kept }

func (f *file) flushLater(at float64) error {
	if at-f.flushed < min(flushEvery, at/2) { // what is young is looked at the most
		return nil
	}
	f.flushed = at
	return f.flush()
}

// flush writes what is pending, neighbours at once.
func (f *file) flush() error {
	pending := f.pending
	f.pending = nil
	slices.SortStableFunc(pending, func(a, b write) int { return int(a.offset - b.offset) })
	for len(pending) > 0 {
		n, run := 1, pending[0].record
		for n < len(pending) && pending[n].offset == pending[0].offset+int64(len(run)) {
			run = append(run, pending[n].record...)
			n++
		}
		if _, err := f.f.WriteAt(run, pending[0].offset); err != nil {
			return fmt.Errorf("write samples: %w", err)
		}
		pending = pending[n:]
	}
	return nil
}

// thin makes one period of two in a level, so that half of its slots are free again.
func (f *file) thin(level int) error {
	if err := f.flush(); err != nil {
		return err
	}
	all, err := readLevel(f.f, f.header, level)
	if err != nil {
		return err
	}
	all = halve(all)
	size := recordSize(f.header.Slots)
	text := make([]byte, f.header.Levels[level].Kept*size)
	for i, b := range all {
		copy(text[i*size:], encode(b))
	}
	f.next[level] = len(all)
	if _, err := f.f.WriteAt(text, f.header.offset(level, 0)); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// halve joins the periods that lie in one of twice the span.
func halve(all []Bucket) []Bucket {
	var joined []Bucket
	for _, b := range all {
		span := 2 * b.Span
		at := math.Floor(b.At/span) * span
		if n := len(joined); n > 0 && joined[n-1].At == at {
			joined[n-1].join(b)
			continue
		}
		b.At, b.Span = at, span
		joined = append(joined, b)
	}
	return joined
}

// join adds the next period, as long as b was.
func (b *Bucket) join(next Bucket) {
	for i := range b.Slots {
		s, o := &b.Slots[i], next.Slots[i]
		if s.Occupant != o.Occupant {
			if o.Occupant != Nobody {
				*s = o
			}
			continue
		}
		s.Min.lower(o.Min)
		s.Max.raise(o.Max)
		for m := range s.Mean {
			switch {
			case math.IsNaN(s.Mean[m]):
				s.Mean[m] = o.Mean[m]
			case !math.IsNaN(o.Mean[m]):
				s.Mean[m] = (s.Mean[m] + o.Mean[m]) / 2
			}
		}
	}
}

func encode(b Bucket) []byte {
	text := make([]byte, 0, recordSize(len(b.Slots)))
	text = binary.LittleEndian.AppendUint64(text, math.Float64bits(b.At))
	text = binary.LittleEndian.AppendUint32(text, math.Float32bits(float32(b.Span)))
	for _, s := range b.Slots {
		text = binary.LittleEndian.AppendUint32(text, uint32(int32(s.Rank)))
		text = binary.LittleEndian.AppendUint32(text, uint32(s.Attempt))
		for m := range metrics {
			for _, v := range []float64{s.Min[m], s.Max[m], s.Mean[m]} {
				text = binary.LittleEndian.AppendUint32(text, math.Float32bits(float32(v)))
			}
		}
	}
	return binary.LittleEndian.AppendUint32(text, crc32.ChecksumIEEE(text))
}

// decode reads a slot; false: it is empty, or was not written to its end.
func decode(text []byte, slots int) (b Bucket, ok bool) {
	body := text[:len(text)-recordTail]
	sum := binary.LittleEndian.Uint32(text[len(body):])
	if sum != crc32.ChecksumIEEE(body) {
		return b, false
	}
	b.At = math.Float64frombits(binary.LittleEndian.Uint64(body))
	b.Span = float64(math.Float32frombits(binary.LittleEndian.Uint32(body[8:])))
	if b.Span <= 0 {
		return b, false
	}
	body = body[recordHead:]
	for range slots {
		var s Slot
		s.Rank, s.Attempt = int(int32(binary.LittleEndian.Uint32(body))), int(binary.LittleEndian.Uint32(body[4:]))
		body = body[slotHead:]
		for m := range metrics {
			for i, v := range []*float64{&s.Min[m], &s.Max[m], &s.Mean[m]} {
				*v = float64(math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:])))
			}
			body = body[12:]
		}
		b.Slots = append(b.Slots, s)
	}
	return b, true
}

// readLevel reads the periods of a level, oldest first.
func readLevel(f io.ReaderAt, h Header, level int) ([]Bucket, error) {
	size := recordSize(h.Slots)
	text := make([]byte, h.Levels[level].Kept*size)
	n, err := f.ReadAt(text, h.offset(level, 0))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	var all []Bucket
	for at := 0; at+size <= n; at += size {
		if b, ok := decode(text[at:at+size], h.Slots); ok {
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b Bucket) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
