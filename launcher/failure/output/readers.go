package output

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// readOOM takes an allocator's message apart.
func readOOM(h *Hit, v voice, _ []string) {
	h.figures = readFigures(v.Near(h.place, reach))
	found := oomOf(h.figures)
	if _, known := h.figures.n[verdict.NumRequested]; !known {
		found = verdict.Of(class.OOMUnknown, verdict.Likely)
		found.Message = "GPU memory ran out, and the message is cut off before its numbers"
	}
	h.Verdict = found
}

// readLibraryAlloc: cuBLAS or cuDNN could not get its workspace. After a wrong index it is
// the first call to notice that the device is unusable. The first product after an
// embedding is where old releases noticed, so that there it says nothing for sure.
func readLibraryAlloc(h *Hit, v voice, _ []string) {
	before := v.Flat[max(0, h.place-reach):h.place]
	switch {
	case wrongIndex.MatchString(before):
		h.Verdict = verdict.Of(class.UserError, verdict.Likely)
		h.Verdict.Message = "an index or label is out of range: the library's call only noticed that the GPU had stopped"
	case strings.Contains(before[max(0, len(before)-300):], "nn/functional.py") && strings.Contains(before[max(0, len(before)-300):], "in linear"):
		h.Verdict = verdict.Of(class.OOMUnknown, verdict.Guess)
		h.Verdict.Restart = class.No
		h.Verdict.Message = "a library found no GPU memory for its workspace: the GPU is full, or an index before it was out of range"
		h.Verdict.AddNote("CUDA_LAUNCH_BLOCKING=1 tells which of the two")
	default:
		h.Verdict.Message = "a library found no GPU memory for its workspace: the GPU is full"
		h.Verdict.AddNote("after an index out of range it would say the same, but nothing above it speaks of one")
	}
}

func readRank(h *Hit, _ voice, m []string) {
	if len(m) > 1 && m[1] != "" {
		h.rank(m[1])
	}
}

func (h *Hit) rank(text string) {
	if n, err := strconv.Atoi(text); err == nil {
		h.Verdict.Numbers[verdict.NumRank] = float64(n)
	}
}

func (h *Hit) number(name, text string) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		h.Verdict.Numbers[name] = n
	}
}

func readCPUAlloc(h *Hit, _ voice, m []string) {
	h.number(verdict.NumRequested, m[1])
	h.Verdict.Message = fmt.Sprintf(refusedMemory+": it wanted %s", text.Size(h.Verdict.Numbers[verdict.NumRequested], 2))
}

func readMapping(h *Hit, _ voice, _ []string) {
	h.Verdict.Message = refusedMemory + ": it wanted to map a file"
	h.Verdict.AddNote("with much memory free it is rather a limit: of mappings (sysctl vm.max_map_count) or of address space (ulimit -v)")
}

// collective is what the watchdog said of one.
type collective struct {
	rank, seq, op, numel string
}

var (
	watchdogForm = pattern.New(`WorkNCCL\(SeqNum=([0-9]{1,18}), OpType=(\w{1,40})(?:, NumelIn=([0-9]{1,18}))?(?:, NumelOut=[0-9]{1,18})?, Timeout\(ms\)=([0-9]{1,12})\) ran for ([0-9]{1,15}) milliseconds`)
	ofRank       = pattern.New(`\bRank ([0-9]{1,6})\] $`)
)

func readWatchdog(h *Hit, v voice, _ []string) {
	if m := ofRank.FindStringSubmatch(v.Flat[max(0, h.place-20):h.place]); m != nil {
		h.rank(m[1])
		h.collective.rank = m[1]
	}
	m := watchdogForm.FindStringSubmatch(v.Near(h.place, reach))
	if m == nil {
		return
	}
	h.collective.seq, h.collective.op, h.collective.numel = m[1], m[2], m[3]
	h.Verdict.Collective = strings.TrimSpace(m[2] + " " + m[3])
	h.number(verdict.NumSeq, m[1])
	ms, _ := strconv.ParseFloat(m[4], 64)
	h.Verdict.Numbers[verdict.NumTimeout] = ms / 1000
	h.Verdict.Message = fmt.Sprintf("a collective (%s, number %s) did not end within %.0f s: some rank did not take part", m[2], m[1], ms/1000)
	if ran, _ := strconv.ParseFloat(m[5], 64); ran > 3*ms {
		h.Verdict.AddNote(fmt.Sprintf("it is said to have run for %.0f s: the host was suspended, or the watchdog could not look", ran/1000))
	}
}

func readMilliseconds(h *Hit, _ voice, m []string) {
	ms, _ := strconv.ParseFloat(m[1], 64)
	h.Verdict.Numbers[verdict.NumTimeout] = ms / 1000
	h.Verdict.Message = fmt.Sprintf("a collective (gloo) did not end within %.0f s: some rank did not take part", ms/1000)
}

func readConnect(h *Hit, _ voice, m []string) {
	h.Verdict.Message = fmt.Sprintf("NCCL did not reach another rank at %s (%s): a wrong interface, a firewall, or a dead peer", m[1], strings.ToLower(m[2]))
}

func readCudaFailure(h *Hit, _ voice, m []string) {
	h.Verdict.Message = fmt.Sprintf("a CUDA call within NCCL failed: %s", m[2])
	if m[1] != "" {
		h.Verdict.Message += " (" + m[1] + ")"
	}
}

func readJoined(h *Hit, _ voice, m []string) {
	h.number(verdict.NumJoined, m[1])
	h.number(verdict.NumExpected, m[2])
	h.Verdict.Message = fmt.Sprintf("only %s of %s ranks came to the meeting in time", m[1], m[2])
}

var settingUp = pattern.New(`\[([0-9]{1,6})\] $`)

func readSettingUp(h *Hit, v voice, _ []string) {
	if m := settingUp.FindStringSubmatch(v.Flat[max(0, h.place-20):h.place]); m != nil {
		h.rank(m[1])
	}
	h.Verdict.Message = "rank 0 did not say in time how to reach it (NCCL's id): it died before, or is on another address"
}

// portForm is a port in PyTorch's words, in Python's pair of address and port, or alone.
var portForm = pattern.New(`(?:\bport:? |', )([0-9]{1,5})\b`)

func readPort(h *Hit, v voice, _ []string) {
	h.Verdict.Message = "a port that the program listens on is taken"
	if m := portForm.FindStringSubmatch(v.Near(h.place, 160)); m != nil {
		h.number(verdict.NumPort, m[1])
		h.Verdict.Message = fmt.Sprintf("port %s is taken by another program", m[1])
	}
}

var nestedRank = pattern.New(`(?s)^.*\brank *: *([0-9]{1,6}) `)

// readNestedKill: another launcher between muster and the worker says how that one ended.
func readNestedKill(h *Hit, v voice, _ []string) {
	if m := nestedRank.FindStringSubmatch(v.Flat[max(0, h.place-120):h.place]); m != nil {
		h.rank(m[1])
	}
}
