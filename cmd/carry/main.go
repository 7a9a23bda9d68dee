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
		programs := []string{"muster-agent"}
		if platform != runtime.GOOS+"/"+runtime.GOARCH {
			programs = append(programs, "muster") // the coordinator; here the launcher itself serves
		}
		for _, program := range programs {
			entry, err := how.pack(into, program, platform)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", program, platform, err)
			}
			if index[program] == nil {
				index[program] = map[string]packed{}
			}
			index[program][platform] = entry
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, "index.json"), text, 0o644)
}

func (b build) pack(into, program, platform string) (packed, error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return packed{}, fmt.Errorf("a platform is written OS/ARCH")
	}
	file := filepath.Join(into, program+"-"+goos+"-"+goarch)
	cmd := exec.Command("go", "build", "-trimpath", "-tags", b.tags, "-ldflags", b.ldflags, "-o", file, "./cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
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
