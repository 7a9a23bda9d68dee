//go:build linux

package agent

import (
	"os"
	"testing"

	"github.com/muster-dev/muster/launcher/proc"
)

// A sweep has devices looked at once a task at least, each time by a plugin of its own.
func TestAKeeperForgetsPluginsThatHaveEnded(t *testing.T) {
	reaper, err := theReaper()
	if err != nil {
		t.Fatal(err)
	}
	leash, other, err := newLeash()
	if err != nil {
		t.Fatal(err)
	}
	defer leash.close()
	defer other.Close()
	k := &keeper{leash: leash, reaper: reaper, plugins: map[int]*proc.Child{}}
	for number := 1; number <= 3; number++ {
		for _, path := range []string{"/bin/true", os.DevNull, os.DevNull} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			k.lent = append(k.lent, f)
		}
		k.startPlugin(pluginOrder{Number: number, Argv: []string{"true"}})
		child := k.plugins[number]
		if child == nil {
			t.Fatal("it was not started")
		}
		<-child.Done
	}
	if len(k.plugins) != 1 {
		t.Errorf("%d are kept", len(k.plugins))
	}
}
