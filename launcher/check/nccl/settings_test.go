package nccl

import (
	"fmt"
	"strings"
	"testing"
)

func settings(pairs ...string) *Settings {
	s := &Settings{}
	for i, pair := range pairs {
		attr, value, _ := strings.Cut(pair, "=")
		s.Values = append(s.Values, Setting{attr, value, fmt.Sprintf("job.hcl:%d", i+1)})
	}
	return s
}

// TestSettingsGoByTheReleasesNames: ATTR=VALUE, the releases found, what is set and what
// is said of it.
func TestSettingsGoByTheReleasesNames(t *testing.T) {
	for _, c := range []struct{ set, found, want, code string }{
		{"buffer_size=8388608", "", "NCCL_BUFFSIZE=8388608", ""},
		{"max_ctas=8", "", "NCCL_MAX_CTAS=8", ""},
		{"max_ctas=8", "2.16.2", "NCCL_MAX_NCHANNELS=8", ""},
		{"max_ctas=48", "2.16.2", "NCCL_MAX_NCHANNELS=48", CodeRange},
		{"blocking_wait=1", "2.19.3 2.1.2", "NCCL_BLOCKING_WAIT=1", ""},
		{"blocking_wait=1", "2.20.5 2.4.0", "TORCH_NCCL_BLOCKING_WAIT=1", ""},
		{"async_error_handling=3", " 2.1.2", "NCCL_ASYNC_ERROR_HANDLING=3", ""},
		{"heartbeat_timeout=600", " 2.1.2", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600", CodeVersion},
		{"nvls_enable=0", "2.16.2", "NCCL_NVLS_ENABLE=0", CodeVersion},
		{"algo=Tree", "2.27.3", "NCCL_ALGO=Tree", CodeAlgorithm},
		{"ib_hca=mlx5_1", "2.27.3", "NCCL_IB_HCA=mlx5_1", ""}, // the job file says so already
	} {
		nccl, torch, _ := strings.Cut(c.found, " ")
		vars, found := settings(c.set).Vars(ParseVersion(nccl, torch))
		if got := vars[0].Name + "=" + vars[0].Value; got != c.want || vars[0].Source != "job.hcl:1" || seen(found) != c.code {
			t.Errorf("%s with %q sets %s of %q: %v", c.set, c.found, got, vars[0].Source, found)
		}
		if renamed := !strings.Contains(c.want, "CTAS") && strings.Contains(c.set, "max_ctas"); renamed && vars[0].Note == "" {
			t.Errorf("%s with %q does not say why it is called %s", c.set, c.found, vars[0].Name)
		}
		for _, f := range found {
			if f.Source != "job.hcl:1" {
				t.Errorf("%+v", f)
			}
		}
	}
}

func TestNoSettings(t *testing.T) {
	var s *Settings
	vars, found := s.Vars(Version{})
	_, set := s.Get("debug")
	_, sets := s.Sets("NCCL_DEBUG")
	if len(vars) > 0 || len(found) > 0 || set || sets {
		t.Error("a nil block sets something")
	}
}

// TestWhoSetsAVariable: by any of its names.
func TestWhoSetsAVariable(t *testing.T) {
	s := settings("debug=INFO", "max_ctas=8", "blocking_wait=1")
	for variable, want := range map[string]string{
		"NCCL_DEBUG": "debug", "NCCL_MAX_CTAS": "max_ctas", "NCCL_MAX_NCHANNELS": "max_ctas",
		"NCCL_BLOCKING_WAIT": "blocking_wait", "NCCL_ALGO": "", "": "",
	} {
		if got, ok := s.Sets(variable); got.Attr != want || ok != (want != "") {
			t.Errorf("%s is set by %q", variable, got.Attr)
		}
	}
}
