// Package decode reads job files in HCL, in its native syntax or as JSON: blocks with their
// arguments, and the values of expressions. All errors are found at once, with their places
// and with what to write instead.
package decode

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
)

// File is one job file while it is decoded, and the sink of what is wrong with it.
type File struct {
	*expr.Evaluator
	Name string
	Vars map[string]string // values given with -var

	body  hcl.Body
	lost  *hcl.Pos // from where on the parser has lost its way, nil if nowhere
	known int      // how many diagnostics were there before decoding
}

// Parse reads the text of a file; JSON if its name ends so. Errors of the parser are kept, and what
// stands before them is decoded.
func Parse(name string, text []byte, vars map[string]string) *File {
	f := &File{Evaluator: expr.New(expr.NewScope(name, text)), Name: name, Vars: vars}
	if problem := expr.CheckShape(text, name); problem != nil {
		f.Diags = hcl.Diagnostics{problem}
		return f
	}
	if IsJSON(name) {
		file, diags := json.Parse(text, name)
		f.body, f.Partial, f.Diags = file.Body, diags.HasErrors(), diags
	} else {
		file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
		f.body = file.Body
		f.addSyntaxErrors(diags)
		f.Prepare(file.Body.(*hclsyntax.Body))
	}
	f.known = len(f.Diags)
	return f
}

// IsJSON reports whether a file of that name is in HCL's JSON syntax.
func IsJSON(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".json") }

// Root is the file as a block; nil where nothing could be parsed.
func (f *File) Root() *Block {
	if f.body == nil {
		return nil
	}
	start := hcl.InitialPos
	end := start
	end.Column, end.Byte = 2, 1
	return &Block{File: f, At: hcl.Range{Filename: f.Name, Start: start, End: end}, body: f.body}
}

// Diagnostics are all, by place, each once.
func (f *File) Diagnostics() hcl.Diagnostics {
	f.forgetAfterLoss()
	return f.Evaluator.Diagnostics()
}

// forgetAfterLoss drops what was found in lines where a syntax error has left the parser in
// the wrong place.
func (f *File) forgetAfterLoss() {
	if f.lost == nil {
		return
	}
	kept := f.Diags[:f.known:f.known]
	for _, diag := range f.Diags[f.known:] {
		if diag.Subject != nil && diag.Subject.Start.Line < f.lost.Line {
			kept = append(kept, diag)
		}
	}
	f.Diags = kept
}

// addSyntaxErrors keeps the parser's errors with a hint where text for the shell was taken for HCL.
func (f *File) addSyntaxErrors(diags hcl.Diagnostics) {
	for _, diag := range withoutEchoes(diags) {
		if diag.Summary != "Attribute redefined" {
			f.Partial = true
		}
		if at := diag.Subject; at != nil && !harmless[diag.Summary] && (f.lost == nil || at.Start.Byte < f.lost.Byte) {
			f.lost = &at.Start
		}
		if !strings.Contains(diag.Detail, "$${") && !strings.Contains(diag.Detail, "%%{") {
			diag.Detail = strings.TrimSpace(diag.Detail + " " + f.shellHint(diag))
		}
		f.Diags = append(f.Diags, diag)
	}
}

// harmless are syntax errors after which the parser finds its way again.
var harmless = map[string]bool{
	"Attribute redefined":                      true,
	"Invalid single-argument block definition": true,
}

// withoutEchoes keeps the first of the many errors that one missing quote makes.
func withoutEchoes(diags hcl.Diagnostics) hcl.Diagnostics {
	var kept hcl.Diagnostics
	open := false
	for _, diag := range diags {
		isString := diag.Summary == "Invalid multi-line string"
		switch {
		case open && (isString || diag.Summary == "Unterminated template string"):
			continue
		case isString:
			open = true
			diag.Detail = "A string ends on the line where it begins. Is the closing quote missing? For text of several lines use \\n or a heredoc (<<EOT)."
		case diag.Summary == "Invalid expression" && len(kept) > 0 && diagnostic.Subject(kept[len(kept)-1]) == diagnostic.Subject(diag):
			continue
		}
		kept = append(kept, diag)
	}
	return kept
}

// shellHint says how to write ${ and %{ for the shell, where the line of the error has one
// before it.
func (f *File) shellHint(diag *hcl.Diagnostic) string {
	if diag.Subject == nil {
		return ""
	}
	text := f.Scope.Text
	start, end := min(diag.Subject.Start.Byte, len(text)), min(diag.Subject.End.Byte, len(text))
	line := string(text[bytes.LastIndexByte(text[:end], '\n')+1 : end])
	dollar, percent := strings.LastIndex(line, "${"), strings.LastIndex(line, "%{")
	switch {
	case bytes.HasPrefix(text[start:], []byte("$")):
		return "A shell variable is text, so it stands in quotes: \"$NAME\" or \"$${NAME}\"."
	case dollar > percent && !strings.HasSuffix(line[:dollar], "$"):
		return "If this is meant for the shell, write $${ instead of ${."
	case percent > dollar && !strings.HasSuffix(line[:percent], "%"):
		return "If this is not meant for HCL, write %%{ instead of %{."
	}
	return ""
}
