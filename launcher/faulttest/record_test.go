//go:build linux

package faulttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// record is what a worker counts; see worker/talker.c.
type record struct {
	pid    int64
	lines  [2]int64 // that write(2) has taken, on standard output and standard error
	daemon int64
}

func (r *trial) record(rank, attempt int) (record, bool) {
	text, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("rank-%d.%d", rank, attempt)))
	var words [4]int64
	if err != nil || len(text) < 32 {
		return record{}, false
	}
	for i := range words {
		words[i] = int64(binary.NativeEndian.Uint64(text[8*i:]))
	}
	return record{words[0], [2]int64{words[1], words[2]}, words[3]}, words[0] != 0
}

// endWell has all workers end by themselves.
func (r *trial) endWell() {
	r.note("the workers are let end")
	f, err := os.OpenFile(filepath.Join(r.dir, "control"), os.O_WRONLY, 0) // it is mapped: never truncated
	if err == nil {
		_, err = f.Write([]byte{1})
		f.Close()
	}
	if err != nil {
		r.t.Error(err)
	}
}

// line is what a worker writes as line n of a stream.
func line(lane int, n int64) []byte {
	size := int64(12 + n*7919%180)
	if n%97 == 13 {
		size = 3000
	}
	digit, filling, end := byte('0'), byte('a'), byte(';')
	if lane == 1 {
		digit, filling, end = 'A', 'K', ':'
	}
	text := bytes.Repeat([]byte{filling + byte(n%16)}, int(size))
	for i, rest := 7, n; i >= 0; i, rest = i-1, rest/10 {
		text[i] = digit + byte(rest%10)
	}
	text[size-1] = end
	return text
}

// apart splits a log into what came from the two streams, by the letters that each of them
// has for itself.
func apart(log []byte) (lanes [2][]byte, ends int, strange []byte) {
	for _, c := range log {
		switch {
		case c == '\n':
			ends++
		case '0' <= c && c <= '9', 'a' <= c && c <= 'p', c == ';':
			lanes[0] = append(lanes[0], c)
		case 'A' <= c && c <= 'Z', c == ':':
			lanes[1] = append(lanes[1], c)
		default:
			strange = append(strange, c)
		}
	}
	return lanes, ends, strange
}

// linesIn counts the lines of a stream, which must be all of the first ones, each once.
func linesIn(lane int, text []byte) (n int64, err error) {
	for ; len(text) > 0; n++ {
		want := line(lane, n)
		if !bytes.HasPrefix(text, want) {
			return n, fmt.Errorf("%.40q stands where %.40q was due", text, want)
		}
		text = text[len(want):]
	}
	return n, nil
}

// checkLogs compares what workers wrote with what is in their files. A machine that has
// lost its power has lost what was in pipes.
func (r *trial) checkLogs() {
	r.t.Helper()
	if r.isSweep() {
		for _, s := range r.begun() {
			r.checkLog(s.rank, s.attempt, s.host)
		}
		return
	}
	for rank := range len(hosts) * perHost {
		if again, _ := filepath.Glob(filepath.Join(r.dir, fmt.Sprintf("rank-%d.*", rank))); len(again) > 1 {
			r.t.Errorf("rank %d was started more than once: %q", rank, again)
		}
		r.checkLog(rank, 0, rank/perHost)
	}
}

// checkLog does so for one worker.
func (r *trial) checkLog(rank, attempt, h int) {
	r.t.Helper()
	counted, ran := r.record(rank, attempt)
	if !ran {
		return
	}
	files := r.files(h, fmt.Sprintf("attempt-%d/rank-%d.log", attempt, rank))
	if len(files) != 1 {
		r.t.Errorf("rank %d has %d logs of attempt %d", rank, len(files), attempt)
		return
	}
	log, err := os.ReadFile(files[0])
	if err == nil {
		err = r.compare(log, counted, r.lostPower(h))
	}
	if err != nil {
		r.t.Errorf("rank %d has written %v lines in attempt %d: %s: %v", rank, counted.lines, attempt, files[0], err)
	}
}

func (r *trial) compare(log []byte, counted record, lossy bool) error {
	lanes, ends, strange := apart(log)
	if len(strange) > 0 {
		return fmt.Errorf("%.40q is nothing that it wrote", strange)
	}
	var all int64
	for lane, text := range lanes {
		n, err := linesIn(lane, text)
		if err != nil && !lossy {
			return fmt.Errorf("line %d of stream %d: %w", n, lane+1, err)
		}
		// One more may have got through just before a SIGKILL that came before the count.
		if least := counted.lines[lane]; n > least+1 || n < least && !lossy {
			return fmt.Errorf("stream %d has %d lines", lane+1, n)
		}
		all += n
	}
	if int64(ends) != all && !lossy {
		return fmt.Errorf("%d lines have %d ends", all, ends)
	}
	return nil
}

func (r *trial) lostPower(host int) bool {
	for _, a := range r.faults {
		if a.blow == powerOff && a.host == host {
			return true
		}
	}
	return false
}
