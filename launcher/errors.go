package launcher

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// Failure is an end of a command that the user has to know about, with the exit
// status that it asks for.
type Failure struct {
	Exit    int
	Message string
	Err     error // where what it comes from matters, or nil
}

func (f *Failure) Error() string { return f.Message }

// Unwrap is what it comes from.
func (f *Failure) Unwrap() error { return f.Err }

func failure(exit int, format string, args ...any) *Failure {
	return &Failure{Exit: exit, Message: fmt.Sprintf(format, args...)}
}

// hostErrors are what went wrong, each host's once, all together.
type hostErrors []hostError

type hostError struct {
	host string
	err  error
}

func (list hostErrors) failure(all int) *Failure {
	var b strings.Builder
	if len(list) == 1 && all == 1 {
		fmt.Fprintf(&b, "%v", list[0].err)
		return &Failure{Exit: report.ExitUnreachable, Message: b.String()}
	}
	fmt.Fprintf(&b, "%d of %s cannot take part; nothing was started:", len(list), plural.Of(all, "host"))
	for _, e := range list {
		text := strings.TrimPrefix(e.err.Error(), "connect to "+e.host+": ")
		text = strings.ReplaceAll(text, "\n", "\n    ")
		if !strings.HasPrefix(text, e.host+":") {
			text = e.host + ": " + text
		}
		fmt.Fprintf(&b, "\n  %s", text)
	}
	return &Failure{Exit: report.ExitUnreachable, Message: b.String()}
}
