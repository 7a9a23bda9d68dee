// Package ranklog is the file that holds what one rank wrote in one attempt: byte for byte, both streams, in the order
// in which they came, and beside it a map that says which bytes came from which stream, and when. The file is the
// queue: readers read it at their own pace, so that none can hold up a worker.
package ranklog

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"time"
)

// Lane is one of a worker's streams.
type Lane uint32

// Lanes of a worker.
const (
	Stdout Lane = 0
	Stderr Lane = 1
)

// Path is where a rank's output of an attempt is kept below the run's folder.
func Path(runDir string, attempt, rank int) string {
	return filepath.Join(runDir, fmt.Sprintf("attempt-%d", attempt), fmt.Sprintf("rank-%d.log", rank))
}

func mapPath(logPath string) string {
	return logPath[:len(logPath)-len(filepath.Ext(logPath))] + ".map"
}

// record is an entry of the map: the bytes up to end, from where the record before it ended, came on lane, the last of
// them at wall clock time at.
type record struct {
	end  int64
	lane Lane
	at   time.Time
}

const recordSize = 16

func (r record) encode() []byte {
	b := make([]byte, 0, recordSize)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.end)<<1|uint64(r.lane))
	return binary.LittleEndian.AppendUint64(b, uint64(r.at.UnixNano()))
}

func decodeRecord(b []byte) record {
	word := binary.LittleEndian.Uint64(b)
	return record{
		end:  int64(word >> 1),
		lane: Lane(word & 1),
		at:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:]))),
	}
}
