package config

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// parse reads the text to a body. Errors of the parser are kept; what stands
// before them is decoded all the same.
func (d *decoder) parse() *hclsyntax.Body {
	d.text = d.src.plainText()
	if problem := checkShape(d.text, d.src.Filename); problem != nil {
		d.diags = append(d.diags, problem)
		return nil
	}
	file, diags := hclsyntax.ParseConfig(d.text, d.src.Filename, hcl.InitialPos)
	d.addSyntaxErrors(diags)
	body := file.Body.(*hclsyntax.Body)
	d.prepare(body, d.text)
	return body
}

// prepare makes the expressions below node ready for evaluation.
func (d *decoder) prepare(node hclsyntax.Node, text []byte) {
	d.keepLiterals(node, text)
	addMeters(node)
}

// addSyntaxErrors keeps the parser's errors with a hint where text for the shell
// was taken for HCL.
func (d *decoder) addSyntaxErrors(diags hcl.Diagnostics) {
	for _, diag := range withoutEchoes(diags) {
		if diag.Summary != "Attribute redefined" {
			d.partial = true
		}
		d.stopAt(diag)
		if hint := d.shellHint(diag); !strings.Contains(diag.Detail, "$${") && !strings.Contains(diag.Detail, "%%{") {
			diag.Detail = strings.TrimSpace(diag.Detail + " " + hint)
		}
		d.diags = append(d.diags, diag)
	}
}

// withoutEchoes keeps the first of the many errors that one missing quote makes.
func withoutEchoes(diags hcl.Diagnostics) hcl.Diagnostics {
	var kept hcl.Diagnostics
	open := false
	for _, diag := range diags {
		switch diag.Summary {
		case "Invalid multi-line string":
			if open {
				continue
			}
			open = true
			diag.Detail = "A string ends on the line where it begins. Is the closing quote missing? For text of several lines use \\n or a heredoc (<<EOT)."
		case "Unterminated template string":
			if open {
				continue
			}
		case "Invalid expression":
			if len(kept) > 0 && subject(kept[len(kept)-1]) == subject(diag) {
				continue
			}
		}
		kept = append(kept, diag)
	}
	return kept
}

// harmless are syntax errors after which the parser finds its way: what it makes
// of the rest of the file is true.
var harmless = map[string]bool{
	"Attribute redefined":                      true,
	"Invalid single-argument block definition": true,
}

// stopAt notes the first place after which the parser is not to be believed.
func (d *decoder) stopAt(diag *hcl.Diagnostic) {
	if harmless[diag.Summary] || diag.Subject == nil {
		return
	}
	if d.lost == nil || diag.Subject.Start.Byte < d.lost.Byte {
		d.lost = &diag.Subject.Start
	}
}

// shellHint says how to write ${ and %{ for the shell, where the line of the
// error has one before it.
func (d *decoder) shellHint(diag *hcl.Diagnostic) string {
	if diag.Subject == nil {
		return ""
	}
	start, end := min(diag.Subject.Start.Byte, len(d.text)), min(diag.Subject.End.Byte, len(d.text))
	line := string(d.text[bytes.LastIndexByte(d.text[:end], '\n')+1 : end])
	dollar, percent := strings.LastIndex(line, "${"), strings.LastIndex(line, "%{")
	switch {
	case bytes.HasPrefix(d.text[start:], []byte("$")):
		return "A shell variable is text, so it stands in quotes: \"$NAME\" or \"$${NAME}\"."
	case dollar > percent && !strings.HasSuffix(line[:dollar], "$"):
		return "If this is meant for the shell, write $${ instead of ${."
	case percent > dollar && !strings.HasSuffix(line[:percent], "%"):
		return "If this is not meant for HCL, write %%{ instead of %{."
	}
	return ""
}
