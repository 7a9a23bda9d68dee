// Package hook carries the Python files by which torch's own numbers of GPU memory come to muster without a change to
// the program: a sitecustomize that Python imports when it starts, and what it sets up. It knows where to put them, and
// nothing of who asks.
//
// They are tested with Python 2.7 (where they do nothing) and 3.6 to 3.13, and tell
//
//   - once, that Python has started, and once that torch is imported and whether it is built
//     for CUDA;
//   - once a second, while the process has CUDA initialised by torch, what changed of
//     torch.cuda.memory_stats;
//   - what an allocation that failed had asked for, where torch can be asked to tell.
//
// No thread runs before the program has initialised CUDA by torch, and nothing here ever initialises it. What goes
// wrong is told to muster, once, and to nobody else.
package hook

import (
	_ "embed" // for the files
	"fmt"
	"os"
	"path/filepath"
)

//go:embed sitecustomize.py
var sitecustomize []byte

//go:embed muster_observe.py
var observer []byte

// SnapshotVariable names the beginning of paths that the hook writes memory snapshots to; without it there are none.
const SnapshotVariable = "MUSTER_TORCH_SNAPSHOT"

// Write puts the files into a folder, which it makes. The folder belongs first into PYTHONPATH.
func Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the hook for torch: %w", err)
	}
	for name, text := range map[string][]byte{"sitecustomize.py": sitecustomize, "muster_observe.py": observer} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write the hook for torch: %w", err)
		}
	}
	return nil
}

// PythonPath is a PYTHONPATH with the folder first; an empty entry would mean the working folder.
func PythonPath(dir, before string) string {
	if before == "" {
		return dir
	}
	return dir + string(os.PathListSeparator) + before
}
