package view

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

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
func Check(s *Screen, c Checked) {
	var b bytes.Buffer
	fmt.Fprintln(&b, c.verdict(&s.out))
	width := s.OutWidth()
	for _, kind := range severities {
		group := alike(c.Findings, kind.severity)
		if len(group) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", s.out.paint(kind.colour, kind.title))
		for _, f := range group {
			f.write(&b, &s.out, width)
		}
	}
	s.write(&s.out, cleanLines(b.Bytes()))
}

// severities as they are told of, the worst first.
var severities = []struct {
	severity      codes.Severity
	title, colour string
	noun          string
}{
	{codes.Fail, "failures", "31", "failure"},
	{codes.Warn, "warnings", "33", "warning"},
	{codes.Info, "good to know", "36", "note"},
}

func (c Checked) verdict(st *stream) string {
	var parts []string
	for _, kind := range severities {
		n := 0
		for _, f := range c.Findings {
			if f.Severity == kind.severity {
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
	line := st.paint("1", c.Job) + ": " + st.paint(colour, word)
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

// shownFinding is a finding with the GPUs and ranks that it is true of.
type shownFinding struct {
	report.Finding
	text  string // the message without the place
	gpus  []int
	ranks []int
}

// alike are the findings of a severity; those that differ in the GPU only are one.
func alike(findings []report.Finding, severity codes.Severity) []shownFinding {
	var all []shownFinding
	for _, f := range findings {
		if f.Severity != severity {
			continue
		}
		one := shownFinding{Finding: f, text: strings.TrimPrefix(f.Message, f.Where())}
		isPlaced := f.GPU != nil && one.text != f.Message
		at := slices.IndexFunc(all, func(o shownFinding) bool {
			return isPlaced && len(o.gpus) > 0 && o.Code == f.Code && o.Host == f.Host && o.text == one.text && o.Fix == f.Fix
		})
		if at < 0 {
			at = len(all)
			all = append(all, one)
		}
		if isPlaced {
			all[at].gpus = append(all[at].gpus, *f.GPU)
		}
		if f.Rank != nil {
			all[at].ranks = append(all[at].ranks, *f.Rank)
		}
	}
	return all
}

// write writes a finding. Lines are broken where the terminal would; tables are not.
func (f shownFinding) write(b *bytes.Buffer, st *stream, width int) {
	first, rest, _ := strings.Cut(f.Message, "\n")
	if len(f.gpus) > 0 {
		place := f.Host + " " + text.Numbered("GPU", f.gpus)
		if len(f.ranks) > 0 {
			place += fmt.Sprintf(" (%s)", text.Numbered("rank", f.ranks))
		}
		text, _, _ := strings.Cut(f.text, "\n")
		first = place + ": " + text
	}
	b.Write(paragraph(first+" "+st.paint("2", "["+f.Code+"]"), "  ", width))
	if rest != "" {
		b.Write(indent([]byte(rest), "  "))
	}
	if f.Fix != "" {
		b.Write(paragraph(f.Fix, "      ", width))
	}
}

// paragraph is text within a width, 0 for any, behind spaces.
func paragraph(s, by string, width int) []byte {
	if width > 0 {
		s = text.Wrap(s, max(width-len(by)-1, 30))
	}
	return indent([]byte(s), by)
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
	return writeJSON(w, out)
}
