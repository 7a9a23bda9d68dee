package quantity

import (
	"math"
	"strings"
	"testing"
)

func TestSizesAreExact(t *testing.T) {
	for text, want := range map[string]uint64{
		"70GiB":                   70 << 30,
		"8MiB":                    8 << 20,
		" 512 KiB ":               512 << 10,
		"2TiB":                    2 << 40,
		"1.5GiB":                  3 << 29,
		"0.5KiB":                  512,
		"0GiB":                    0,
		"007MiB":                  7 << 20,
		"9007199254740993KiB":     9007199254740993 << 10,
		"16777215TiB":             16777215 << 40,
		"18014398509481983.75KiB": math.MaxUint64 - 255,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestWrongSizesSayWhatToWrite(t *testing.T) {
	for text, want := range map[string]string{
		"70GB":                    `write "70GiB"`,
		"70 gb":                   `write "70GiB"`,
		"70gib":                   `write "70GiB"`,
		"70G":                     `write "70GiB"`,
		"1.5t":                    `write "1.5TiB"`,
		"512kB":                   `write "512KiB"`,
		"70":                      `write "70GiB"`,
		"71680":                   `write "71680MiB"`,
		"75161927680":             `write "70GiB"`,
		"1000000":                 `write "1000000MiB"`,
		"0":                       `such as "8GiB"`,
		"1.5":                     `such as "8GiB"`,
		"99999999999999999999":    `such as "8GiB"`,
		"70Gigs":                  "the units are KiB, MiB, GiB and TiB",
		"70Gbit":                  "the units are KiB, MiB, GiB and TiB",
		"5B":                      "the units are KiB, MiB, GiB and TiB",
		"":                        `such as "8GiB"`,
		"-8GiB":                   `such as "8GiB"`,
		"8GiB/s":                  `such as "8GiB"`,
		"${x}":                    `"$${x}" is not a size`,
		"1e3MiB":                  `such as "8GiB"`,
		"0.1GiB":                  `write "104857KiB"`,
		"10.1GiB":                 `write "10342MiB"`,
		"0.0001KiB":               "write a whole number",
		"16777216TiB":             "write a smaller number",
		"99999999999999999999TiB": "write a smaller number",
		"18014398509481984.5KiB":  "write a smaller number",
	} {
		if size, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %d, %v, want %s", text, size, err, want)
		}
	}
}

// FuzzSize: a size is written as it was meant; what is no size has advice.
func FuzzSize(f *testing.F) {
	for _, seed := range []string{"70GiB", "1.5 TiB", "70GB", "70", "0.1MiB", "99999999999999999999TiB", "-1GiB", "1e3MiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("no advice")
			}
			return
		}
		if again, err := ParseSize(FormatSize(size)); size >= 1<<10 && size%(1<<10) == 0 && (err != nil || again != size) {
			t.Errorf("%q is %d, written %s, which is %d, %v", text, size, FormatSize(size), again, err)
		}
	})
}
