//go:build carry

package main

import (
	"embed"
	"io/fs"
)

// The Makefile fills the folder just before it builds with this tag.
//
//go:embed carried
var carriedFiles embed.FS

func carried() fs.FS {
	files, err := fs.Sub(carriedFiles, "carried")
	if err != nil {
		panic("the folder is embedded under this name: " + err.Error())
	}
	return files
}
