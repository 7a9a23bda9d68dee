package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// A script that looks at exit alone must not take a killed rank for one that ended well.
func TestTheExitStatusOfARankThatHasNoneIsNull(t *testing.T) {
	for _, c := range []struct {
		end  End
		want string
	}{
		{End{Attempt: 1, Log: "l"}, `"exit":0`},
		{End{Exit: 7, Log: "l"}, `"exit":7`},
		{End{Signal: "SIGTERM", StoppedByMuster: "SIGTERM", Log: "l"}, `"exit":null`},
		{End{Error: "no such file", Log: "l"}, `"exit":null`},
		{End{Exit: 3, Error: "its output was not drained", Log: "l"}, `"exit":3`},
	} {
		text, err := json.Marshal(c.end)
		if err != nil || strings.Count(string(text), `"exit"`) != 1 || !strings.Contains(string(text), c.want) || !strings.Contains(string(text), `"log":"l"`) {
			t.Errorf("%s, %v, want %s", text, err, c.want)
		}
		var back End
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, c.end) {
			t.Errorf("%s is read as %+v, %v", text, back, err)
		}
	}
}
