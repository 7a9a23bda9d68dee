package runs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/report"
)

// sharedCard is a GPU with two clients, one that has not come yet and a stranger.
var sharedCard = []report.MPSGPU{{
	Host: "gpu01", Name: "GPU 0", UUID: "GPU-1", Daemon: 70, Servers: []int{71}, Others: []int{99},
	Ranks: []report.MPSRank{
		{Rank: 0, Client: 80, Threads: 12.5, Limit: 18 << 30, Memory: 3 << 29, Peak: 2 << 30},
		{Rank: 1},
	},
}}

func TestAStatusTellsWhoSharesAGPU(t *testing.T) {
	var state event.State
	state.Take(event.Event{Kind: event.Committed})
	state.Take(event.Event{Kind: event.Shared, Host: "gpu01", MPS: sharedCard})
	run := history.Run{ID: "r-1", Hosts: []history.Host{{Name: "gpu01", Ranks: 2}}}
	var out bytes.Buffer
	if err := Status(&out, Standing{Run: run, State: state, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gpu01      GPU 0  70      71      0       80        12.5 %   1.5 GiB  2 GiB  18 GiB", "1       not seen  all", "others  99"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := StatusJSON(&out, Standing{Run: run, State: state, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	var said struct{ MPS []report.MPSGPU }
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || len(said.MPS) != 1 || said.MPS[0].Ranks[0].Client != 80 {
		t.Errorf("%v: %s", err, out.String())
	}
}
