package launcher

import (
	"errors"
	"strings"
	"testing"
)

func TestWhatTheEndBringsIsLeftOutOnlyWhereACauseIsKnown(t *testing.T) {
	parted := hostError{host: "b", err: errors.New("the connection to it ended"), afterEnd: true}
	ended := hostError{host: "a", err: errors.New("the coordinator was killed"), afterEnd: true}
	cut := hostError{host: "c", err: errors.New("cannot reach the head host")}
	if said := (hostErrors{parted, cut, ended}).causes().failure(3).Message; !strings.Contains(said, "1 of 3 hosts") || !strings.Contains(said, "c: cannot reach") {
		t.Error(said)
	}
	if said := (hostErrors{parted, ended}).causes().failure(3).Message; !strings.Contains(said, "2 of 3 hosts") || !strings.Contains(said, "a: the coordinator was killed") {
		t.Error(said)
	}
}
