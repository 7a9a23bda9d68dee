package allocator

import "fmt"

// Severities of a finding.
const (
	Fail = "fail" // torch stops at its first use of a GPU, or what was asked for cannot be
	Warn = "warn" // something does not do what it seems to
	Info = "info" // for the record
)

// Codes of findings.
const (
	CodeMalformed   = "allocator_malformed"     // no list of settings
	CodeUnknownKey  = "allocator_unknown_key"   // no version has it
	CodeVersion     = "allocator_version"       // this version has not
	CodeValue       = "allocator_value"         // out of range, or of another form
	CodePair        = "allocator_pair"          // one setting makes another idle
	CodeNames       = "allocator_names"         // a variable that is not read
	CodeOverridden  = "allocator_overridden"    // somebody else's value holds
	CodeNoVersion   = "allocator_torch_unknown" // the version of torch is not known
	CodeFractionOff = "allocator_no_fraction"   // memory_fraction cannot come from outside
)

// Finding is something to say of allocator settings.
type Finding struct {
	Code     string
	Severity string
	Key      string // torch's name of the setting; "" where it is about the text as a whole
	Message  string
	At       Span // of the text that was checked; zero where it is about no text
}

func finding(code, severity, key, format string, args ...any) Finding {
	return Finding{Code: code, Severity: severity, Key: key, Message: fmt.Sprintf(format, args...)}
}
