//go:build linux && cgo

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Library is the file name of NVML; the name without ".1" comes with the toolkit and is a
// stub.
const Library = "libnvidia-ml.so.1"

// usualPlaces are where drivers put the library without telling the loader.
var usualPlaces = []string{
	"/usr/lib/" + triplet, "/lib/" + triplet, "/usr/lib64", "/usr/lib",
	"/usr/lib/nvidia", "/usr/lib64/nvidia", "/usr/lib/" + triplet + "/nvidia/current",
	"/usr/lib/wsl/lib",                    // WSL
	"/usr/local/nvidia/lib64",             // containers of some clouds
	"/opt/nvidia/lib64", "/opt/lib/lib64", // container-optimised systems
	"/run/nvidia/driver/usr/lib/" + triplet, "/run/nvidia/driver/usr/lib64", // driver in a container of the GPU operator
	"/run/opengl-driver/lib", // NixOS
}

var triplet = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]

// NotFoundError says that the library is in none of these places, or cannot be loaded.
type NotFoundError struct {
	Looked  []string // places where it is not
	Refused []string // the loader's words about those that are there and do not load
}

func (e *NotFoundError) Error() string {
	if len(e.Refused) > 0 {
		return "cannot load " + Library + ": " + strings.Join(e.Refused, "; ") + "; also looked in " + e.places()
	}
	return "no " + Library + ", which comes with the NVIDIA driver; looked in " + e.places() +
		"; LD_LIBRARY_PATH leads muster to another"
}

// shownPlaces is how many places an error names one by one.
const shownPlaces = 3

func (e *NotFoundError) places() string {
	if n := len(e.Looked); n > shownPlaces+1 {
		return fmt.Sprintf("%s and %d more usual places", strings.Join(e.Looked[:shownPlaces], ", "), n-shownPlaces)
	}
	return strings.Join(e.Looked, ", ")
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
	if lib := failure.open(Library, "the loader's own places"); lib != nil {
		return lib, nil
	}
	if paths := os.Getenv("LD_LIBRARY_PATH"); paths != "" {
		failure.Looked = append(failure.Looked, "LD_LIBRARY_PATH="+paths)
	}
	for _, folder := range usualPlaces {
		file := filepath.Join(folder, Library)
		if lib := failure.open(file, folder); lib != nil {
			return lib, nil
		}
	}
	return nil, failure
}

// open loads one candidate, nil where there is none. The loader says the same of a file
// that is not there and of one whose own libraries are not, so paths are looked at.
func (e *NotFoundError) open(path, place string) nvml.Interface {
	err := try(path)
	if err == nil {
		return nvml.New(nvml.WithLibraryPath(path))
	}
	missing := strings.HasPrefix(err.Error(), Library+": cannot open shared object file")
	if filepath.IsAbs(path) {
		_, missingErr := os.Stat(path)
		missing = missingErr != nil
	}
	if missing {
		e.Looked = append(e.Looked, place)
	} else {
		e.Refused = append(e.Refused, err.Error())
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
