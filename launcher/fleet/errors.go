package fleet

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// HostError is what went wrong with a host.
type HostError struct {
	Host string
	Err  error
}

// HostErrors are what went wrong, one for each host.
type HostErrors []HostError

// Failure says which of all hosts cannot take part.
func (list HostErrors) Failure(all int) *report.Error {
	if len(list) == 1 && all == 1 {
		return report.Errorf(report.ExitUnreachable, "%v", list[0].Err)
	}
	text := fmt.Sprintf("%d of %s cannot take part; nothing was started:", len(list), plural.Of(all, "host"))
	for _, e := range list {
		line := strings.TrimPrefix(e.Err.Error(), "connect to "+e.Host+": ")
		line = strings.ReplaceAll(line, "\n", "\n    ")
		if !strings.HasPrefix(line, e.Host+":") {
			line = e.Host + ": " + line
		}
		text += "\n  " + line
	}
	return report.Errorf(report.ExitUnreachable, "%s", text)
}
