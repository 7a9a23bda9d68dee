package nccl

import (
	"fmt"
	"slices"
	"strings"
)

// Check says what NCCL or torch would misread of a variable that somebody has set, and whether the releases found know
// it. Variables of other programs are fine.
func Check(name, value string, v Version) []Finding {
	known, ok := Lookup(name)
	switch {
	case !Concerns(name):
		return nil
	case !ok:
		return unknown(name, v)
	}
	if found := known.age(v); found != nil {
		return found
	}
	if value == "" && !known.Torch {
		return nil // as if it were not set
	}
	return known.misread(value, v)
}

// CheckVersion is what Check finds only because the releases are known.
func CheckVersion(name, value string, v Version) []Finding {
	always := Check(name, value, Version{})
	return slices.DeleteFunc(Check(name, value, v), func(f Finding) bool { return slices.Contains(always, f) })
}

func unknown(name string, v Version) []Finding {
	folk, near := folkNames[name], nearestName(name)
	f := Finding{Code: CodeUnknown, Message: name + " is read by neither NCCL nor torch"}
	isPlugins := slices.ContainsFunc(pluginPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	switch {
	case table().others[name] || buildNames[name] || isPlugins:
		return nil
	case folk != "":
		f.Fix = folk
	case near != "":
		f.Fix = "did you mean " + near + "?"
	case v.NCCL.since(newestKnown) && v.NCCL != newestKnown:
		return nil // it may be new
	default:
		f.Message = fmt.Sprintf("%s is not among the variables that NCCL (up to %s) and torch read", name, newestKnown)
		f.Fix = "take it out, unless a plugin of NCCL reads it"
	}
	return []Finding{f}
}

// age is what there is to say of a variable that the release does not read, or reads under another name.
func (v Variable) age(version Version) []Finding {
	who, release := v.reader(version)
	f := Finding{Code: CodeVersion}
	write := func(name, otherwise string) string {
		if name == "" {
			return otherwise
		}
		return "write " + name
	}
	switch {
	case release.before(v.Since):
		f.Message, f.Fix = fmt.Sprintf("%s %s does not read %s", who, release, v.Name), write(v.Former, "take it out, or use a newer "+who)
		if !v.Torch {
			f.Message += fmt.Sprintf(", which came with %s", v.Since)
		}
	case release.since(v.Until):
		f.Message, f.Fix = fmt.Sprintf("%s %s does not read %s any more, since %s", who, release, v.Name, v.Until), write(v.Instead, "take it out")
	case release.since(v.Deprecated):
		f.Code, f.Fix = CodeDeprecated, "write "+v.Instead
		f.Message = fmt.Sprintf("%s is called %s since %s %s", v.Name, v.Instead, who, v.Deprecated)
	default:
		return nil
	}
	return []Finding{f}
}

// misread is what goes wrong with a value. The value is not empty unless torch reads it.
func (v Variable) misread(value string, version Version) []Finding {
	switch v.Kind {
	case Switch, Number, Bytes, Channels:
		return v.misreadNumber(value, version)
	case Level:
		return v.misreadLevel(value)
	case Word, ExactWord:
		return v.misreadWord(value, version)
	case WordList:
		var found []Finding
		for word := range strings.SplitSeq(strings.TrimPrefix(value, "^"), ",") {
			found = append(found, v.misreadWord(strings.TrimPrefix(word, "^"), version)...)
		}
		return found
	case Algorithms:
		return v.misreadAlgorithms(value, version)
	case Interfaces, Adapters:
		return v.misreadNames(value, version)
	case File:
		return v.misreadFile(value)
	}
	return nil
}

// found makes a finding of a value.
func (v Variable) found(code, value, fix, format string, args ...any) []Finding {
	return []Finding{{Code: code, Message: fmt.Sprintf("%s=%s: ", v.Name, shown(value)) + fmt.Sprintf(format, args...), Fix: fix}}
}

// shown is a value as messages have it.
func shown(value string) string {
	if len(value) > 60 {
		value = value[:60] + "..."
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) || value == "" {
		return fmt.Sprintf("%q", value)
	}
	return value
}

// misreadFile: nobody expands "~", and one file for all ranks is overwritten by each.
func (v Variable) misreadFile(value string) []Finding {
	switch {
	case strings.HasPrefix(value, "~"):
		return v.found(CodeFile, value, "write the path in full", "no shell reads it, so that ~ is a name like any other")
	case v.Name == "NCCL_DEBUG_FILE" && !strings.Contains(value, "%p") && !strings.HasPrefix(value, "/dev/std"):
		return v.found(CodeFile, value, "write "+value+".%h.%p", "the ranks overwrite each other's file")
	}
	return nil
}
