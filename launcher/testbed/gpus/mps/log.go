package mps

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// defaultLogs is where logs go where CUDA_MPS_LOG_DIRECTORY says nothing.
const defaultLogs = "/var/log/nvidia-mps"

// logFile is control.log or server.log; lines of one write each, so that processes may
// share it.
type logFile struct {
	to io.Writer
}

// openLog opens a log for appending. Where it cannot be written, nothing is logged and
// warning says so.
func openLog(name string) (l *logFile, warning string) {
	folder := os.Getenv("CUDA_MPS_LOG_DIRECTORY")
	if folder == "" {
		folder = defaultLogs
		_ = os.Mkdir(folder, 0o755) // there, or not to be had: the file tells
	}
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return &logFile{io.Discard}, fmt.Sprintf(noLogs, folder)
	}
	return &logFile{f}, ""
}

// line writes [YYYY-MM-DD HH:MM:SS.mmm WHO PID] text.
func (l *logFile) line(who, format string, args ...any) {
	fmt.Fprintf(l.to, "[%s %s %5d] %s\n", time.Now().Format("2006-01-02 15:04:05.000"), who, os.Getpid(), fmt.Sprintf(format, args...))
}
