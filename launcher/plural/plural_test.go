package plural

import "testing"

func TestOneThingIsNotSaidAsMany(t *testing.T) {
	for n, want := range map[int][2]string{0: {"0 ranks", "0 ranks are"}, 1: {"1 rank", "1 rank is"}, 2: {"2 ranks", "2 ranks are"}} {
		if got := [2]string{Of(n, "rank"), Are(n, "rank")}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
