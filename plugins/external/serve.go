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
// printed anything. It returns when muster releases the plugin, or never: muster may also kill
// it at any time. The prober gets one call at a time; what it prints is kept and shown in errors.
//
// If the prober is also a gpu.EventWatcher, muster may start a second process of it to watch.
//
// Started by hand, the program explains what it is; with "probe" as the last argument it prints
// once what muster would get, and with "watch" what the driver reports within some seconds.
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

// encoded is an answer, or the prober's error, as gRPC wants it.
func encoded[T any](found T, err error) ([]byte, error) {
	var data []byte
	if err == nil {
		data, err = json.Marshal(found)
	}
	if err != nil {
		return nil, status.Error(codes.Unknown, cut(err.Error(), maxRefusal))
	}
	return data, nil
}

// Probe answers with what the prober found.
func (s *server) Probe(ctx context.Context, _ *pluginpb.ProbeRequest) (*pluginpb.ProbeReply, error) {
	data, err := encoded(s.prober.Probe(ctx))
	return &pluginpb.ProbeReply{Gpus: data}, err
}

// Sample answers with the prober's sample, if it has any.
func (s *server) Sample(ctx context.Context, r *pluginpb.SampleRequest) (*pluginpb.SampleReply, error) {
	sampler, is := s.prober.(gpu.Sampler)
	if !is {
		return s.UnimplementedPluginServer.Sample(ctx, r)
	}
	data, err := encoded(sampler.Sample(ctx))
	return &pluginpb.SampleReply{Samples: data}, err
}

// maxWatch is how long a plugin waits for an event.
const maxWatch = time.Minute

// Watch answers with the driver's events, if the prober gets any.
func (s *server) Watch(ctx context.Context, r *pluginpb.WatchRequest) (*pluginpb.WatchReply, error) {
	watcher, is := s.prober.(gpu.EventWatcher)
	if !is {
		return nil, status.Error(codes.Unimplemented, s.name+" tells of no events")
	}
	data, err := encoded(watcher.WatchEvents(ctx, min(time.Duration(r.GetWaitMs())*time.Millisecond, maxWatch)))
	return &pluginpb.WatchReply{Events: data}, err
}

const (
	byHandLimit = time.Minute     // of a run by hand
	watchByHand = 2 * time.Second // of its watch
)

// byHand serves somebody who tries the plugin, and returns the exit status.
func byHand(name string, prober gpu.Prober, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), byHandLimit)
	defer cancel()
	var found any
	var err error
	switch {
	case len(args) > 1 && args[len(args)-1] == "probe":
		found, err = prober.Probe(ctx)
	case len(args) > 1 && args[len(args)-1] == "watch":
		found, err = watch(ctx, prober)
	default:
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
	if err == nil {
		var data []byte
		if data, err = json.MarshalIndent(found, "", "  "); err == nil {
			fmt.Fprintf(stdout, "%s\n", data)
		}
	}
	if g, is := found.(*gpu.Inventory); is && err == nil {
		if wrong := Check(g); wrong != nil {
			err = fmt.Errorf("muster will refuse this: %w", wrong)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// watch starts a watch, and returns what is reported then.
func watch(ctx context.Context, prober gpu.Prober) (*gpu.Events, error) {
	watcher, is := prober.(gpu.EventWatcher)
	if !is {
		return nil, fmt.Errorf("it tells of no events")
	}
	begun, err := watcher.WatchEvents(ctx, 0)
	if err != nil {
		return nil, err
	}
	reported, err := watcher.WatchEvents(ctx, watchByHand)
	if err != nil {
		return nil, err
	}
	begun.Events = append(begun.Events, reported.Events...)
	return begun, nil
}
