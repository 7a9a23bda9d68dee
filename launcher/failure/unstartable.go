package failure

import (
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/output"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// unstartable is what shells, the loader and the kernel say of a program that could not
// even begin, and what is to be done then. The first that fits counts.
type unstartable struct {
	form   *pattern.Pattern
	what   string
	advice []string
}

// unreadable is a script that its interpreter may not read.
var unreadable = pattern.New(`(?i)\b(?:cannot|can't) open .{1,400}permission denied$`)

var unstartables = []unstartable{
	{pattern.New(`(?i)exec format error$|cannot execute binary file`), "the program has no #! line, or is built for another machine",
		[]string{"a script needs a first line such as #!/usr/bin/env python3, or its interpreter in front of it in the command", "file PROGRAM and uname -m tell whether a binary is for this processor"}},
	{pattern.New(`bad interpreter: |: required file not found$`), "the interpreter or loader that the program names is not there",
		[]string{"look at its first line: #! and the path of what is on this host, without a DOS line end (\\r)", "ldd PROGRAM names the loader of a binary"}},
	{unreadable, "a file is there but may not be read",
		[]string{"chmod +r, and +x for the folders above it, for the user that the run has on this host"}},
	{pattern.New(`(?i): permission denied$`), "the program is there but may not be executed",
		[]string{"chmod +x PROGRAM, or its interpreter in front of it in the command", "a file system that is mounted noexec runs no programs: findmnt -T PROGRAM"}},
	{pattern.New(`: (?:command )?not found$|: No such file or directory$|: error while loading shared libraries: `), "a program or library was not found", nil},
}

// notBegunBy finds what kept the program from beginning, in the worker's words.
func (e Evidence) notBegunBy() (verdict.Verdict, bool) {
	if e.Code != 126 && e.Code != 127 && e.Code != 2 {
		return verdict.Verdict{}, false
	}
	for _, u := range unstartables {
		if line := output.Line(&e.Worker, u.form); line != "" {
			v := notBegun(e, u.what, line)
			v.Advice = u.advice
			return v, true
		}
	}
	return verdict.Verdict{}, false
}

// notStarted: there was no worker.
func (e Evidence) notStarted() verdict.Verdict {
	v := verdict.Of(class.Start, verdict.Certain)
	v.Message = "the program could not be started: " + e.Start
	v.AddEvidence("its host says: " + e.Start)
	if !strings.Contains(e.Start, "exec") { // a folder or a limit, not the program
		return v
	}
	for _, u := range unstartables {
		if u.advice != nil && u.form.MatchString(e.Start) {
			v.AddEvidence(u.what)
			v.Advice = u.advice
			break
		}
	}
	return v
}
