//go:build linux

package mps_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func TestDevicesAreNumberedByTheDaemon(t *testing.T) {
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES=3,1").start()
	for _, test := range []struct {
		list string
		want int // -1: none
	}{
		{"0", 3}, {"1", 1}, {s.GPUs[1].UUID, 1}, {s.GPUs[3].UUID[:12], 3}, {"3", -1}, {s.GPUs[0].UUID, -1},
	} {
		w := b.run([]string{"CUDA_VISIBLE_DEVICES=" + test.list}, "-for", "1ms")
		if test.want < 0 {
			w.fails("No CUDA GPUs are available")
		} else if said := w.ends(); w.line.Index != test.want || w.line.MPS == nil {
			t.Errorf("%s: GPU %d, want %d (%s)", test.list, w.line.Index, test.want, said)
		}
	}
	// The daemon's order counts, not the client's.
	mixed := newBench(t, gpus.Mixed(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0").start()
	w := mixed.client([]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, "-bytes", "1MiB")
	if w.line.Index != 0 {
		t.Errorf("GPU %d", w.line.Index)
	}
}

func TestCommandsAreAnsweredInTheToolsWords(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40").start()
	server := b.client(nil).line.MPS.Server
	for _, test := range [][2]string{
		{"get_default_active_thread_percentage", "40.0"},
		{"set_default_active_thread_percentage 25", "25.0"},
		{"get_default_active_thread_percentage", "25.0"},
		{"get_active_thread_percentage SERVER", "40.0"}, // the next server's, not this one's
		{"set_active_thread_percentage SERVER 12.5", "12.5"},
		{"get_active_thread_percentage SERVER", "12.5"},
		{"set_active_thread_percentage SERVER 0", "Invalid percentage, expected between (0.0, 100.0]"},
		{"set_default_active_thread_percentage 101", "Invalid percentage, expected between (0.0, 100.0]"},
		{"get_default_device_pinned_mem_limit 0", "No default pinned memory limit set for the device!"},
		{"set_default_device_pinned_mem_limit 0 18G", ""},
		{"get_default_device_pinned_mem_limit 0", "18G"},
		{"set_default_device_pinned_mem_limit 3 18G", "Invalid device ordinal!"}, // the host's number
		{"set_device_pinned_mem_limit SERVER 0 512M", ""},
		{"get_device_pinned_mem_limit SERVER 0", "512M"},
		{"set_default_client_priority 2", "Invalid priority value - must be 0 or 1!"},
		{"set_default_client_priority 1", ""},
		{"get_default_client_priority", "1"},
		{"get_server_status 1", "Server 1 not found"},
		{"get_client_list 1", "Server 1 not found"},
		{"terminate_client SERVER 1", "Invalid process 1!"},
		{"start_server -uid 4711", ""}, // root may; there is one already
		{"help", `Unknown command "help"`},
	} {
		if os.Getuid() == 0 || !strings.HasPrefix(test[0], "start_server") {
			b.says(strings.ReplaceAll(test[0], "SERVER", strconv.Itoa(server)), test[1])
		}
	}
	if got := b.ask("get_default_client_priority", "", "get_default_active_thread_percentage"); got != "1\n25.0" {
		t.Errorf("two commands: %q", got)
	}
	// A limit for a UUID is taken without a word and has no effect.
	uuid := gpus.L40S().GPUs[3].UUID
	other := b.daemon("CUDA_VISIBLE_DEVICES=" + uuid).start()
	other.says("set_default_device_pinned_mem_limit "+uuid+" 1G", "")
	other.says("get_default_device_pinned_mem_limit 0", "No default pinned memory limit set for the device!")
	if w := other.client(nil); w.line.MPS.Limit != 0 {
		t.Errorf("limit %d", w.line.MPS.Limit)
	}
	old := newBench(t, gpus.Pascal()).start()
	old.says("set_default_device_pinned_mem_limit 0 1G", `Unknown command "set_default_device_pinned_mem_limit"`)
}

func TestClientsGetTheSharesThatWereSet(t *testing.T) {
	const gib = 1 << 30
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+s.GPUs[1].UUID).start()
	b.ask("set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 4G")
	for _, test := range []struct {
		env        []string
		percentage float64
		limit      uint64
	}{
		{nil, 50, 4 * gib},
		{[]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G"}, 25, 2 * gib},
		{[]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=75", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G"}, 50, 4 * gib}, // only downwards
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + s.GPUs[1].UUID + "=1536M"}, 50, 3 * gib / 2},
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=4096"}, 50, 4 * gib},    // not understood
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512MB"}, 50, 4 * gib}, // nor this
		{[]string{"CUDA_MPS_DEVICE_MEM_LIMIT=0=1G"}, 50, 4 * gib},           // no such variable
	} {
		w := b.client(test.env, "-for", "1ms")
		if got := w.line.MPS; got.Percentage != test.percentage || got.Limit != test.limit || got.Free != test.limit-24<<20 || got.Total != *s.GPUs[1].Memory.Total {
			t.Errorf("%v: %+v", test.env, *got)
		}
		w.ends()
	}
	b.run(nil, "-bytes", "4GiB").fails("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 44.99 GiB of which 3.98 GiB is free.")
}

func TestProcessListsShowServerAndClients(t *testing.T) {
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES=0").start()
	w := b.client(nil)
	held, err := gpus.Held(b.folder)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[int]string{}
	for _, p := range s.GPUs[0].Holders(held) {
		kinds[p.PID] = p.Kind
	}
	if len(kinds) != 2 || kinds[w.line.PID] != "mps" || kinds[w.line.MPS.Server] != "compute" {
		t.Errorf("%v, of client %d and server %d", kinds, w.line.PID, w.line.MPS.Server)
	}
	// Before Volta the server stands for its clients.
	old := newBench(t, gpus.Pascal(), "CUDA_VISIBLE_DEVICES=0").start()
	w = old.client(nil)
	if held, err = gpus.Held(old.folder); err != nil || len(held) != 1 || held[0].PID != w.line.MPS.Server || held[0].Bytes != 1<<30+30<<20 {
		t.Errorf("%v, %+v", err, held)
	}
}

func TestExclusiveDevicesAreSharedThroughOneServer(t *testing.T) {
	s := gpus.Exclusive()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+s.GPUs[0].UUID).start()
	b.client(nil)
	b.client(nil)
	outside := b.daemon()
	outside.run([]string{"CUDA_VISIBLE_DEVICES=0"}).fails("CUDA-capable device(s) is/are busy or unavailable")
	// Nor has another daemon's server the device.
	outside.own = []string{"CUDA_VISIBLE_DEVICES=0"}
	outside.start().run(nil).fails("MPS client failed to connect to the MPS control daemon or the MPS server")
	outside.says("get_server_list", "")
	if log := outside.log("server.log"); !strings.Contains(log, "busy or unavailable") || !strings.Contains(log, "MPS server failed to start") {
		t.Errorf("server.log:\n%s", log)
	}
}

func TestRoomForContextsIsThatOfTheArchitectureAndTheDriver(t *testing.T) {
	newer := gpus.L40S()
	newer.Driver, newer.CUDA = "590.44.01", "13.1"
	for name, test := range map[string]struct {
		s    *gpus.Scenario
		room int
	}{
		"Volta and later": {gpus.L40S(), 48},
		"before Volta":    {gpus.Pascal(), 16},
		"since CUDA 13.1": {newer, 60},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.s, "CUDA_VISIBLE_DEVICES=0").start()
			first := b.client(nil, "-contexts", strconv.Itoa(test.room-1))
			second := b.client(nil)
			b.run(nil).fails("the hardware resources required to create MPS client have been exhausted")
			second.kill()
			b.await("the second's leaving", func() bool {
				return b.ask("get_client_list "+strconv.Itoa(first.line.MPS.Server)) == strconv.Itoa(first.line.PID)
			})
			b.run([]string{"CUDA_DEVICE_MAX_CONNECTIONS=8"}).fails("device connections have been exhausted")
		})
	}
}

func TestManyClientsNeedManyOpenFiles(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0")
	cmd := b.command("sh", "-c", "ulimit -n 192 && exec "+b.control+" -d")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for range 3 {
		b.client(nil)
	}
	b.run(nil).fails("MPS client failed to connect")
	if log := b.log("server.log"); !strings.Contains(log, "MPS Server failed to create/open SHM segment") {
		t.Errorf("server.log:\n%s", log)
	}
}

func TestADaemonServesOneMIGDevice(t *testing.T) {
	s := gpus.MIG()
	mig := s.GPUs[0].MIG.Instances[1]
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+mig.UUID).start()
	w := b.client(nil)
	if w.line.UUID != mig.UUID || w.line.MPS.Total != *mig.Memory {
		t.Errorf("the client has %s with %d bytes", w.line.UUID, w.line.MPS.Total)
	}
	table := strings.Split(b.ask("ps"), "\n")
	if !slices.Equal(strings.Fields(table[0]), []string{"PID", "ID", "SERVER", "DEVICE", "PARTITION", "NAMESPACE", "COMMAND"}) ||
		len(table) != 2 || strings.Index(table[0], "PARTITION") != strings.Index(table[1], "N/A") {
		t.Errorf("ps: %q", table)
	}
}
