package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Sample asks the plugin as Probe does. KindUnsupported says that it tells no samples.
func (p *Prober) Sample(ctx context.Context) (*gpu.Samples, error) {
	return answerTo(ctx, p, question[*gpu.Samples]{"Sample", p.program.ProbeLimit, func(ctx context.Context, plugin pluginpb.PluginClient) (*gpu.Samples, error) {
		reply, err := plugin.Sample(ctx, &pluginpb.SampleRequest{})
		if err != nil {
			return nil, err
		}
		return p.program.readSamples(reply.GetSamples())
	}})
}

// readSamples decodes and checks samples as read does what a probe found.
func (p Program) readSamples(data []byte) (*gpu.Samples, error) {
	s, err := decode[gpu.Samples](data)
	if err == nil {
		err = CheckSamples(s)
	}
	if err != nil {
		return nil, p.fault(KindAnswer, err, "its samples make no sense: %v", err)
	}
	s.Source = cmp.Or(s.Source, p.Name)
	for i := range s.GPUs {
		s.GPUs[i].Explain("the plugin does not tell")
	}
	return s, nil
}

// CheckSamples says what is inconsistent in samples; nil: nothing.
func CheckSamples(s *gpu.Samples) error {
	if s.GPUs == nil {
		return errors.New("they have no list of gpus (an empty one says that there are none)")
	}
	if s.Every < 0 || s.Every > 3600 {
		return fmt.Errorf("every_s is %v, not 0 to 3600", s.Every)
	}
	for i, g := range s.GPUs {
		if !slices.Contains(states, g.State) {
			return fmt.Errorf("gpus[%d]: state %s is none of %s", i, quote(g.State), strings.Join(states, ", "))
		}
		for _, percent := range []*int{g.Utilization.GPU, g.Utilization.Memory} {
			if percent != nil && (*percent < 0 || *percent > 100) {
				return fmt.Errorf("gpus[%d]: a utilization of %d %%", i, *percent)
			}
		}
		for _, p := range g.Processes {
			if p.PID <= 0 {
				return fmt.Errorf("gpus[%d]: a process has pid %d", i, p.PID)
			}
		}
	}
	if text := controlIn(reflect.ValueOf(s)); text != "" {
		return fmt.Errorf("a text has control characters: %s", quote(text))
	}
	return nil
}
