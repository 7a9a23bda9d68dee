package nvidia

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/kernellog"
)

// Xid is an error that NVIDIA's driver reported of a GPU since the machine was booted, the
// same number of the same GPU once.
type Xid struct {
	PCI    string  `json:"pci"` // as the driver writes it, without the function: 0000:0f:00
	Number int     `json:"number"`
	Count  int     `json:"count"`
	Last   float64 `json:"last"` // seconds of kernellog.Record
	Text   string  `json:"text"` // of the last one, behind its number
}

// xidLine is how the driver reports (NVIDIA's Xid documentation).
var xidLine = regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,20})\): ([0-9]{1,5}),? ?(.*)`)

const (
	maxXids     = 64  // kinds of errors, of machines whose log is full of them
	longestText = 200 // bytes
)

// Xids are those of a kernel's log, in the order in which they were reported first.
type Xids []Xid

// Take adds what a record of the log tells of an Xid, if it does.
func (all *Xids) Take(r kernellog.Record) {
	if !strings.Contains(r.Text, "Xid") { // most records are about something else
		return
	}
	m := xidLine.FindStringSubmatch(r.Text)
	if m == nil {
		return
	}
	pci, _, _ := strings.Cut(strings.ToLower(m[1]), ".")
	number, _ := strconv.Atoi(m[2]) // digits
	at := slices.IndexFunc(*all, func(x Xid) bool { return x.PCI == pci && x.Number == number })
	if at < 0 {
		if len(*all) == maxXids {
			return
		}
		at = len(*all)
		*all = append(*all, Xid{PCI: pci, Number: number})
	}
	x := &(*all)[at]
	x.Count++
	x.Last, x.Text = r.At, m[3][:min(len(m[3]), longestText)]
}
