//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Source is the name of this prober in what it finds.
const Source = "nvml"

// driverFolder is where the driver lists the GPUs that it has taken, lost ones too.
const driverFolder = "/proc/driver/nvidia/gpus"

// Prober is the GPUProber over NVML.
type Prober struct {
	lib    nvml.Interface // nil: not found yet
	path   string         // of the library; empty: looked for
	folder string         // driverFolder
	turn   chan struct{}  // holds one token while somebody probes
	known  []identity     // of the last probe, by index
	watch  *watch         // nil: nobody watches

	sampling *sampling // nil before the first Sample
}

var _ gpu.Prober = (*Prober)(nil)

// New returns a prober over a library that is at hand, such as one of go-nvml's mocks.
func New(lib nvml.Interface) *Prober {
	return &Prober{lib: lib, folder: driverFolder, turn: make(chan struct{}, 1)}
}

// Open returns a prober over the library at a path, or, with none, over the machine's
// libnvidia-ml.so.1. The first probe that finds it loads it.
func Open(path string) *Prober {
	p := New(nil)
	p.path = path
	return p
}

// Probe calls nvmlInit, reads all and calls nvmlShutdown. Probes take turns. The context is
// checked between GPUs: it does not end a call that hangs in the driver.
func (p *Prober) Probe(ctx context.Context) (*gpu.Inventory, error) {
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	if err := p.start(); err != nil {
		return nil, err
	}
	defer p.lib.Shutdown()
	return p.read(ctx)
}

func (p *Prober) takeTurn(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Prober) endTurn() { <-p.turn }

// start finds the library, where that was not done, and calls nvmlInit, which counts.
func (p *Prober) start() error {
	if p.lib == nil {
		lib, err := load(p.path)
		if err != nil {
			return err
		}
		p.lib = lib
	}
	if ret := p.lib.Init(); ret != nvml.SUCCESS {
		return initError(ret)
	}
	return nil
}

// initFailures explain why nvmlInit failed and what to do.
var initFailures = map[nvml.Return]string{
	nvml.ERROR_DRIVER_NOT_LOADED:       "the NVIDIA driver is not loaded in the kernel: install it, or load it with modprobe nvidia",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH: "driver in the kernel and its library are of different versions, as after an update: reboot, or reload the kernel module; a process that began before the update must be started again",
	nvml.ERROR_NO_PERMISSION:           "this user may not open the NVIDIA devices: see the owner and mode of /dev/nvidia*",
	nvml.ERROR_UNKNOWN:                 "the NVIDIA library cannot start for a reason unknown to it: in a container the device rules of its cgroup are lost (restart the container), elsewhere reboot",
}

func initError(ret nvml.Return) error {
	if text := initFailures[ret]; text != "" {
		return fmt.Errorf("%s (NVML: %q)", text, ret.Error())
	}
	return fmt.Errorf("the NVIDIA library does not start (NVML: %q)", ret.Error())
}

// probe is one look at the machine.
type probe struct {
	lib    nvml.Interface
	all    *gpu.Inventory
	driver string         // version, for reasons
	names  map[int]string // of processes
	last   nvml.Return    // of the last call by get
}

func (p *Prober) newProbe() *probe {
	all := &gpu.Inventory{Source: Source, GPUs: []gpu.GPU{}, Why: map[string]string{}}
	return &probe{lib: p.lib, names: map[int]string{}, all: all}
}

// read tells all of an initialised NVML.
func (p *Prober) read(ctx context.Context) (*gpu.Inventory, error) {
	r := p.newProbe()
	r.versions()
	devices, err := p.open(r)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d.read()
	}
	r.all.Links = r.links(devices)
	for _, d := range devices {
		d.finish()
		r.all.GPUs = append(r.all.GPUs, d.card)
	}
	if len(devices) == 0 {
		r.note("the driver runs and finds no GPU")
	}
	r.all.Explain("NVML does not tell it")
	return r.all, nil
}

// open gets the handles of all GPUs, and finds out which they are.
func (p *Prober) open(r *probe) ([]*device, error) {
	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs (NVML: %q)", ret.Error())
	}
	devices := make([]*device, count)
	for i := range devices {
		devices[i] = r.open(i)
	}
	p.identify(r, devices)
	return devices, nil
}

func (r *probe) note(format string, args ...any) {
	r.all.Notes = append(r.all.Notes, fmt.Sprintf(format, args...))
}

// versions reads nvmlSystemGetDriverVersion and nvmlSystemGetCudaDriverVersion_v2, which fails
// where there is no libcuda; the first version of it makes up a number there.
func (r *probe) versions() {
	r.all.Driver = get(r, r.all.Why, "driver", "nvmlSystemGetDriverVersion", r.lib.SystemGetDriverVersion)
	r.driver = orEmpty(r.all.Driver)
	const symbol = "nvmlSystemGetCudaDriverVersion_v2"
	if number := get(r, r.all.Why, "cuda", symbol, r.lib.SystemGetCudaDriverVersion_v2); number != nil { // 12040 is 12.4
		r.all.CUDA = new(fmt.Sprintf("%d.%d", *number/1000, *number%1000/10))
	}
}
