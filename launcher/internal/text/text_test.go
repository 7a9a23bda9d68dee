package text

import "testing"

func TestBytes(t *testing.T) {
	for bytes, want := range map[uint64][3]string{
		0:             {"0.0 GiB", "0.0 GiB", "0 bytes"},
		1536:          {"0.0 GiB", "1.5 KiB", "2 KiB"},
		32 << 20:      {"0.0 GiB", "32 MiB", "32 MiB"},
		512 << 20:     {"0.5 GiB", "0.5 GiB", "512 MiB"},
		80 << 30:      {"80.0 GiB", "80.0 GiB", "80.00 GiB"},
		20_000 << 30:  {"20000.0 GiB", "19.5 TiB", "20000.00 GiB"},
		3<<30 + 1<<29: {"3.5 GiB", "3.5 GiB", "3.50 GiB"},
	} {
		if got := [3]string{GiB(bytes), Bytes(bytes), Size(bytes, 2)}; got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-3,8": {0, 1, 2, 3, 8}, "0,2,4-5": {0, 2, 4, 5}} {
		if got := Ranges(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
	if one, many := Numbered("rank", []int{3}), Numbered("rank", []int{8, 1, 0}); one != "rank 3" || many != "ranks 0-1,8" {
		t.Error(one, many)
	}
	if got := List([]string{"a", "b", "c"}, 2); got != "a, b and 1 more" {
		t.Error(got)
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"devices", "visibility", "cpu"}
	for name, want := range map[string]string{"device": "devices", "Visiblity": "visibility", "memory": "", "gpu": "cpu", "xyz": ""} {
		if got := Nearest(name, candidates, 2); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
