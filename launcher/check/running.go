package check

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/report"
)

// Unreachable is that the head host has no address which all others reach.
func Unreachable(head string, err error) Finding {
	return Finding{
		Code: codes.Unreachable, Severity: codes.Fail, Host: head, Fix: UnreachableFix,
		Message: head + ": " + err.Error(),
	}
}

// Silent is that nothing moves in ranks; cause says which and where they are.
func Silent(cause *report.Cause) Finding {
	return Finding{
		Code: codes.Silent, Severity: codes.Warn, Host: cause.Host, Rank: cause.Rank,
		Message: cause.Message + "\n  " + strings.Join(cause.Evidence, "\n  "), Fix: strings.Join(cause.Advice, "; "),
	}
}

// Straggler is that a rank, which is called name, keeps the others waiting.
func Straggler(rank int, name, host, why string) Finding {
	return Finding{
		Code: codes.Straggler, Severity: codes.Warn, Host: host, Rank: &rank,
		Message: fmt.Sprintf("%s on %s keeps the others waiting: %s", name, host, why),
		Fix: "see what only it does (its data, a checkpoint, an evaluation), and whether its GPU or host is slower: " +
			"muster check --collective",
	}
}

// RankMemory is that a rank's memory grows, or is far more than that of the others.
func RankMemory(code, host string, rank int, message, fix string) Finding {
	return Finding{Code: code, Severity: codes.Warn, Host: host, Rank: &rank, Message: host + ": " + message, Fix: fix}
}
