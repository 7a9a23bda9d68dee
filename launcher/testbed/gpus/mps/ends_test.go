//go:build linux

package mps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func TestAFaultTakesAllClientsOfTheGPUAlong(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0,1").start()
	here, there := []string{"LOCAL_RANK=0"}, []string{"LOCAL_RANK=1"}
	good, elsewhere, stuck := b.client(here), b.client(there), b.client(here, "-stuck")
	server := strconv.Itoa(good.line.MPS.Server)
	b.run(here, "-fault", "-for", "1ms").fails("an illegal memory access was encountered")
	good.fails("an illegal memory access was encountered")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_status "+server) == "FAULT" })
	// Nobody comes in, on the GPU that is well neither, while one has not left.
	b.run(there).fails("MPS server is not ready to accept new MPS client requests")
	if !runs(elsewhere.line.PID) {
		t.Error("the fault has reached another GPU")
	}
	stuck.kill()
	b.await("the end of the fault", func() bool { return b.ask("get_server_status "+server) == "ACTIVE" })
	b.client(here)
	for _, want := range []string{"Server is handling a fatal GPU error.", "The following clients have a sticky error set:", "Destroy server context on device 0", "is INACTIVE"} {
		if log := b.log("server.log"); !strings.Contains(log, want) {
			t.Errorf("server.log without %q:\n%s", want, log)
		}
	}
	if events, _ := filepath.Glob(filepath.Join(b.folder, gpus.StateFolder, "event-*")); len(events) != 1 {
		t.Errorf("Xid errors: %v", events)
	}
}

func TestAFaultSpreadsThroughClientsOfSeveralGPUs(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0,1,2").start()
	both := b.client([]string{"CUDA_VISIBLE_DEVICES=0,1"}, "-everywhere")
	second, third := b.client([]string{"LOCAL_RANK=1"}), b.client([]string{"LOCAL_RANK=2"})
	b.run([]string{"LOCAL_RANK=0"}, "-fault", "-for", "1ms").fails("an illegal memory access was encountered")
	both.fails("an illegal memory access was encountered")
	second.fails("an illegal memory access was encountered")
	if !runs(third.line.PID) {
		t.Error("a client that shares nothing with the others is gone")
	}
}

func TestBeforeVoltaAFaultEndsTheServer(t *testing.T) {
	b := newBench(t, gpus.Pascal(), "CUDA_VISIBLE_DEVICES=0").start()
	good := b.client(nil)
	b.run(nil, "-fault", "-for", "1ms").fails("CUDA error")
	good.fails("the remote procedural call between the MPS server and the MPS client failed")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_list") == "" })
}

func TestTheDeathOfAServerIsTheClients(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	server := w.line.MPS.Server
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.fails("the remote procedural call between the MPS server and the MPS client failed")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_list") == "" })
	if log := b.log("control.log"); !strings.Contains(log, fmt.Sprintf("Server %d exited with status 9", server)) {
		t.Errorf("control.log:\n%s", log)
	}
	if next := b.client(nil); next.line.MPS.Server == server {
		t.Error("a dead server has a client")
	}
}

func TestADeadDaemonLeavesItsServer(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	b.killDaemon(syscall.SIGTERM)
	if !runs(w.line.MPS.Server) || !runs(w.line.PID) {
		t.Error("server or client are gone")
	}
	if late := b.run(nil); late.line.MPS != nil {
		t.Error("a client of a dead daemon")
	}
}

func TestOneClientIsEndedByACommand(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w, other := b.client(nil), b.client(nil)
	b.says(fmt.Sprintf("terminate_client %d %d", w.line.MPS.Server, w.line.PID), "")
	w.fails("the MPS client has been terminated by the server")
	b.says("get_client_list "+strconv.Itoa(w.line.MPS.Server), strconv.Itoa(other.line.PID))
}

func TestServersShutDownOnTheirOwnOrByForce(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	server := strconv.Itoa(w.line.MPS.Server)
	b.says("shutdown_server "+server, "Server "+server+" has 1 active worker threads. Server will not shutdown.")
	if !runs(w.line.MPS.Server) {
		t.Error("the server is gone")
	}
	w.kill()
	b.await("the server's end", func() bool { return b.ask("get_server_list") == "" })
	w = b.client(nil)
	b.says(fmt.Sprintf("shutdown_server %d -f", w.line.MPS.Server), "")
	w.fails("the remote procedural call")
}

func TestQuitWaitsForClients(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	stop := filepath.Join(t.TempDir(), "stop")
	w := b.client(nil, "-until", stop, "-for", "0")
	daemon := b.pid()
	quit := b.command(b.control)
	quit.Stdin = strings.NewReader("quit\n")
	if err := quit.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- quit.Wait() }()
	b.await("the deaf ear to new clients", func() bool {
		late := b.run(nil, "-for", "1ms")
		late.ends()
		return late.line.PID > 0 && late.line.MPS == nil
	})
	select {
	case err := <-done:
		t.Fatalf("quit has not waited: %v", err)
	default:
	}
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.ends()
	if err := <-done; err != nil {
		t.Errorf("quit: %v", err)
	}
	b.await("the daemon's end", func() bool { return !runs(daemon) })
	if runs(w.line.MPS.Server) {
		t.Error("the server is there")
	}
}

func TestQuitWithATimeForcesServersAndSaysSo(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil, "-deaf")
	_ = syscall.Kill(w.line.PID, syscall.SIGTERM)
	said, status := b.try("quit -t 0")
	if status == 0 || said != "" {
		t.Errorf("status %d, %q", status, said)
	}
	w.fails("the remote procedural call")
	if log := b.log("control.log"); !strings.Contains(log, "quit command issued with timeout of 0") {
		t.Errorf("control.log:\n%s", log)
	}
}
