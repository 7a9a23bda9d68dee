package collective

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestEachHostMeetsTwoOthersAndNoneTwoAtATime(t *testing.T) {
	for hosts := range 40 {
		met := make([][]int, hosts)
		rounds := Rounds(hosts)
		if len(rounds) > 3 || hosts%2 == 0 && len(rounds) > 2 {
			t.Errorf("%d hosts: %d rounds", hosts, len(rounds))
		}
		for _, pairs := range rounds {
			var busy []int
			for _, p := range pairs {
				if slices.Contains(busy, p[0]) || slices.Contains(busy, p[1]) || p[0] == p[1] {
					t.Errorf("%d hosts: %v", hosts, pairs)
				}
				busy = append(busy, p[0], p[1])
				met[p[0]], met[p[1]] = append(met[p[0]], p[1]), append(met[p[1]], p[0])
			}
		}
		for h, others := range met {
			want := min(hosts-1, 2)
			if len(others) != want || want == 2 && others[0] == others[1] {
				t.Errorf("%d hosts: %d meets %v", hosts, h, others)
			}
		}
	}
}

func TestWhatTheScriptSaysIsFoundAmongOtherOutput(t *testing.T) {
	var r Reader
	var got []Said
	for _, piece := range []string{"warning: x\n{\"phase\": \"round 1\", \"state\": \"ok\", \"ra", "nk\": 3, \"bytes\": 5}\n", "{\"other\": 1}\n", strings.Repeat("x", 2*maxLine), "\n{\"phase\": \"all\", \"state\": \"hung\", \"rank\": 0}\nend"} {
		got = append(got, r.Take([]byte(piece))...)
	}
	want := []Said{{Phase: "round 1", State: OK, Rank: 3, Bytes: 5}, {Phase: All, State: Hung}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestTheScriptIsOneArgument(t *testing.T) {
	const longest = 128 << 10 // of Linux: MAX_ARG_STRLEN
	command := For("gloo", slices.Repeat([]int{8}, 512)).Command("~/my env/bin/python")
	for _, word := range command {
		if len(word) >= longest {
			t.Errorf("a word has %d bytes", len(word))
		}
	}
	if command[0] != "sh" || command[4] != "my env/bin/python" || command[5] != "-c" {
		t.Errorf("%.60q", command)
	}
}
