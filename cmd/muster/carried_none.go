//go:build !carry

package main

import (
	"embed"
	"io/fs"
)

// carried is empty in a build by go run or go install: this binary itself then serves
// hosts of its own platform.
func carried() fs.FS { return embed.FS{} }
