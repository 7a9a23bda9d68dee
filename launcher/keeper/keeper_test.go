//go:build linux

package keeper

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
)

func TestConn_CarriesMessagesFilesAndTheOthersDeath(t *testing.T) {
	own, end, err := newConn()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(end.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	other, err := Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Send(Message{Output: &Output{Path: "/x", Lane: ranklog.Stderr}}, r); err != nil {
		t.Fatal(err)
	}
	r.Close()
	other.file.Close()
	m, files, err := own.Receive()
	if err != nil || m.Output == nil || m.Output.Lane != ranklog.Stderr || len(files) != 1 {
		t.Fatalf("%+v, %v, %v", m, files, err)
	}
	w.WriteString("through the copy")
	w.Close()
	if text, err := io.ReadAll(files[0]); err != nil || string(text) != "through the copy" {
		t.Errorf("%q, %v", text, err)
	}
	if _, _, err := own.Receive(); err != io.EOF {
		t.Errorf("after the other's death: %v", err)
	}
}

// A sweep looks at devices once a task at least, each time with a plug-in of its own.
func TestProcesses_ThoseThatHaveEndedAreForgotten(t *testing.T) {
	reaper, err := proc.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	conn, other, err := newConn()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.file.Close()
	defer other.Close()
	ps := processes{conn: conn, reaper: reaper, all: map[int]*running{}}
	for number := 1; number <= 3; number++ {
		var files []*os.File
		for _, path := range []string{os.DevNull, os.DevNull, "/bin/true"} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		ps.start(Process{Number: number, Argv: []string{"true"}}, files)
		p := ps.all[number]
		if p == nil {
			t.Fatal("it was not started")
		}
		<-p.child.Done
	}
	if len(ps.all) != 1 {
		t.Errorf("%d are kept", len(ps.all))
	}
}
