package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checker collects what is wrong with one pair.
type checker struct {
	version version
	pair    Pair
	pairs   Pairs // that it stands among
	found   []Finding
}

func (c *checker) add(severity, format string, args ...any) {
	c.found = append(c.found, finding(CodeValue, severity, c.pair.Key, format, args...))
}

// checks are how values are read, by their names in the table.
var checks = map[string]func(c *checker, value string){
	"anything":  func(*checker, string) {},
	"truth":     (*checker).truth,
	"backend":   (*checker).backend,
	"divisions": (*checker).divisions,
	"number":    func(c *checker, value string) { c.wholeNumber(value) },
	"positive":  func(c *checker, value string) { c.atLeast(value, 1, "") },
	// Those of segments for requests of up to 10 MiB, so that it must be more.
	"segment size": func(c *checker, value string) { c.atLeast(value, 11, "") },
	"large size":   (*checker).largeSize,
	"threads":      func(c *checker, value string) { c.powerOfTwo(value, 128, "1, 2, 4, ... or 128") },
	"threshold": func(c *checker, value string) {
		c.within(value, func(x float64) bool { return x > 0 && x < 1 }, ", both excluded")
	},
	"fraction": func(c *checker, value string) {
		c.within(value, func(x float64) bool { return x >= 0 && x <= 1 }, "")
	},
}

// truth is a boolean: torch compares with two words.
func (c *checker) truth(value string) {
	if value == "True" || value == "False" {
		return
	}
	write := "True or False"
	switch strings.ToLower(value) {
	case "true", "1", "on", "yes":
		write = "True"
	case "false", "0", "off", "no":
		write = "False"
	}
	c.add(Fail, "%s:%s stops torch, which knows True and False only, written so: write %s:%s", c.pair.Key, value, c.pair.Key, write)
}

func (c *checker) backend(value string) {
	words := []string{"native", "cudaMallocAsync"}
	if c.version.rocm {
		words = append(words, "hipMallocAsync")
	}
	if slices.Contains(words, value) {
		return
	}
	write := strings.Join(words, " or ")
	for _, word := range words {
		if strings.EqualFold(word, value) {
			write = word
		}
	}
	c.add(Fail, "backend:%s stops torch: write %s", value, write)
}

// leading is the whole number that C's stoi and stoull read at the start of a value; what
// follows it they leave.
func leading(value string) (n uint64, negative, whole, ok bool) {
	unsigned := strings.TrimLeft(value, "+-")
	if len(value)-len(unsigned) > 1 {
		return 0, false, false, false
	}
	digits := len(unsigned) - len(strings.TrimLeft(unsigned, "0123456789"))
	n, err := strconv.ParseUint(unsigned[:digits], 10, 64)
	return n, value != unsigned && value[0] == '-', digits == len(unsigned), err == nil
}

// wholeNumber is 0 with false where the value is none, or wrong already.
func (c *checker) wholeNumber(value string) (n uint64, ok bool) {
	n, negative, whole, ok := leading(value)
	switch {
	case !ok || n > 1<<31-1:
		c.add(Fail, "%s:%s stops torch: the value is a whole number", c.pair.Key, value)
		return 0, false
	case negative:
		c.add(Warn, "%s:%s: torch takes a negative number for a huge one", c.pair.Key, value)
		return 0, false
	case !whole:
		c.add(Warn, "%s:%s: torch reads %d and leaves the rest: write the number alone", c.pair.Key, value, n)
	}
	return n, true
}

func (c *checker) atLeast(value string, low uint64, of string) {
	if n, ok := c.wholeNumber(value); ok && n < low {
		c.add(Fail, "%s:%s stops %s, where it is at least %d%s", c.pair.Key, value, c.version, low, of)
	}
}

// largeSize is at least the size of a large segment, 20 MiB unless set; up to 2.9 more.
func (c *checker) largeSize(value string) {
	low, of := uint64(20), " (MiB)"
	if !c.version.has(readsGeneral) {
		low = 21
	}
	if text, set := c.pairs.Get("large_segment_size_mb"); set && c.version.has(largeSegments) {
		if n, _, _, ok := leading(text); ok {
			low, of = n, ", as large_segment_size_mb is"
		}
	}
	c.atLeast(value, low, of)
}

// powerOfTwo is a number that is one, which a negative one is not as torch reads it.
func (c *checker) powerOfTwo(value string, high uint64, form string) {
	n, negative, _, ok := leading(value)
	if !ok || !negative {
		if n, ok = c.wholeNumber(value); !ok {
			return
		}
	}
	if negative || !PowerOfTwo(n) || n > high {
		c.add(Fail, "%s:%s stops torch: it is %s", c.pair.Key, value, form)
	}
}

// float is a number as C's stod reads it, as far as people write one.
func (c *checker) float(value string) (x float64, ok bool) {
	end := len(value)
	for ; end > 0; end-- {
		if x, err := strconv.ParseFloat(value[:end], 64); err == nil {
			if end < len(value) {
				c.add(Warn, "%s:%s: torch reads %s and leaves the rest: write the number alone", c.pair.Key, value, value[:end])
			}
			return x, true
		}
	}
	c.add(Fail, "%s:%s stops torch: the value is a number such as 0.8", c.pair.Key, value)
	return 0, false
}

// within is a fraction. What seems to be meant as per cent is told how to be written.
func (c *checker) within(value string, fits func(float64) bool, bounds string) {
	x, ok := c.float(value)
	if !ok || fits(x) {
		return
	}
	if x > 1 && x <= 100 {
		bounds += fmt.Sprintf(": write %s for %s%%", number(x/100), number(x))
	}
	c.add(Fail, "%s:%s stops torch: it lies between 0 and 1%s", c.pair.Key, value, bounds)
}

// divisions is a power of two, or a list [256:1,512:2,>:4] of sizes in MiB with theirs.
func (c *checker) divisions(value string) {
	list, isList := strings.CutPrefix(value, "[")
	switch {
	case !isList:
		c.powerOfTwo(value, 1<<31-1, "a power of two")
		return
	case !c.version.has(listsDivisions):
		c.add(Fail, "%s: a list stops %s: torch reads one since 2.0", c.pair.Key, c.version)
		return
	}
	entries := strings.TrimSuffix(strings.TrimSuffix(list, "]"), ",")
	if entries == "" {
		return
	}
	for entry := range strings.SplitSeq(entries, ",") {
		c.division(entry)
	}
}

// division is an entry of the list, SIZE:DIVISIONS; the size ">" is all larger ones.
func (c *checker) division(entry string) {
	size, divisions, _ := strings.Cut(entry, ":")
	n, _, _, ok := leading(divisions)
	if !ok || n != 0 && !PowerOfTwo(n) || n == 0 && !c.version.has(zeroInList) {
		c.add(Fail, "%s: %q stops %s: after the colon stands a power of two", c.pair.Key, entry, c.version)
	}
	if size == ">" {
		return
	}
	if n, _, _, ok := leading(size); !ok || !PowerOfTwo(n) {
		c.add(Fail, "%s: %q stops torch: before the colon stands a size in MiB that is a power of two, or >", c.pair.Key, entry)
	}
}
