package external

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Serve is what a plugin's main calls, after it has read its arguments and without having
// printed anything. It returns when muster lets the plugin go, or does not: muster may
// also kill it at any time. The prober is asked once at a time; what it prints is kept
// and shown in errors.
//
// Where the prober is a gpu.EventWatcher too, muster may have a second process of it
// watch.
//
// Somebody who starts the program by hand is told what it is, and with "probe" as the last
// argument gets once what muster would get; with "watch" what the driver reports within
// some seconds.
func Serve(name string, prober gpu.Prober) {
	if os.Getenv(cookieKey) != cookieValue {
		os.Exit(byHand(name, prober, os.Args, os.Stdout, os.Stderr))
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{service: &adapter{server: &server{name: name, prober: prober}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxReply))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr, DisableTime: true}),
	})
}

// server answers muster.
type server struct {
	pluginpb.UnimplementedPluginServer
	name   string
	prober gpu.Prober
}

// Probe answers with what the prober found.
func (s *server) Probe(ctx context.Context, _ *pluginpb.ProbeRequest) (*pluginpb.ProbeReply, error) {
	data, err := s.look(ctx)
	if err != nil {
		return nil, status.Error(codes.Unknown, cut(err.Error(), longestRefusal))
	}
	return &pluginpb.ProbeReply{Gpus: data}, nil
}

// Sample answers with the prober's sample, where it tells any.
func (s *server) Sample(ctx context.Context, r *pluginpb.SampleRequest) (*pluginpb.SampleReply, error) {
	sampler, is := s.prober.(gpu.Sampler)
	if !is {
		return s.UnimplementedPluginServer.Sample(ctx, r)
	}
	found, err := sampler.Sample(ctx)
	if err != nil {
		return nil, status.Error(codes.Unknown, cut(err.Error(), longestRefusal))
	}
	data, err := json.Marshal(found)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pluginpb.SampleReply{Samples: data}, nil
}

// longestWatch is how long a plugin waits for an event at most.
const longestWatch = time.Minute

// Watch answers with what the prober was told by the driver, where it is told anything.
func (s *server) Watch(ctx context.Context, r *pluginpb.WatchRequest) (*pluginpb.WatchReply, error) {
	watcher, is := s.prober.(gpu.EventWatcher)
	if !is {
		return nil, status.Error(codes.Unimplemented, s.name+" tells of no events")
	}
	events, err := watcher.WatchEvents(ctx, min(time.Duration(r.GetWaitMs())*time.Millisecond, longestWatch))
	if err != nil {
		return nil, status.Error(codes.Unknown, cut(err.Error(), longestRefusal))
	}
	data, err := json.Marshal(events)
	if err != nil {
		return nil, status.Error(codes.Unknown, cut(err.Error(), longestRefusal))
	}
	return &pluginpb.WatchReply{Events: data}, nil
}

func (s *server) look(ctx context.Context) ([]byte, error) {
	gpus, err := s.prober.Probe(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(gpus)
}

// byHandLimit is how long a look by hand may take.
const byHandLimit = time.Minute

// watchByHand is how long somebody who tries the plugin has it watch.
const watchByHand = 2 * time.Second

// byHand is for somebody who tries the plugin, and returns the exit status.
func byHand(name string, prober gpu.Prober, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), byHandLimit)
	defer cancel()
	switch {
	case len(args) > 1 && args[len(args)-1] == "probe":
		gpus, err := prober.Probe(ctx)
		if err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return 1
		}
		return show(name, gpus, stdout, stderr)
	case len(args) > 1 && args[len(args)-1] == "watch":
		return listen(ctx, name, prober, stdout, stderr)
	}
	fmt.Fprintf(stderr, `This is %s, a plugin of muster: a program that muster starts to look at devices.
Name it in a job file:

  plugin %q {
    path   = "/PATH/OF/THIS/PROGRAM"
    sha256 = "..." # as sha256sum prints it
  }

To see what it finds here, run it with "probe" as the last argument; with "watch" it tells
what the driver reports within %s.
`, name, name, watchByHand)
	return 2
}

// listen begins to watch, and prints what is reported then as muster gets it.
func listen(ctx context.Context, name string, prober gpu.Prober, stdout, stderr io.Writer) int {
	watcher, is := prober.(gpu.EventWatcher)
	if !is {
		fmt.Fprintf(stderr, "%s: it tells of no events\n", name)
		return 1
	}
	begun, err := watcher.WatchEvents(ctx, 0)
	var heard *gpu.Events
	if err == nil {
		heard, err = watcher.WatchEvents(ctx, watchByHand)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	begun.Events = append(begun.Events, heard.Events...)
	data, err := json.MarshalIndent(begun, "", "  ")
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s\n", data)
	return 0
}

// show prints what was found as muster gets it, and what muster would say of it.
func show(name string, gpus *gpu.Inventory, stdout, stderr io.Writer) int {
	data, err := json.MarshalIndent(gpus, "", "  ")
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s\n", data)
	if err := Check(gpus); err != nil {
		fmt.Fprintf(stderr, "%s: muster will refuse this: %v\n", name, err)
		return 1
	}
	return 0
}
