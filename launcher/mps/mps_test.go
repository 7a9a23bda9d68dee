package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestHowManyClientsAGPUTakesIsKnownByItsArchitectureAndDriver(t *testing.T) {
	for name, want := range map[string]int{
		"Tesla P100-SXM2-16GB": 16, "NVIDIA Tesla K80": 16, "Tesla M60": 16, "Quadro P6000": 16, "NVIDIA GeForce GTX 1080 Ti": 16,
		"NVIDIA TITAN Xp": 16, "TITAN X (Pascal)": 16, "NVIDIA TITAN V": 48, "NVIDIA TITAN RTX": 48, "Tesla V100-SXM2-32GB": 48, "Tesla T4": 48,
		"NVIDIA A100-SXM4-80GB": 48, "NVIDIA H100 PCIe": 48, "NVIDIA L40S": 48, "NVIDIA GeForce GTX 1660": 48, "Quadro RTX 8000": 48,
		"NVIDIA GeForce RTX 4090": 48, "NVIDIA RTX A6000": 48, "NVIDIA A10G": 48, "NVIDIA B200": 48, "": 48,
	} {
		if got := MaxClients(name, "12.4"); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
	for cuda, want := range map[string]int{"13.0": 48, "13.1": 60, "14.0": 60, "": 48, "12.9": 48} {
		if got := MaxClients("NVIDIA H100 PCIe", cuda); got != want {
			t.Errorf("CUDA %s: %d", cuda, got)
		}
	}
	if MaxClients("Tesla P100-PCIE-16GB", "13.2") != 16 {
		t.Error("a new driver makes no old GPU new")
	}
}

func TestAmountsAreWrittenAsTheDaemonReadsThem(t *testing.T) {
	for bytes, want := range map[uint64]string{18 << 30: "18G", 1536 << 20: "1536M", 512 << 20: "512M", 1 << 30: "1G"} {
		if got := Amount(bytes); got != want {
			t.Errorf("%d: %s", bytes, got)
		}
		if back, ok := ParseAmount(want); !ok || back != bytes {
			t.Errorf("%s: %d", want, back)
		}
	}
	if _, ok := ParseAmount("No default pinned memory limit set for the device!"); ok {
		t.Error("a refusal was taken for an amount")
	}
	if Percentage(12.5) != "12.5" || Percentage(100) != "100" || Limit(0, 18<<30) != "0=18G" {
		t.Error(Percentage(12.5), Percentage(100), Limit(0, 18<<30))
	}
}

// talk is a daemon that answers from a table and notes what it was asked.
type talk struct {
	answers map[string]Answer
	asked   []string
}

func (d *talk) control() Control {
	return Control{Ask: func(_ context.Context, commands ...string) (Answer, error) {
		d.asked = append(d.asked, commands...)
		return d.answers[commands[0]], nil
	}}
}

func TestARefusalIsNoAnswerThoughItEndsWell(t *testing.T) {
	for text, refused := range map[string]bool{
		"Server 12 not found\n": true, "Unknown command \"x\"": true, "Invalid device ordinal!": true, "ACTIVE\n": false, "": false,
		"Insufficient privileges for UID 1000. Only the root user may ...": true, "Failed to set the limit": true,
	} {
		d := &talk{answers: map[string]Answer{"get_server_status 12": {Text: text}}}
		_, err := d.control().Status(t.Context(), 12)
		var no *Refused
		if errors.As(err, &no) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
	d := &talk{answers: map[string]Answer{"get_server_list": {Text: "Cannot find MPS control daemon process", Code: 1}}}
	if _, err := d.control().Servers(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Error(err)
	}
}

func TestSharesAreSetByTheDaemonsNumberAndReadBack(t *testing.T) {
	answers := map[string]Answer{
		"get_default_active_thread_percentage":  {Text: "25.0\n"},
		"get_default_device_pinned_mem_limit 0": {Text: "18G\n"},
	}
	d := &talk{answers: answers}
	if err := d.control().SetShares(t.Context(), 0, 25, 18<<30); err != nil {
		t.Fatal(err)
	}
	want := []string{"set_default_active_thread_percentage 25", "get_default_active_thread_percentage", "set_default_device_pinned_mem_limit 0 18G", "get_default_device_pinned_mem_limit 0"}
	if !slices.Equal(d.asked, want) {
		t.Errorf("asked %q", d.asked)
	}
	for command, said := range map[string]string{
		"get_default_active_thread_percentage":      "100.0",
		"get_default_device_pinned_mem_limit 0":     "No default pinned memory limit set for the device!",
		"set_default_device_pinned_mem_limit 0 18G": "Invalid device ordinal!",
	} {
		other := &talk{answers: map[string]Answer{}}
		for k, v := range answers {
			other.answers[k] = v
		}
		other.answers[command] = Answer{Text: said}
		if err := other.control().SetShares(t.Context(), 0, 25, 18<<30); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s answers %q: %v", command, said, err)
		}
	}
}

func TestListsAreReadAndABusyServerIsNoEmptyOne(t *testing.T) {
	d := &talk{answers: map[string]Answer{
		"get_server_list": {Text: "6472\n"}, "get_client_list 6472": {Text: "9741\n9742\n"}, "get_client_list 1": {Text: "Server 1 is <busy>\n"}, "get_client_list 2": {Text: "\n"},
	}}
	servers, err := d.control().Servers(t.Context())
	if err != nil || !slices.Equal(servers, []int{6472}) {
		t.Error(servers, err)
	}
	clients, err := d.control().Clients(t.Context(), 6472)
	if err != nil || !slices.Equal(clients, []int{9741, 9742}) {
		t.Error(clients, err)
	}
	if _, err := d.control().Clients(t.Context(), 1); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if none, err := d.control().Clients(t.Context(), 2); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

func TestLogsTellHowAServerEnded(t *testing.T) {
	const log = `[2024-05-01 10:00:05.003 Control 13910] Starting new server 13929 for user 500
[2024-05-01 10:05:00.000 Control 13910] Server 13929 exited with status 1
[2024-05-01 10:05:00.000 Server 13929] Volta MPS: Server is handling a fatal GPU error.
`
	if got := Exited(log, 13929); got != "status 1" {
		t.Error(got)
	}
	if got := Exited(log, 1); got != "" {
		t.Error(got)
	}
	if got := FatalErrors(log); len(got) != 1 || got[0] != "Volta MPS: Server is handling a fatal GPU error." {
		t.Error(got)
	}
	if got := LastLines(log, 2); len(got) != 2 || !strings.HasSuffix(got[1], "fatal GPU error.") {
		t.Error(got)
	}
}

func TestAMIGDeviceTakesItsShareOfClients(t *testing.T) {
	for _, test := range []struct {
		gpu, profile string
		want         int
	}{
		{"NVIDIA A100-SXM4-80GB", "1g.10gb", 7}, {"NVIDIA A100-SXM4-80GB", "3g.40gb", 21}, {"NVIDIA A100-SXM4-80GB", "7g.80gb", 48},
		{"NVIDIA H100 80GB HBM3", "1c.3g.40gb", 7}, {"NVIDIA A30", "1g.6gb", 12}, {"NVIDIA A30", "4g.24gb", 48}, {"NVIDIA A100", "", 48},
	} {
		if got := MaxClientsOfPart(48, test.gpu, test.profile); got != test.want {
			t.Errorf("%s %s: %d clients, want %d", test.gpu, test.profile, got, test.want)
		}
	}
}

func TestAPathThatIsTooLongForASocketIsKnownBefore(t *testing.T) {
	if !Fits("/tmp/muster-run-123456/m/0") || Fits("/"+strings.Repeat("x", 100)) {
		t.Error("lengths")
	}
	if got := fmt.Sprint(KnowsMIG("450.80.02"), KnowsMIG("470.57"), KnowsMIG("")); got != "false true true" {
		t.Error(got)
	}
}
