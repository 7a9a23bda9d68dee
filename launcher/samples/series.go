package samples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// Series is what a file holds: of each level the periods, oldest first.
type Series struct {
	Header
	Periods [][]Bucket
}

// Read reads a file, also one that is being written.
func Read(path string) (*Series, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s Series
	line, err := bufio.NewReaderSize(io.NewSectionReader(f, 0, headerSize), headerSize).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.Header)
	}
	if err != nil {
		return nil, fmt.Errorf("%s holds no samples: %w", path, err)
	}
	if s.Version != 1 || !slices.Equal(s.Metrics, names[:]) || s.Slots < 0 || s.Slots > mostSlots || s.size() > 2*mostBytes {
		return nil, fmt.Errorf("%s holds samples of another version of muster", path)
	}
	for level := range s.Levels {
		all, err := readLevel(f, s.Header, level)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.Periods = append(s.Periods, all)
	}
	return &s, nil
}

// size is how large a file with this header becomes.
func (h Header) size() int64 {
	size := int64(headerSize)
	for _, l := range h.Levels {
		size += int64(max(0, l.Kept)) * int64(recordSize(h.Slots))
	}
	return size
}

// Point is a metric of a rank in a period.
type Point struct {
	At, Span       float64
	Min, Max, Mean float64
}

// Whole lists the periods once each, oldest first: as fine as they were kept.
func (s *Series) Whole() []Bucket {
	var whole []Bucket
	for _, level := range s.Periods { // the finest first
		first := math.Inf(1)
		if len(whole) > 0 {
			first = whole[0].At
		}
		var older []Bucket
		for _, b := range level {
			if b.At+b.Span <= first {
				older = append(older, b)
			}
		}
		whole = append(older, whole...)
	}
	return whole
}

// points are what is known of a metric of a rank in an attempt in these periods.
func points(whole []Bucket, who Occupant, m Metric) []Point {
	var points []Point
	for _, b := range whole {
		for _, s := range b.Slots {
			if mean, known := s.Mean.Get(m); known && s.Occupant == who {
				points = append(points, Point{b.At, b.Span, s.Min[m], s.Max[m], mean})
			}
		}
	}
	return points
}

// Line is a period of a rank as it is printed: At is a time of day, in seconds since 1970,
// wrong by as long as the machine was suspended since the run began.
type Line struct {
	Rank    int     `json:"rank"`
	Attempt int     `json:"attempt"`
	At      float64 `json:"at"`
	Span    float64 `json:"span_s"`
	Summary
}

// Lines are all periods of all ranks, each time once and as fine as it was kept, oldest
// first.
func (s *Series) Lines() []Line {
	var lines []Line
	for _, b := range s.Whole() {
		for _, slot := range b.Slots {
			if slot.Mean.isKnown() {
				lines = append(lines, Line{slot.Rank, slot.Attempt, s.Began + b.At, b.Span, slot.Summary})
			}
		}
	}
	return lines
}
