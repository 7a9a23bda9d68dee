package mps

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
)

func TestWhatThereIsOfMPSIsATable(t *testing.T) {
	there := []Host{{Name: "gpu01", MPSThere: facts.MPSThere{
		Processes: []facts.MPSProcess{{PID: 7, User: "ann", Run: "r-1", Device: "GPU-1", Pipe: "/tmp/m/0", State: facts.MPSLeft, Clients: []int{8, 9}}, {PID: 10, Server: true, User: "ann", Run: "r-1", State: facts.MPSStopped}},
		Left:      []string{"pid 11 cannot be ended"},
	}}, {Name: "gpu02"}}
	var out bytes.Buffer
	if err := Daemons(&out, there); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gpu01  7    daemon  ann   r-1  GPU-1    8,9      left     /tmp/m/0", "10   server", "stopped", "gpu01: pid 11 cannot be ended"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := DaemonsJSON(&out, there); err != nil {
		t.Fatal(err)
	}
	var said struct {
		Version int
		Hosts   []struct {
			Name      string
			Processes []struct {
				PID   int
				State string
			}
			Left []any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || said.Version != 1 || len(said.Hosts) != 2 || said.Hosts[0].Processes[0].State != "left" || said.Hosts[1].Processes == nil {
		t.Errorf("%v: %s", err, out.String())
	}
}
