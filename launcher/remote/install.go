package remote

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// install puts a program where bootstrap's text puts it on other hosts, below the user's
// cache and named by its content, unless it is there. A file is written whole or not at
// all.
func install(name string, b Binary) (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	folder := filepath.Join(cache, "muster", "bin")
	path = filepath.Join(folder, name+"-"+b.Hash)
	if info, err := os.Stat(path); err == nil && info.Size() == b.Size {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	if err := unpack(b, path); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

func unpack(b Binary, path string) error {
	content, err := b.Unpacked()
	if err != nil {
		return err
	}
	defer content.Close()
	file, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o700))
	if err != nil {
		return err
	}
	defer file.Cleanup()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}
