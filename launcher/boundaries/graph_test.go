package boundaries

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/muster-dev/muster/"

// graph is who imports whom, without tests; this module's packages without its path.
type graph map[string][]string

// listed is what the go command says of a package.
type listed struct {
	ImportPath string
	Imports    []string
	ImportMap  map[string]string
	Error      *struct{ Err string }
}

// load asks the go command for everything that this module's packages import on the
// platforms that it is built for, with the tags that the Makefile builds with.
func load(t *testing.T) graph {
	t.Helper()
	g := graph{}
	for _, platform := range []string{"linux", "darwin"} {
		cmd := exec.Command("go", "list", "-e", "-deps", "-tags=grpcnotrace,urfave_cli_no_docs", "-json=ImportPath,Imports,ImportMap,Error", "./...")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "GOOS="+platform, "CGO_ENABLED=0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
		}
		if err := g.read(bytes.NewReader(out)); err != nil {
			t.Fatalf("go list for %s: %v", platform, err)
		}
	}
	return g
}

func (g graph) read(list io.Reader) error {
	for decoder := json.NewDecoder(list); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// A folder with other platforms' files only is listed with an error.
		if p.Error != nil && !strings.Contains(p.Error.Err, "build constraints exclude all Go files") {
			return errors.New(p.Error.Err)
		}
		for _, path := range p.Imports {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			g.add(short(p.ImportPath), short(path))
		}
		g.add(short(p.ImportPath))
	}
}

func (g graph) add(from string, imports ...string) {
	all := append(slices.Clone(g[from]), imports...)
	slices.Sort(all)
	g[from] = slices.Compact(all)
}

func short(path string) string { return strings.TrimPrefix(path, module) }

// own reports whether a package is of this module.
func own(path string) bool { return topLevel[strings.SplitN(path, "/", 2)[0]] }

var topLevel = map[string]bool{"cmd": true, "launcher": true, "rendezvous": true, "plugins": true, "examples": true}

// packages lists this module's packages.
func (g graph) packages() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(g)), func(p string) bool { return !own(p) })
}

// textPackage writes numbers and names; it imports nothing of this module, and anybody may import it.
const textPackage = "launcher/internal/text"

// matching lists the packages that a pattern stands for.
func (g graph) matching(pattern string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(g)), func(p string) bool { return !matches(pattern, p) })
}

func matches(pattern, path string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// path returns the shortest way of imports from a package to one of the patterns, nil
// where there is none. The go command's own "C" and "unsafe" lead nowhere.
func (g graph) path(from string, patterns []string, direct bool) []string {
	came := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g[queue[0]] {
			if _, seen := came[next]; seen {
				continue
			}
			came[next] = queue[0]
			if next == textPackage {
				continue
			}
			if matchesAny(patterns, next) {
				return walk(came, next)
			}
			if !direct {
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func walk(came map[string]string, to string) []string {
	var way []string
	for ; to != ""; to = came[to] {
		way = append(way, to)
	}
	slices.Reverse(way)
	return way
}

// violations says where the graph breaks a rule.
func (r rule) violations(g graph) []string {
	var found []string
	for _, pattern := range r.from {
		for _, from := range g.matching(pattern) {
			if way := g.path(from, r.not, r.direct); way != nil {
				found = append(found, fmt.Sprintf("%s\n    but %s", strings.Join(way, " -> "), r.why))
			}
		}
	}
	return found
}

// violations says who imports a package and may not.
func (o only) violations(g graph) []string {
	var found []string
	for _, from := range g.packages() {
		if matches(o.target, from) || matchesAny(o.by, from) {
			continue
		}
		if way := g.path(from, []string{o.target}, true); way != nil {
			found = append(found, fmt.Sprintf("%s\n    but only %s may: %s", strings.Join(way, " -> "), strings.Join(o.by, ", "), o.why))
		}
	}
	return found
}
