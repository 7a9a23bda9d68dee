package samples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// Occupant is a rank in an attempt.
type Occupant struct {
	Rank    int `json:"rank"`
	Attempt int `json:"attempt"`
}

// Nobody is in a slot where no rank runs.
var Nobody = Occupant{-1, 0}

// Period is what was measured of the ranks of a host in some seconds, a line of a file.
type Period struct {
	Began float64 `json:"began"`  // time of day when sampling began, in seconds since 1970
	At    float64 `json:"at"`     // its beginning, in seconds since then
	Span  float64 `json:"span_s"` // its length
	Ranks []Slot  `json:"ranks"`
}

// Slot is what was measured of a rank, the one that was in a slot at the end of the period.
type Slot struct {
	Occupant
	Summary
}

// Series are the periods of a host once each, oldest first, as fine as they were kept.
type Series struct{ Periods []Period }

// Read reads a folder of samples, also one that is being written. The error is
// fs.ErrNotExist where there is none.
func Read(folder string) (*Series, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, err
	}
	var s Series
	for _, l := range levels { // the finest first
		var periods []Period
		for _, end := range []string{oldEnd, ""} {
			more, err := readFile(filepath.Join(folder, l.name()+end))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read samples: %w", err)
			}
			periods = append(periods, more...)
		}
		first := math.Inf(1)
		if len(s.Periods) > 0 {
			first = s.Periods[0].At
		}
		older := 0
		for older < len(periods) && periods[older].At+periods[older].Span <= first {
			older++
		}
		s.Periods = append(periods[:older:older], s.Periods...)
	}
	return &s, nil
}

// readFile reads the lines of a file. One that is damaged, or not written to its end, is
// left out.
func readFile(path string) ([]Period, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var periods []Period
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		var p Period
		if json.Unmarshal(lines.Bytes(), &p) == nil && p.Span > 0 {
			periods = append(periods, p)
		}
	}
	return periods, lines.Err()
}

// Point is a metric of a rank in a period.
type Point struct {
	At, Span       float64
	Min, Max, Mean float64
}

// points are what is known of a metric of a rank in an attempt.
func (s *Series) points(who Occupant, m Metric) []Point {
	var points []Point
	for _, p := range s.Periods {
		for _, r := range p.Ranks {
			if mean, known := r.Mean.Get(m); known && r.Occupant == who {
				points = append(points, Point{p.At, p.Span, r.Min[m], r.Max[m], mean})
			}
		}
	}
	return points
}

// Line is a period of a rank as it is printed: At is a time of day, in seconds since 1970,
// wrong by as long as the machine was suspended since the run began.
type Line struct {
	Occupant
	At   float64 `json:"at"`
	Span float64 `json:"span_s"`
	Summary
}

// Lines are all periods of all ranks.
func (s *Series) Lines() []Line {
	var lines []Line
	for _, p := range s.Periods {
		for _, r := range p.Ranks {
			if r.Mean.isKnown() {
				lines = append(lines, Line{r.Occupant, p.Began + p.At, p.Span, r.Summary})
			}
		}
	}
	return lines
}
