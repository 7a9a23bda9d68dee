// Package findings shows what checks of hosts and jobs have found.
package findings

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// Checked is what checks of a job came to.
type Checked struct {
	Job      string
	Plan     *plan.Plan // nil where there is none: Findings say why
	Checks   int        // how many kinds of findings were looked for
	Findings []report.Finding
}

// Check writes the verdict and, below it, what was found: the worst first, each with what
// to do. The same thing of several GPUs of a host stands once.
func Check(s *terminal.Screen, c Checked) {
	var b bytes.Buffer
	fmt.Fprintln(&b, c.verdict(&s.Out))
	width := s.OutWidth()
	for _, kind := range Severities {
		group := Alike(c.Findings, kind.Severity)
		if len(group) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", s.Out.Paint(kind.Colour, kind.title))
		for _, f := range group {
			f.write(&b, &s.Out, width)
		}
	}
	s.Write(&s.Out, terminal.CleanLines(b.Bytes()))
}

// Severities as they are told of, the worst first.
var Severities = []struct {
	Severity      codes.Severity
	title, Colour string
	noun          string
}{
	{codes.Fail, "failures", "31", "failure"},
	{codes.Warn, "warnings", "33", "warning"},
	{codes.Info, "good to know", "36", "note"},
}

func (c Checked) verdict(st *terminal.Stream) string {
	var parts []string
	for _, kind := range Severities {
		n := 0
		for _, f := range c.Findings {
			if f.Severity == kind.Severity {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, plural.Of(n, kind.noun))
		}
	}
	colour, word := "32", "all is well"
	switch check.Verdict(c.Findings) {
	case check.Failed:
		colour, word = "31", "this job would not run"
	case check.Warned:
		colour, word = "33", "this job can run"
	}
	line := st.Paint("1", c.Job) + ": " + st.Paint(colour, word)
	switch said := strings.Join(parts, ", "); {
	case c.Plan == nil:
		return line + ": " + said
	case said == "":
		return line + ": " + c.looked()
	default:
		return fmt.Sprintf("%s: %s (%s)", line, said, c.looked())
	}
}

// looked says what was looked at.
func (c Checked) looked() string {
	gpus := map[string]bool{}
	for i, h := range c.Plan.Hosts {
		for _, d := range h.Devices {
			gpus[fmt.Sprint(i, d.UUID, d.PCI)] = true
		}
	}
	return fmt.Sprintf("%s, %s, %s", plural.Of(len(c.Plan.Hosts), "host"), plural.Of(len(gpus), "GPU"), plural.Of(c.Checks, "check"))
}

// Shown is a finding with the GPUs and ranks that it is true of.
type Shown struct {
	report.Finding
	Text  string // the message without the place
	GPUs  []int
	ranks []int
}

// Alike are the findings of a severity; those that differ in the GPU only are one.
func Alike(findings []report.Finding, severity codes.Severity) []Shown {
	var all []Shown
	for _, f := range findings {
		if f.Severity != severity {
			continue
		}
		one := Shown{Finding: f, Text: strings.TrimPrefix(f.Message, f.Where())}
		isPlaced := f.GPU != nil && one.Text != f.Message
		at := slices.IndexFunc(all, func(o Shown) bool {
			return isPlaced && len(o.GPUs) > 0 && o.Code == f.Code && o.Host == f.Host &&
				o.Text == one.Text && o.Fix == f.Fix
		})
		if at < 0 {
			at = len(all)
			all = append(all, one)
		}
		if isPlaced {
			all[at].GPUs = append(all[at].GPUs, *f.GPU)
		}
		if f.Rank != nil {
			all[at].ranks = append(all[at].ranks, *f.Rank)
		}
	}
	return all
}

// write writes a finding. Lines are broken where the terminal would; tables are not.
func (f Shown) write(b *bytes.Buffer, st *terminal.Stream, width int) {
	first, rest, _ := strings.Cut(f.Message, "\n")
	if len(f.GPUs) > 0 {
		place := f.Host + " " + text.Numbered("GPU", f.GPUs)
		if len(f.ranks) > 0 {
			place += fmt.Sprintf(" (%s)", text.Numbered("rank", f.ranks))
		}
		text, _, _ := strings.Cut(f.Text, "\n")
		first = place + ": " + text
	}
	b.Write(terminal.Paragraph(first+" "+st.Paint("2", "["+f.Code+"]"), "  ", width))
	if rest != "" {
		b.Write(terminal.Indent([]byte(rest), "  "))
	}
	if f.Fix != "" {
		b.Write(terminal.Paragraph(f.Fix, "      ", width))
	}
}

type checkJSON struct {
	Version  int              `json:"version"`
	Job      string           `json:"job"`
	Verdict  string           `json:"verdict"` // "pass", "warn" or "fail"
	Findings []report.Finding `json:"findings"`
}

// CheckJSON writes what checks came to as one JSON object (version 1).
func CheckJSON(w io.Writer, c Checked) error {
	out := checkJSON{Version: 1, Job: c.Job, Verdict: check.Verdict(c.Findings), Findings: []report.Finding{}}
	out.Findings = append(out.Findings, c.Findings...)
	return terminal.WriteJSON(w, out)
}
