package output

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/lines"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// ending is the exception that ended a program: the last one that was not caught, with
// those that it came of.
type ending struct {
	lines.Trace
	first     int    // line where the chain begins
	root      string // the first exception of the chain, where it is another one
	explained bool   // a phrase stands in it
	Verdict   verdict.Verdict
}

// below is how many lines after an exception's first one may belong to its message.
const below = 12

// endingOf finds it among a voice's traces; nil where there is none.
func endingOf(v voice, hits []Hit) *ending {
	traces := v.Traces()
	for i := len(traces) - 1; i >= 0; i-- {
		t := traces[i]
		if t.Noise || t.Thread != "" || t.Type == "" || ofLauncher(t) {
			continue
		}
		e := &ending{Trace: t, first: t.First}
		for j := i; j > 0 && traces[j].Linked; j-- {
			e.first = traces[j-1].First
			e.root = verdict.Excerpt(traces[j-1].Type + ": " + traces[j-1].Message)
		}
		for _, h := range hits {
			ours := h.of == v.Rank || h.of == lines.NoRank
			e.explained = e.explained || ours && h.at >= e.first && h.at <= t.Last+below
		}
		e.Verdict = e.byType()
		return e
	}
	return nil
}

// ofLauncher is whether a launcher between muster and the program has written it, about a
// worker of its own, or a signal ended it.
func ofLauncher(t lines.Trace) bool {
	name := t.Type[strings.LastIndexByte(t.Type, '.')+1:]
	switch name {
	case "ChildFailedError", "CalledProcessError", "SignalException", "SIGTERMException", "KeyboardInterrupt", "SystemExit", "ProcessRaisedException", "ProcessExitedException":
		return true
	}
	return false
}

// byType is the verdict on an exception that no phrase explains.
func (e *ending) byType() verdict.Verdict {
	name := e.Type[strings.LastIndexByte(e.Type, '.')+1:]
	v := e.byName(name)
	frame, _ := e.Innermost()
	v.Exception, v.Where = e.Type, frame.String()
	v.Said = verdict.Excerpt(e.Type + ": " + e.Message)
	if e.Message == "" {
		v.Said = e.Type
	}
	if v.Message == "" {
		v.Message = describeException(name, v)
	}
	v.AddEvidence("its exception: " + v.Said)
	if e.root != "" && e.root != v.Said {
		v.AddEvidence("which came of: " + e.root)
	}
	return v
}

// byName is the class of an exception: where no table knows it, it is the program's own.
func (e *ending) byName(name string) verdict.Verdict {
	if e.ofDownload(name) {
		return verdict.Of(class.Network, verdict.Likely)
	}
	for _, t := range exceptions {
		if t.fits(e.Type, name, e.Message) {
			v := verdict.Of(t.class, verdict.Likely)
			v.Message = t.says
			return v
		}
	}
	return verdict.Of(class.UserError, verdict.Certain)
}

func describeException(name string, v verdict.Verdict) string {
	at := ""
	if v.Where != "" {
		at = " at " + v.Where
	}
	said := v.Said
	if !strings.HasSuffix(said, "...") {
		said = strings.TrimSuffix(said, ".")
	}
	if v.Class == class.Network {
		return "something outside of the run was not reached" + at + ": " + said
	}
	switch name {
	case "ModuleNotFoundError", "ImportError":
		return "the program could not import what it needs" + at + ": " + said
	case "SyntaxError", "IndentationError", "TabError":
		return "the program cannot be parsed" + at + ": " + said
	}
	return "the program ended with an exception of its own" + at + ": " + said
}

// exceptionType are exceptions that are not the program's own fault, by name.
type exceptionType struct {
	class string
	names string // of the types, without packages, between blanks
	from  string // a package that the type must be of; "" for any
	says  string
}

func (t exceptionType) fits(full, name, message string) bool {
	if t.from != "" && !strings.HasPrefix(full, t.from) {
		return false
	}
	return strings.Contains(t.names, " "+name+" ") && (name != "OSError" || strings.Contains(message, "Connection"))
}

var exceptions = []exceptionType{
	{class: class.OOMHost, names: " MemoryError _ArrayMemoryError ", says: refusedMemory},
	{class: class.Network, names: " ConnectionError Timeout ReadTimeout ConnectTimeout ChunkedEncodingError ProxyError SSLError ", from: "requests."},
	{class: class.Network, names: " MaxRetryError NewConnectionError ProtocolError ReadTimeoutError ConnectTimeoutError NameResolutionError IncompleteRead "},
	{class: class.Network, names: " ConnectError ReadTimeout ConnectTimeout RemoteProtocolError ReadError ", from: "httpx."},
	{class: class.Network, names: " URLError gaierror ClientConnectorError ServerDisconnectedError EndpointConnectionError LocalEntryNotFoundError "},
	{class: class.PeerLost, names: " BrokenPipeError ConnectionResetError ConnectionAbortedError "},
	{class: class.RendezvousTimeout, names: " DistStoreError "},
	{class: class.NCCLSystem, names: " DistBackendError "},
	{class: class.PeerLost, names: " DistNetworkError "},
}
