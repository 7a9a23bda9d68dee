package external

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
	"github.com/muster-dev/muster/plugins/gpu"
)

// The test binary is also every plugin, and a host: it plays what its first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		play(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(part string, args []string) {
	switch part {
	case "silent":
		stay()
	case "prints":
		fmt.Println(strings.Join(args, " "))
	case "prints-and-stays":
		fmt.Println(strings.Join(args, " "))
		stay()
	case "says-and-exits":
		fmt.Fprintln(os.Stderr, strings.Join(args[1:], " "))
		code, _ := strconv.Atoi(args[0])
		os.Exit(code)
	case "unconnectable":
		unconnectable()
	case "other-version":
		config := serving(fixed("{}"))
		config.ProtocolVersion = 2
		goplugin.Serve(config)
	case "without-tls":
		os.Unsetenv("PLUGIN_CLIENT_CERT")
		goplugin.Serve(serving(fixed("{}")))
	case "answers":
		goplugin.Serve(serving(fixed(args[0])))
	case "answers-much":
		n, _ := strconv.Atoi(args[1])
		goplugin.Serve(serving(fixed(strings.Repeat(args[0], n))))
	case "samples":
		Serve("played", sampler{prober("good"), nil})
	case "samples-of-eight":
		Serve("played", sampler{prober("good"), eight()})
	case "watches", "hangs-in-watch", "exits-in-watch", "refuses-to-watch":
		Serve("played", &watcher{part: part})
	case "tells":
		goplugin.Serve(serving(fixed(args[0])))
	case "host":
		host(args)
	default:
		Serve("played", prober(part))
	}
}

// unconnectable says that it listens, and never accepts.
func unconnectable() {
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	fmt.Printf("1|%d|unix|%s|grpc|\n", ProtocolVersion, path)
	stay()
}

// fixed is a server that answers with these bytes.
type fixed string

func (f fixed) Probe(context.Context, *pluginpb.ProbeRequest) (*pluginpb.ProbeReply, error) {
	return &pluginpb.ProbeReply{Gpus: []byte(f)}, nil
}

func (f fixed) Watch(context.Context, *pluginpb.WatchRequest) (*pluginpb.WatchReply, error) {
	return &pluginpb.WatchReply{Events: []byte(f)}, nil
}

type anyServer struct {
	pluginpb.UnimplementedPluginServer
	fixed
}

func (a anyServer) Probe(ctx context.Context, r *pluginpb.ProbeRequest) (*pluginpb.ProbeReply, error) {
	return a.fixed.Probe(ctx, r)
}

func (a anyServer) Watch(ctx context.Context, r *pluginpb.WatchRequest) (*pluginpb.WatchReply, error) {
	return a.fixed.Watch(ctx, r)
}

// watcher begins to watch at the first call, as all do, and then plays its part.
type watcher struct {
	part  string
	calls int
}

func (w *watcher) Probe(context.Context) (*gpu.Inventory, error) { return pair(), nil }

func (w *watcher) WatchEvents(_ context.Context, wait time.Duration) (*gpu.Events, error) {
	if w.calls++; w.calls == 1 && w.part != "refuses-to-watch" {
		return &gpu.Events{Events: []gpu.Event{}, Unsupported: map[string]string{"GPU-b": "not supported by this GPU"}}, nil
	}
	switch w.part {
	case "hangs-in-watch":
		stay()
	case "exits-in-watch":
		fmt.Fprintln(os.Stderr, "cannot go on")
		syscall.Kill(os.Getpid(), syscall.SIGABRT)
		stay()
	case "refuses-to-watch":
		return nil, errors.New("the driver is too old for it")
	}
	return &gpu.Events{Events: []gpu.Event{
		{Kind: gpu.EventXid, UUID: "GPU-a", PCI: "0000:0f:00.0", Xid: 79, At: 12.5, Text: wait.String()}, {Kind: "of-tomorrow"},
	}}, nil
}

func serving(f fixed) *goplugin.ServeConfig {
	return &goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{service: &adapter{server: anyServer{fixed: f}}},
		GRPCServer:      func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
	}
}

type proberFunc func(ctx context.Context) (*gpu.Inventory, error)

func (f proberFunc) Probe(ctx context.Context) (*gpu.Inventory, error) { return f(ctx) }

// sampler tells samples too: those that it has or, without any, how often it was asked as the
// memory in use.
type sampler struct {
	gpu.Prober
	has *gpu.Samples
}

var sampled uint64

func (s sampler) Sample(context.Context) (*gpu.Samples, error) {
	if s.has != nil {
		return s.has, nil
	}
	sampled++
	used := sampled
	return &gpu.Samples{GPUs: []gpu.Sample{{UUID: "GPU-a", State: gpu.StateOK, Memory: gpu.Memory{Used: &used}}}}, nil
}

// pair is two GPUs.
func pair() *gpu.Inventory {
	return &gpu.Inventory{
		GPUs: []gpu.GPU{
			{Index: 0, UUID: "GPU-a", PCI: "0000:0f:00.0", Name: "A", State: gpu.StateOK},
			{Index: 1, UUID: "GPU-b", PCI: "0000:10:00.0", Name: "A", State: gpu.StateOK},
		},
		Links: [][]gpu.Link{{"X", "NV1"}, {"NV1", "X"}},
		Notes: []string{strconv.Itoa(os.Getpid())},
	}
}

func prober(part string) gpu.Prober {
	return proberFunc(func(ctx context.Context) (*gpu.Inventory, error) {
		switch part {
		case "good":
			return pair(), nil
		case "refuses":
			return nil, errors.New("no driver is loaded")
		case "panics":
			panic("the prober is broken")
		case "exits":
			fmt.Fprintln(os.Stderr, "cannot go on")
			syscall.Kill(os.Getpid(), syscall.SIGABRT)
			stay()
		case "hangs":
			stay()
		case "stops":
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			stay()
		case "hangs-with-child":
			grandchild()
			stay()
		case "prints-much":
			raw := os.NewFile(1, "stdout")
			for range 200 {
				fmt.Fprintln(raw, strings.Repeat("x", 5000))
				fmt.Fprintln(os.Stdout, strings.Repeat("y", 5000))
				fmt.Fprintln(os.Stderr, strings.Repeat("z", 5000))
			}
			return pair(), nil
		case "logs-badly":
			syscall.Write(2, []byte("{\"@message\": 1}\n"))
			return pair(), nil
		}
		return nil, fmt.Errorf("no part %q", part)
	})
}

// grandchild starts a process that stays.
func grandchild() int {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}

// host starts a plugin, tells which processes there are, and stays.
func host(args []string) {
	self, _ := os.Executable()
	p := New(Program{Name: "x", Path: self, Args: []string{"play", "good"}, Env: args}, Children{})
	g, err := p.Probe(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.Join(g.Notes, " "))
	stay()
}

// stay is longer than any test waits. A runtime without cgo ends a program in which every
// goroutine waits for another; this one waits for the clock.
func stay() { time.Sleep(time.Hour) }
