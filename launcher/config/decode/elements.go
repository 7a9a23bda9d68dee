package decode

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
)

// Elements are those of an argument that is a list, not yet evaluated where the list is
// written out. ok is false where it is no list; what it is then, the caller reports.
func (a *Arg) Elements() (found []*Arg, ok bool) {
	if a == nil {
		return nil, false
	}
	if tuple, written := expr.Unwrap(a.Expr).(*hclsyntax.TupleConsExpr); written && !a.evaluated {
		for _, e := range tuple.Exprs {
			found = append(found, &Arg{Name: a.Name, NameAt: a.NameAt, At: e.Range(), Expr: e, file: a.file, parent: a})
		}
		return found, true
	}
	value, ok := a.Get()
	if !ok || !expr.IsList(value) {
		return nil, false
	}
	for it := value.ElementIterator(); it.Next(); {
		_, v := it.Element()
		found = append(found, part(a, v))
	}
	return found, true
}

// Texts are the elements of a list that are texts. Where it is no list, list says what it should
// be; element is what each of it is.
func Texts(a *Arg, list, element string) (found []*Arg) {
	elements, ok := a.Elements()
	if !ok && a.IsSet() {
		a.Error("Wrong type", "%s, not %s.", list, a.Describe())
	}
	for _, e := range elements {
		if _, isText := e.Word(); isText {
			found = append(found, e)
		} else if !e.Wrong() {
			e.Error("Wrong type", "%s is text in quotes, not %s.", element, e.Describe())
		}
	}
	return found
}

// part is an element that has no place of its own.
func part(a *Arg, value cty.Value) *Arg {
	element := &Arg{Name: a.Name, NameAt: a.NameAt, At: a.At, Expr: a.Expr, file: a.file, parent: a}
	element.value, element.ok, element.evaluated = value, true, true
	return element
}

// IsEmptyList reports whether the argument is not written as a list with elements.
func (a *Arg) IsEmptyList() bool {
	tuple, ok := expr.Unwrap(a.Expr).(*hclsyntax.TupleConsExpr)
	return !ok || len(tuple.Exprs) == 0
}

// Entry is an entry of an object.
type Entry struct {
	Name  string
	At    hcl.Range // of all of it, where it is written out
	Value *Arg      // named as the entry is
}

// Entries are those of an argument that is an object. Of entries with one name the first is
// taken; repeated says what is wrong then, with the name and the first place put into it. ok
// is false where it is no object; what it is then, the caller reports.
func (a *Arg) Entries(repeated, detail string) (found []Entry, ok bool) {
	if a == nil {
		return nil, false
	}
	if object, written := expr.Unwrap(a.Expr).(*hclsyntax.ObjectConsExpr); written {
		return writtenEntries(a, object, repeated, detail), true
	}
	value, ok := a.Get()
	if !ok || !expr.IsObject(value) {
		return nil, false
	}
	for it := value.ElementIterator(); it.Next(); {
		key, v := it.Element()
		entry := Entry{key.AsString(), a.At, part(a, v)}
		entry.Value.Name, entry.Value.NameAt = entry.Name, a.At
		found = append(found, entry)
	}
	return found, true
}

func writtenEntries(a *Arg, object *hclsyntax.ObjectConsExpr, repeated, detail string) (found []Entry) {
	for _, item := range object.Items {
		key := &Arg{At: item.KeyExpr.Range(), Expr: item.KeyExpr, file: a.file, parent: a}
		value := &Arg{At: item.ValueExpr.Range(), Expr: item.ValueExpr, file: a.file, parent: a}
		value.Value()
		name, ok := key.Scalar()
		if !ok {
			continue
		}
		i := slices.IndexFunc(found, func(e Entry) bool { return e.Name == name })
		if i >= 0 {
			a.blame()
			first := found[i].At
			a.file.ErrorAlso(key.At, first, repeated, detail, name, first)
			continue
		}
		value.Name, value.NameAt = name, key.At
		found = append(found, Entry{name, hcl.RangeBetween(key.At, value.At), value})
	}
	return found
}

// Words are the words of a program, or of what else is given to one: of names it. ok is false
// where there is no list.
func Words(a *Arg, of string) (words []string, ok bool) {
	elements, isList := a.Elements()
	if !isList {
		noWordList(a)
		return nil, false
	}
	for _, e := range elements {
		if _, ok := e.Value(); ok {
			words = append(words, CommandWord(e, of))
		}
	}
	return words, true
}

// MaxArgument is what Linux takes as one argument or variable, with the NUL at its end:
// MAX_ARG_STRLEN.
const MaxArgument = 128 << 10

// CommandWord is one word of what is given to a program: of names that.
func CommandWord(a *Arg, of string) string {
	word, ok := a.Scalar()
	switch value, _ := a.Value(); {
	case value.IsNull():
		a.Error("Wrong type", "A word of %s cannot be null: write \"null\" for the text, or leave it out.", of)
	case !ok:
		a.Error("Wrong type",
			"A word of %s is text, a number, true or false, not %s: use jsonencode(...) to pass it as one word, concat([...], ...) to insert its elements.", of, a.Describe())
	case len(word) >= MaxArgument:
		a.Error("Value too long", "A word of %s has %d bytes; Linux takes at most %d. Pass it in a file.", of, len(word), MaxArgument-1)
	case strings.ContainsRune(word, 0):
		a.Error("NUL in a string", "A word of %s holds a NUL character, which no program can be given.", of)
	}
	return word
}

// noWordList reports words of a program that are no list.
func noWordList(a *Arg) {
	value, ok := a.Value()
	word, isText := a.Word()
	switch {
	case !ok:
	case value.IsNull():
		a.Error("Wrong type", "%s is a list of words, not null.", a.Name)
	case isText && a.Name != "command":
		a.Error("Wrong type", "%s is a list of words, as no shell reads it: write [%s].", a.Name, diagnostic.Quoted(word))
	case isText:
		a.Error("Wrong type", "command is a list of words, as no shell reads it: %s. For a shell write [\"bash\", \"-c\", %s].", listOf(word), diagnostic.Quoted(word))
	default:
		a.Error("Wrong type", "%s is a list of words such as [\"python\", \"train.py\"], not %s.", a.Name, a.Describe())
	}
}

func listOf(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > 8 || strings.ContainsAny(line, "'\"\\$`|&;<>()*?") {
		return `write ["python", "train.py"]`
	}
	for i, word := range words {
		words[i] = diagnostic.Quoted(word)
	}
	return "write [" + strings.Join(words, ", ") + "]"
}
