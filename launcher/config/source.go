package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
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
func readUpTo(filename string, most int64) ([]byte, error) {
	file, err := os.Open(filename)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most+1))
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
	switch offset := firstBinary(text); {
	case len(s.Text) > maxText:
		return problem("Job file too large", "%s is larger than 1 MiB. Is it a job file?", s.Filename)
	case len(bytes.TrimSpace(bytes.TrimPrefix(text, utf8BOM))) == 0:
		return problem("Empty job file", "%s is empty. A job file holds one block: job \"NAME\" { ... }", s.Filename)
	case utf16(text):
		return problem("Not a text file", "%s is UTF-16 text. Save it as UTF-8.", s.Filename)
	case offset >= 0:
		return hcl.Diagnostics{{
			Severity: hcl.DiagError,
			Summary:  "Not a text file",
			Detail:   notText(text, offset),
			Subject:  byteRange(s.Filename, text, offset),
		}}
	}
	return nil
}

// firstBinary is the offset of the first byte that no UTF-8 text has, or -1.
func firstBinary(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func notText(text []byte, offset int) string {
	kind := "is not UTF-8"
	if text[offset] == 0 {
		kind = "is a NUL byte"
	}
	return fmt.Sprintf("Byte 0x%02x at offset %d (line %d) %s. A job file is UTF-8 text.",
		text[offset], offset, 1+bytes.Count(text[:offset], []byte("\n")), kind)
}

// byteRange is the range of the one byte at offset.
func byteRange(filename string, text []byte, offset int) *hcl.Range {
	lineStart := bytes.LastIndexByte(text[:offset], '\n') + 1
	start := hcl.Pos{
		Line:   1 + bytes.Count(text[:offset], []byte("\n")),
		Column: 1 + utf8.RuneCount(text[lineStart:offset]),
		Byte:   offset,
	}
	end := start
	end.Column++
	end.Byte++
	return &hcl.Range{Filename: filename, Start: start, End: end}
}

var utf8BOM = []byte("\ufeff")

func utf16(text []byte) bool {
	return bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff})
}

// plainText is the text with Windows line endings made plain, so that a heredoc
// holds no carriage returns, which bash would trip over. Lines and columns stay.
func (s Source) plainText() []byte {
	return bytes.ReplaceAll(s.Text, []byte("\r\n"), []byte("\n"))
}
