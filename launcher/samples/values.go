package samples

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Metric is one of the numbers that are kept of a rank.
type Metric int

// Metrics. Amounts are bytes, shares percent of the time.
const (
	DeviceUsed  Metric = iota // of its device, whoever has them: NVML's memory.used
	Process                   // of its device, held by processes of the rank
	RSS                       // resident memory of its processes; what they share counts for each
	GPU                       // time in which a kernel ran on its device: NVML's utilization.gpu
	Traffic                   // time in which its device's memory was used: utilization.memory
	Allocated                 // live tensors, as torch tells
	Reserved                  // what torch's allocator has taken from the driver
	LargestFree               // the largest free block of it
	metrics                   // how many there are
)

// names are the metrics in JSON and in files.
var names = [metrics]string{"device_used", "process", "rss", "gpu", "traffic", "allocated", "reserved", "largest_free"}

// sorted are the metrics in the order of their names.
var sorted = func() []Metric {
	var all []Metric
	for m := range metrics {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(names[a], names[b]) })
	return all
}()

// String is the metric's name in JSON.
func (m Metric) String() string { return names[m] }

// Values are the numbers of one rank at one time; NaN is not known. In JSON they are an
// object with null for what is not known.
type Values [metrics]float64

// None are Values of which nothing is known.
func None() (v Values) {
	for m := range v {
		v[m] = math.NaN()
	}
	return v
}

// Get returns a value, and whether it is known.
func (v Values) Get(m Metric) (float64, bool) { return v[m], !math.IsNaN(v[m]) }

// isKnown is whether anything is.
func (v Values) isKnown() bool {
	return slices.ContainsFunc(v[:], func(n float64) bool { return !math.IsNaN(n) })
}

// Number is a value as a pointer, nil where it is not known.
func (v Values) Number(m Metric) *float64 {
	if n, known := v.Get(m); known {
		return &n
	}
	return nil
}

// MarshalJSON writes an object, by hand since it is done for each rank and second.
func (v Values) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, m := range sorted {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendQuote(text, names[m])
		text = append(text, ':')
		if n, known := v.Get(m); known {
			text = strconv.AppendFloat(text, n, 'f', -1, 64)
		} else {
			text = append(text, "null"...)
		}
	}
	return append(text, '}'), nil
}

// UnmarshalJSON reads an object; what it lacks is not known.
func (v *Values) UnmarshalJSON(text []byte) error {
	var object map[string]*float64
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	*v = None()
	for m := range metrics {
		if n := object[names[m]]; n != nil {
			v[m] = *n
		}
	}
	return nil
}

// raise takes over what is larger, or was not known.
func (v *Values) raise(other Values) {
	for m := range v {
		if math.IsNaN(v[m]) || other[m] > v[m] {
			v[m] = other[m]
		}
	}
}

// lower takes over what is smaller, or was not known.
func (v *Values) lower(other Values) {
	for m := range v {
		if math.IsNaN(v[m]) || other[m] < v[m] {
			v[m] = other[m]
		}
	}
}

// Summary is what a rank's values were in a period.
type Summary struct {
	Min  Values `json:"min"`
	Max  Values `json:"max"`
	Mean Values `json:"mean"`
}

// sum is a Summary that values are still added to.
type sum struct {
	min, max, total Values
	count           [metrics]int
}

func newSum() sum { return sum{min: None(), max: None()} }

func (s *sum) add(v Values) {
	s.min.lower(v)
	s.max.raise(v)
	for m := range v {
		if !math.IsNaN(v[m]) {
			s.total[m] += v[m]
			s.count[m]++
		}
	}
}

func (s *sum) summary() Summary {
	mean := None()
	for m := range mean {
		if s.count[m] > 0 {
			mean[m] = s.total[m] / float64(s.count[m])
		}
	}
	return Summary{s.min, s.max, mean}
}
