package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/envvar"
	"github.com/muster-dev/muster/launcher/config/expr"
)

// maxText is the largest job file that is read. Real ones are a few KiB.
const maxText = 1 << 20

// Read reads a job file. What it returns beside errors is good for
// WriteDiagnostics only.
func Read(filename string, vars map[string]string, args []string) (Source, hcl.Diagnostics) {
	src := Source{Filename: filename, Vars: vars, Args: args}
	src.Dir, _ = os.Getwd() // where it is not known, the user's home stands in
	text, err := readUpTo(filename, maxText)
	if err != nil {
		return src, hcl.Diagnostics{unreadable(filename, err)}
	}
	src.Text = text
	return src, src.checkText()
}

// readUpTo reads at most a little more than so many bytes, so that a wrong file name does
// not fill the memory.
func readUpTo(filename string, limit int64) ([]byte, error) {
	file, err := os.Open(filename)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit+1))
}

func unreadable(filename string, err error) *hcl.Diagnostic {
	tried, absErr := filepath.Abs(filename)
	if absErr != nil {
		tried = filename
	}
	advice := "Tried " + tried + "."
	switch {
	case filename == "":
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No job file", Detail: "The name of the job file is empty."}
	case errors.Is(err, fs.ErrNotExist):
		advice += " There is no such file; a relative name starts at the folder that muster runs in."
	case errors.Is(err, fs.ErrPermission):
		advice += " You may not read it."
	case errors.Is(err, syscall.EISDIR):
		advice += " It is a folder; name the .hcl file in it."
	default:
		advice += " " + reason(err) + "."
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot read the job file", Detail: advice}
}

// reason is err without the path, which the caller has said already.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// checkText refuses what cannot be a job file.
func (s Source) checkText() hcl.Diagnostics {
	problem := func(summary, format string, args ...any) hcl.Diagnostics {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...)}}
	}
	text := s.plainText()
	switch {
	case len(s.Text) > maxText:
		return problem("Job file too large", "%s is larger than 1 MiB. Is it a job file?", s.Filename)
	case len(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))) == 0:
		return problem("Empty job file", "%s is empty. A job file holds one block: job \"NAME\" { ... }", s.Filename)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return problem("Not a text file", "%s is not UTF-8 text, as a job file is. Save it as UTF-8.", s.Filename)
	}
	return nil
}

// plainText is the text with Windows line endings made plain, so that a heredoc
// holds no carriage returns, which bash would trip over. Lines and columns stay.
func (s Source) plainText() []byte {
	return bytes.ReplaceAll(s.Text, []byte("\r\n"), []byte("\n"))
}

// Evaluate decodes the job file. The job is nil when there are errors. Strings
// are in Unicode's NFC, as HCL has them.
func (s Source) Evaluate() (*Job, hcl.Diagnostics) {
	if diags := s.checkText(); diags.HasErrors() {
		return nil, diags
	}
	f := decode.Parse(s.Filename, s.plainText(), s.Vars)
	var job *Job
	if f.Root() != nil {
		job = decodeFile(s, f)
	}
	diags := f.Diagnostics()
	if diags.HasErrors() {
		return nil, diags
	}
	return job, diags
}

// varPrefix begins the names of variables by which a machine's environment sets those of
// job files: MUSTER_VAR_hf_token is what -var hf_token=... would say.
const varPrefix = "MUSTER_VAR_"

// WithEnviron is the source with what the launching machine's environment, as os.Environ
// has it, adds: values of variables that the job file declares and Vars has not, from
// MUSTER_VAR_NAME, and what forward names. It is the one way from there into a job. What
// is wrong with the job file is left for Evaluate to tell.
func (s Source) WithEnviron(environ []string) Source {
	scope, _ := s.declarations()
	set := map[string]string{}
	vars := map[string]string{}
	for _, assignment := range environ {
		name, value, _ := strings.Cut(assignment, "=")
		set[name] = value
		if variable, isVar := strings.CutPrefix(name, varPrefix); isVar && scope.Declares(variable) {
			vars[variable] = value
		}
	}
	maps.Copy(vars, s.Vars)
	if len(vars) > 0 {
		s.Vars = vars
	}
	_, job := s.declarations() // with them, as a pattern may have a variable in it
	patterns, _ := decodeForward(job, nil)
	s.Forwarded = envvar.Forwarded(patterns, set)
	return s
}

// WithoutSecrets is the source for a file that others may read: without the values of
// sensitive variables and without what is forwarded. WithEnviron puts them back where the
// environment has them.
func (s Source) WithoutSecrets() Source {
	scope, _ := s.declarations()
	vars := maps.Clone(s.Vars)
	maps.DeleteFunc(vars, func(name, _ string) bool { return scope.IsSecret(name) })
	s.Vars, s.Forwarded = vars, nil
	return s
}

// declarations decodes variables, and finds what else is needed before a job is evaluated; the
// job is nil where there is none.
func (s Source) declarations() (*expr.Scope, *decode.Block) {
	text := s.plainText()
	if s.checkText().HasErrors() {
		text = nil
	}
	f := decode.Parse(s.Filename, text, s.Vars)
	root := f.Root()
	root.Peek(fileSchema)
	f.Variables(root.Blocks("variable"))
	job := root.Block("job")
	job.Peek(decode.Schema{Args: []string{"forward", "tasks_file"}})
	return f.Scope, job
}

// Diagnostics are what is wrong with a job file, or to be known of it, with places.
type Diagnostics = hcl.Diagnostics

// WriteDiagnostics writes diagnostics for people. width is the terminal's, 0 where there is
// none: then nothing is wrapped.
func WriteDiagnostics(w io.Writer, src Source, diags hcl.Diagnostics, width int, color bool) error {
	p := diagnostic.Printer{Filename: src.Filename, Text: src.plainText(), Width: width, Color: color}
	if len(diags) > 0 && len(p.Text) <= maxText {
		p.Secret = decode.SecretLines(src.Filename, p.Text)
	}
	return p.Write(w, diags)
}
