package mps

import (
	"regexp"
	"strconv"
	"strings"
)

// logLine is [2024-05-01 10:00:00.123 Control 13910] text.
var logLine = regexp.MustCompile(`^\[[0-9-]+ [0-9:.]+ +\w+ +[0-9]+\] (.*)$`)

// Words of the logs that say what happened.
var (
	exited      = regexp.MustCompile(`Server ([0-9]+) exited with (status|signal) (-?[0-9]+)`)
	fatalErrors = []string{"Server is handling a fatal GPU error", "Server encountered a fatal exception", "MPS server failed to start", "failed to create/open SHM segment"}
)

// Exited finds how the log of a daemon says that a server ended; "" where it says nothing.
func Exited(log string, server int) string {
	found := ""
	for _, m := range exited.FindAllStringSubmatch(log, -1) {
		if m[1] == strconv.Itoa(server) {
			found = m[2] + " " + m[3]
		}
	}
	return found
}

// FatalErrors are what a log says of a fatal error, each line without its time; none where it says nothing of one.
func FatalErrors(log string) []string {
	var found []string
	for line := range strings.Lines(log) {
		text := strings.TrimSpace(line)
		if m := logLine.FindStringSubmatch(text); m != nil {
			text = m[1]
		}
		for _, words := range fatalErrors {
			if strings.Contains(text, words) {
				found = append(found, text)
			}
		}
	}
	return found
}

// LastLines are the last lines of a log, at most n.
func LastLines(log string, n int) []string {
	var lines []string
	for line := range strings.Lines(log) {
		if text := strings.TrimRight(line, "\r\n"); text != "" {
			lines = append(lines, text)
		}
	}
	return lines[max(0, len(lines)-n):]
}
