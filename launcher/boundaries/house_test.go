package boundaries

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Limits of size, and why: a type that one person can hold in his head, a package that one
// person can own, a line that two windows side by side can show.
const (
	maxMethods = 25
	maxFields  = 20
	maxPackage = 1500
	maxColumns = 120
)

// largerPackages may have more lines than maxPackage, each for a reason. There are five at
// most, and at most two of them have more than 3,000 lines.
var largerPackages = map[string]string{
	"launcher/config": "the blocks of one language, whose settings refer to each other",
	"launcher/remote": "connecting, logging in, installing and starting share the state of one connection",
}

// source is the product's own Go code, without tests, testbeds and generated code.
type source struct {
	fset  *token.FileSet
	files map[string]*ast.File // by path below the module
	text  map[string]string
}

// notProduct are folders whose code is no part of what users run.
var notProduct = []string{
	"launcher/testbed", "launcher/gpucheck", "launcher/bench", "launcher/endtoend", "launcher/faulttest",
	"launcher/torchtest", "launcher/boundaries", "launcher/view/viewtest", "cmd/carry", "cmd/gotest", "examples",
}

func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{token.NewFileSet(), map[string]*ast.File{}, map[string]string{}}
	for _, top := range []string{"cmd", "launcher", "rendezvous", "plugins"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
			if entry.IsDir() && slices.Contains(notProduct, name) {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			return s.read(path, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *source) read(path, name string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(s.fset, name, text, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	s.files[name], s.text[name] = file, string(text)
	return nil
}

func TestHouse_TypesAndPackagesStaySmall(t *testing.T) {
	s := readSource(t)
	for name, n := range s.methods() {
		if n > maxMethods {
			t.Errorf("%s has %d methods, more than %d: part it into components with their own state", name, n, maxMethods)
		}
	}
	for name, n := range s.fields() {
		if n > maxFields {
			t.Errorf("%s has %d fields, more than %d: group those that belong together", name, n, maxFields)
		}
	}
	huge := 0
	for name, n := range s.lines() {
		if n > 2*maxPackage {
			huge++
		}
		if n > maxPackage && largerPackages[name] == "" {
			t.Errorf("%s has %d lines, more than %d", name, n, maxPackage)
		}
	}
	for name := range largerPackages {
		if s.lines()[name] <= maxPackage {
			t.Errorf("%s is excepted and need not be", name)
		}
	}
	if huge > 2 || len(largerPackages) > 5 {
		t.Errorf("%d packages have more than %d lines and %d are excepted", huge, 2*maxPackage, len(largerPackages))
	}
}

// methods counts the methods of each type.
func (s *source) methods() map[string]int {
	count := map[string]int{}
	for name, file := range s.files {
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Recv == nil {
				continue
			}
			receiver := f.Recv.List[0].Type
			if star, is := receiver.(*ast.StarExpr); is {
				receiver = star.X
			}
			if index, is := receiver.(*ast.IndexExpr); is {
				receiver = index.X
			}
			count[filepath.Dir(name)+"."+fmt.Sprint(receiver)]++
		}
	}
	return count
}

// fields counts the fields of each named struct, embedded ones as one.
func (s *source) fields() map[string]int {
	count := map[string]int{}
	s.structs(func(name string, fields *ast.FieldList) {
		for _, f := range fields.List {
			count[name] += max(len(f.Names), 1)
		}
	})
	return count
}

func (s *source) structs(visit func(name string, fields *ast.FieldList)) {
	for path, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			if body, is := spec.Type.(*ast.StructType); is {
				visit(filepath.Dir(path)+"."+spec.Name.Name, body.Fields)
			}
			return true
		})
	}
}

func (s *source) lines() map[string]int {
	count := map[string]int{}
	for name, text := range s.text {
		count[filepath.Dir(name)] += strings.Count(text, "\n")
	}
	return count
}

// A line that is one long string, or ends in one, cannot be broken without tearing a message
// that people search for.
func TestHouse_LinesFitTheScreen(t *testing.T) {
	for name, text := range readSource(t).text {
		for i, line := range strings.Split(text, "\n") {
			shown := strings.ReplaceAll(line, "\t", "    ")
			if n := len([]rune(shown)); n > maxColumns && !strings.ContainsAny(line, "\"`") {
				t.Errorf("%s:%d: %d columns, more than %d", name, i+1, n, maxColumns)
			}
		}
	}
}

// copies are pairs of structs whose JSON forms are alike and which are no copies of each
// other, each with the reason.
var copies = map[string]string{
	"launcher/event.Event launcher/message.Started":              "a line of the journal, and an agent's message: each has its own life",
	"launcher/message.Started launcher/view/runs.statusRankJSON": "a contract with scripts does not follow a message between parts",
	"launcher/samples.Holder launcher/view/runs.otherJSON":       "a contract with scripts, which has every key at all times",
	"launcher/view/plans.diffJSON launcher/view/plans.planJSON":  "they share the keys of every answer, and nothing else",
	"plugins/gpu.GPU plugins/gpu.Sample":                         "two messages of the plug-in contract, one of which is read each second",
}

// Two structs with the same JSON fields must be kept alike by hand: embed one in the other,
// or use one for both.
func TestHouse_NoStructIsACopyOfAnother(t *testing.T) {
	shapes := map[string]map[string]bool{}
	readSource(t).structs(func(name string, fields *ast.FieldList) {
		for _, f := range fields.List {
			if f.Tag == nil || len(f.Names) == 0 {
				continue
			}
			key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			if key == "" || key == "-" {
				continue
			}
			if shapes[name] == nil {
				shapes[name] = map[string]bool{}
			}
			shapes[name][key] = true
		}
	})
	names := slices.Sorted(maps.Keys(shapes))
	for i, a := range names {
		for _, b := range names[i+1:] {
			same := 0
			for key := range shapes[a] {
				if shapes[b][key] {
					same++
				}
			}
			smaller := min(len(shapes[a]), len(shapes[b]))
			if same >= 4 && same*4 >= smaller*3 && copies[a+" "+b] == "" {
				t.Errorf("%s and %s share %d of %d JSON fields", a, b, same, smaller)
			}
		}
	}
}

// Only rules judge: a finding is made in launcher/check, and elsewhere passed on.
func TestHouse_OnlyChecksCreateFindings(t *testing.T) {
	s := readSource(t)
	for path, file := range s.files {
		if strings.HasPrefix(path, "launcher/check/") || strings.HasPrefix(path, "launcher/report/") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			made, is := n.(*ast.CompositeLit)
			if !is || len(made.Elts) == 0 {
				return true
			}
			if name, is := made.Type.(*ast.SelectorExpr); is && name.Sel.Name == "Finding" {
				t.Errorf("%s creates a finding; only launcher/check does", s.fset.Position(made.Pos()))
			}
			return true
		})
	}
}

// avoided are words that identifiers do not use, with those that the field uses; the glossary
// in launcher/README.md has more.
var avoided = map[string]string{
	"anew": "again", "astray": "misplaced", "bury": "report exit", "deaf": "unsupported, unavailable",
	"ears": "driver events", "heed": "handle", "leash": "keeper connection", "mend": "fix",
	"most": "max (for a limit)", "notebook": "history", "scenery": "baseline", "tug": "keeper message",
	"wish": "request", "words": "what the function returns: describe..., ...Text", "brain": "run, machine",
	"door": "listener", "orders": "commands", "news": "updates",
}

func TestHouse_IdentifiersUseTheFieldsWords(t *testing.T) {
	s := readSource(t)
	for path, file := range s.files {
		for _, id := range declared(file) {
			if better := betterWord(id.Name); better != "" {
				t.Errorf("%s: %s: say %s", s.fset.Position(id.Pos()), id.Name, better)
			}
		}
		name := strings.TrimSuffix(filepath.Base(path), ".go")
		for word := range strings.SplitSeq(name, "_") {
			if better := avoided[word]; better != "" {
				t.Errorf("%s: a file named %s: say %s", path, word, better)
			}
		}
	}
}

// avoidedInMessages are words that no text for people has: they are private to old code.
var avoidedInMessages = []string{"astray", "deaf", "leash", "scenery"}

func TestHouse_MessagesUseTheFieldsWords(t *testing.T) {
	s := readSource(t)
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			for _, word := range strings.FieldsFunc(literal.Value, func(r rune) bool { return !unicode.IsLetter(r) }) {
				if slices.Contains(avoidedInMessages, strings.ToLower(word)) {
					t.Errorf("%s: a text says %q", s.fset.Position(literal.Pos()), word)
				}
			}
			return true
		})
	}
}

// betterWord is what to say in place of a word of an identifier; "": it is well named.
func betterWord(name string) string {
	for i, word := range split(name) {
		better := avoided[word]
		if better == "" || word == "most" && i > 0 || word == "words" && i == 0 {
			continue
		}
		return better
	}
	return ""
}

// declared are the names of a file's functions, methods, types, constants, variables, fields
// and parameters.
func declared(file *ast.File) []*ast.Ident {
	var found []*ast.Ident
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = append(found, n.Name)
		case *ast.TypeSpec:
			found = append(found, n.Name)
		case *ast.ValueSpec:
			found = append(found, n.Names...)
		case *ast.Field:
			found = append(found, n.Names...)
		}
		return true
	})
	return found
}

// split parts a name into its words, in lower case.
func split(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) {
			words = append(words, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return words
}
