//go:build linux && cgo

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/muster-dev/muster/plugins/nvidia"
)

// NotFoundError says that the library is in none of these places, or cannot be loaded.
type NotFoundError struct {
	Looked  []string // places where it is not
	Refused []string // the loader's words about those that are there and do not load
}

// shownPlaces is how many places an error names one by one.
const shownPlaces = 3

func (e *NotFoundError) Error() string {
	places := strings.Join(e.Looked, ", ")
	if n := len(e.Looked); n > shownPlaces+1 {
		places = fmt.Sprintf("%s and %d more usual places", strings.Join(e.Looked[:shownPlaces], ", "), n-shownPlaces)
	}
	if len(e.Refused) > 0 {
		return "cannot load " + nvidia.Library + ": " + strings.Join(e.Refused, "; ") + "; also looked in " + places
	}
	return "no " + nvidia.Library + ", which comes with the NVIDIA driver; looked in " + places +
		"; LD_LIBRARY_PATH leads muster to another"
}

// load finds the library: at a path, or where the loader finds it, which reads
// LD_LIBRARY_PATH itself, or in the usual places.
func load(path string) (nvml.Interface, error) {
	if path != "" {
		if err := try(path); err != nil {
			return nil, fmt.Errorf("load the NVIDIA library: %w", err)
		}
		return nvml.New(nvml.WithLibraryPath(path)), nil
	}
	failure := &NotFoundError{}
	if lib := failure.open(nvidia.Library, "the loader's own places"); lib != nil {
		return lib, nil
	}
	if paths := os.Getenv("LD_LIBRARY_PATH"); paths != "" {
		failure.Looked = append(failure.Looked, "LD_LIBRARY_PATH="+paths)
	}
	for _, folder := range nvidia.LibraryFolders {
		if lib := failure.open(filepath.Join(folder, nvidia.Library), folder); lib != nil {
			return lib, nil
		}
	}
	return nil, failure
}

// open loads one candidate, nil where there is none. The loader says the same of a file
// that is not there and of one whose own libraries are not, so paths are checked.
func (e *NotFoundError) open(path, place string) nvml.Interface {
	err := try(path)
	if err == nil {
		return nvml.New(nvml.WithLibraryPath(path))
	}
	_, missing := os.Stat(path)
	if filepath.IsAbs(path) && missing == nil ||
		!filepath.IsAbs(path) && !strings.HasPrefix(err.Error(), nvidia.Library+": cannot open shared object file") {
		e.Refused = append(e.Refused, err.Error())
	} else {
		e.Looked = append(e.Looked, place)
	}
	return nil
}

// try loads a library as go-nvml does, to have the loader's words, which that keeps to
// itself.
func try(path string) error {
	library := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := library.Open(); err != nil {
		return err
	}
	return library.Close()
}
