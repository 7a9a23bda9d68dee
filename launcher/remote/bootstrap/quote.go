package bootstrap

import (
	"fmt"
	"slices"
	"strings"
)

// word is an argument as the text has it.
func word(arg string, names []string) (string, error) {
	name, isPlace := Placeholder(arg)
	if !isPlace {
		return quote(arg)
	}
	i := slices.Index(names, name)
	if i < 0 {
		return "", fmt.Errorf("argument %s names a program that the start lacks (it has %s)", arg, strings.Join(names, ", "))
	}
	return fmt.Sprintf(`"${p%d:+$c/$p%d}"`, i, i), nil
}

func quoteAll(args []string) (string, error) {
	out := ""
	for _, arg := range args {
		quoted, err := quote(arg)
		if err != nil {
			return "", err
		}
		out += " " + quoted
	}
	return out, nil
}

// quote makes one word of sh that survives single quotes of every login shell:
// what would not is left to printf.
func quote(arg string) (string, error) {
	var b strings.Builder
	b.WriteByte('"')
	special := false
	for i := range len(arg) {
		c := arg[i]
		if c < ' ' || c == 0x7f {
			return "", fmt.Errorf("argument %q has a control character", arg)
		}
		awkward := c >= 0x80 || strings.IndexByte("'!\\$`\"", c) >= 0
		switch {
		case awkward && !special:
			b.WriteString(`$(printf "`)
		case !awkward && special:
			b.WriteString(`")`)
		}
		if special = awkward; awkward {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	if special {
		b.WriteString(`")`)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// Plain reports whether a name can stand in the text as it is.
func Plain(name string) bool {
	ok := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return name != "" && name[0] != '-' && name[0] != '.' && strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) < 0
}

// Placeholder reads an argument of the form {NAME}.
func Placeholder(arg string) (name string, ok bool) {
	name, opened := strings.CutPrefix(arg, "{")
	name, closed := strings.CutSuffix(name, "}")
	return name, opened && closed && Plain(name)
}
