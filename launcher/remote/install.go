package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	if err := unpack(b, folder, path); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

func unpack(b Binary, folder, path string) (err error) {
	content, err := b.Unpacked()
	if err != nil {
		return err
	}
	defer content.Close()
	file, err := os.CreateTemp(folder, ".new")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Chmod(0o700), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
