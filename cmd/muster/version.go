package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/muster-dev/muster/launcher/version"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "say which muster this is, and which hosts it can start programs on",
		Action: func(c *cli.Context) error {
			fmt.Printf("muster %s (%s, %s/%s)\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			programs, err := carriedPrograms()
			if err != nil {
				return err
			}
			for _, p := range programs.Platforms("muster-agent") {
				fmt.Printf("hosts: %s/%s\n", p[0], p[1])
			}
			return nil
		},
	}
}
