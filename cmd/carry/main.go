// Command carry builds the programs that muster puts on hosts and packs them where
// muster's own build embeds them. The Makefile calls it.
//
//	go run ./cmd/carry -into cmd/muster/carried -tags "..." -ldflags "..." linux/amd64 linux/arm64
package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// build is how programs are built.
type build struct{ tags, ldflags string }

// packed is an entry of the index, as launcher/remote reads it.
type packed struct {
	Hash string `json:"hash"`
	Size int64  `json:"size"`
}

func main() {
	into := flag.String("into", "", "folder to fill")
	var how build
	flag.StringVar(&how.tags, "tags", "", "for the compiler")
	flag.StringVar(&how.ldflags, "ldflags", "", "for the linker")
	flag.Parse()
	if err := carry(*into, how, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "carry:", err)
		os.Exit(1)
	}
}

func carry(into string, how build, platforms []string) error {
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	index := map[string]map[string]packed{}
	for _, platform := range platforms {
		list, err := programs(platform)
		if err != nil {
			return err
		}
		for _, program := range list {
			entry, err := how.pack(into, program, platform)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", program.name, platform, err)
			}
			if index[program.name] == nil {
				index[program.name] = map[string]packed{}
			}
			index[program.name][platform] = entry
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, "index.json"), text, 0o644)
}

// program is one that is carried.
type program struct {
	name string
	tags string   // besides those of all
	env  []string // of the compiler
}

// programs are those for hosts of a kind.
func programs(platform string) ([]program, error) {
	list := []program{{name: "muster-agent", env: []string{"CGO_ENABLED=0"}}}
	if platform != runtime.GOOS+"/"+runtime.GOARCH {
		list = append(list, program{name: "muster", env: list[0].env}) // the coordinator; here the launcher itself serves
	}
	c := compilerFor(platform)
	if c == nil {
		fmt.Fprintf(os.Stderr, "no C compiler for %s: hosts of that kind are probed by nvidia-smi\n", platform)
		return list, nil
	}
	plugin, err := nvmlPlugin(platform, c)
	return append(list, plugin), err
}

func (b build) pack(into string, p program, platform string) (packed, error) {
	file := filepath.Join(into, p.name+"-"+strings.ReplaceAll(platform, "/", "-"))
	if err := b.build(p, platform, file); err != nil {
		return packed{}, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return packed{}, err
	}
	if err := os.Remove(file); err != nil {
		return packed{}, err
	}
	sum := sha256.Sum256(content)
	return packed{Hash: hex.EncodeToString(sum[:]), Size: int64(len(content))}, compress(file+".gz", content)
}

func (b build) build(p program, platform, file string) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("a platform is written OS/ARCH")
	}
	cmd := exec.Command("go", "build", "-trimpath", "-tags", b.tags+","+p.tags, "-ldflags", b.ldflags, "-o", file, "./cmd/"+p.name)
	cmd.Env = append(append(os.Environ(), p.env...), "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func compress(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	return w.Close()
}
