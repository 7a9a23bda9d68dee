package agent

import (
	"bufio"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/sampling"
)

// samplesMain prints what was kept of this host's samples of a run, also while it goes on:
// a line for each period, the oldest first, as fine as it was kept.
func samplesMain(_, args []string) error {
	flags := flag.NewFlagSet("samples", flag.ContinueOnError)
	run := flags.String("run", "", "id of the run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	endWithAsker()
	dir, err := findState(*run, sampling.FileName)
	if err != nil || dir == "" {
		return err
	}
	series, err := samples.Read(filepath.Join(dir, sampling.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for _, line := range series.Lines() {
		if _, err := out.Write(append(message.Encode(line), '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
