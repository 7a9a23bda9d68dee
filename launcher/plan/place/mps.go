package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
)

// ExistingPipe is the pipe directory of the daemon that a host's ranks become clients of, where it runs already.
func ExistingPipe(m *config.MPS, f *facts.Host) string {
	return cmp.Or(m.PipeDirectory, f.Environ[mps.PipeDirectory], mps.DefaultPipeDirectory)
}

// DaemonNumber is the number by which a daemon of MPS knows a device. One of the run's own has that device only; one
// that runs already counts those that it was started with.
func DaemonNumber(m *config.MPS, f *facts.Host, d device.Device) (number int, known bool) {
	if !m.Existing {
		return 0, true
	}
	if f.MPS == nil || f.Devices == nil {
		return 0, false
	}
	pipe := ExistingPipe(m, f)
	for _, daemon := range f.MPS.Daemons {
		if daemon.Told && daemon.Pipe == pipe {
			at := slices.IndexFunc(devicesOfDaemon(f.Devices, daemon), d.Same)
			return max(0, at), at >= 0
		}
	}
	return 0, false
}

// devicesOfDaemon are the devices that a daemon shows its clients, in its order.
func devicesOfDaemon(d *facts.Devices, daemon facts.MPSDaemon) []device.Device {
	if daemon.Devices == nil {
		return device.All(d)
	}
	var all []device.Device
	for token := range strings.SplitSeq(*daemon.Devices, ",") {
		found, err := device.Find(d, strings.TrimSpace(token))
		if err != nil {
			break // as CUDA does
		}
		all = append(all, found)
	}
	return all
}

// checkMPS refuses what MPS cannot do on a host.
func checkMPS(s *site, share Share) {
	m := s.job.MPS
	if m == nil || len(share.Devices) == 0 {
		return
	}
	if s.variable() != CUDAVisible {
		s.refuse("mps_not_cuda", "%s: mps is CUDA's, and the devices there are not (%s)", s.host.Name, s.variable())
		return
	}
	checkClients(s, m, share.Devices)
	driver := s.devices.Inventory.Driver
	for _, d := range share.Devices {
		checkMemory(s, m, d)
		if d.IsInstance() && driver != nil && !mps.KnowsMIG(*driver) {
			s.refuse("mps_mig",
				"%s: %s: drivers before %d give a MIG device no name that an MPS daemon can be started for (there is %s)",
				s.host.Name, d, mps.MIGByUUID, *driver)
		}
	}
	if s.facts.MPS == nil {
		return
	}
	if s.facts.MPS.Program == "" {
		s.refuse("no_mps", "%s: there is no %s, neither in PATH nor where drivers put it: install the driver's MPS "+
			"(packages call it nvidia-compute-utils or nvidia-driver-cuda), or leave the mps block out",
			s.host.Name, mps.ControlProgram)
	}
	if m.Existing {
		checkExisting(s, m, share.Devices)
		return
	}
	checkOthers(s, share.Devices)
}

// checkClients counts ranks against what a server takes. A rank that makes several contexts counts several times,
// which nobody can know before.
func checkClients(s *site, m *config.MPS, devices []device.Device) {
	cuda, version := "", "its driver's CUDA, which is not known,"
	if s.devices.Inventory.CUDA != nil {
		cuda = *s.devices.Inventory.CUDA
		version = "CUDA " + cuda
	}
	for _, d := range devices {
		name := s.card(d).Name
		if limit := mps.MaxClientsOfPart(mps.MaxClients(name, cuda), name, d.Profile); m.RanksPerGPU > limit {
			s.refuse("mps_clients",
				"%s: ranks_per_gpu = %d: MPS takes %d clients on %s (%s, with %s); write at most %d, or use more GPUs",
				s.host.Name, m.RanksPerGPU, limit, d, name, version, limit)
			return
		}
		if !mps.IsOld(name) {
			continue
		}
		if len(m.Threads)+len(m.Memory) > 0 {
			s.refuse("mps_old", "%s: %s (%s) is from before Volta, where MPS knows no shares of threads or memory: "+
				"leave active_thread_percentage and pinned_memory_limit out", s.host.Name, d, name)
			return
		}
		s.warn("mps_old", "%s: %s (%s) is from before Volta: MPS puts all clients into one address space there, "+
			"so that one can damage another's memory", s.host.Name, d, name)
	}
}

// checkMemory compares the limits of a GPU's ranks with its memory.
func checkMemory(s *site, m *config.MPS, d device.Device) {
	total, _, _ := device.MemoryOf(s.card(d), d)
	if total == nil || len(m.Memory) == 0 {
		return
	}
	together := uint64(0)
	for place := range m.RanksPerGPU {
		if limit := m.MemoryOf(place); limit > *total {
			s.refuse("mps_memory", "%s: %s: pinned_memory_limit %s is more than %s has, %s",
				s.host.Name, m.MemoryAt, text.GiB(limit), d, text.GiB(*total))
			return
		}
		together += m.MemoryOf(place)
	}
	if together > *total {
		s.warn("mps_memory",
			"%s: the pinned_memory_limits of %s make %s, and %s has %s: a rank may find less than its limit",
			s.host.Name, plural.Of(m.RanksPerGPU, "rank"), text.GiB(together), d, text.GiB(*total))
	}
}

// checkOthers looks for daemons of others that cover a device.
func checkOthers(s *site, devices []device.Device) {
	saidUnknown := false
	for _, d := range devices {
		for _, daemon := range s.facts.MPS.Daemons {
			if daemon.Told {
				checkOther(s, daemon, d)
			} else if !saidUnknown {
				saidUnknown = true
				s.warn("mps_unknown", "%s: %s is there, and which GPUs it covers only its user can see: "+
					"if it serves one of this run's, the two take turns", s.host.Name, describeDaemon(daemon))
			}
		}
	}
	if left := s.facts.MPS.Left; left != "" {
		s.note("mps_left",
			"%s: an MPS daemon that is no more has left its folder %s; it is left alone, and in nobody's way", s.host.Name, left)
	}
}

func describeDaemon(daemon facts.MPSDaemon) string {
	switch {
	case daemon.Run != "":
		return fmt.Sprintf("the MPS daemon of muster's run %s (pid %d)", daemon.Run, daemon.PID)
	case daemon.Pipe != "":
		return fmt.Sprintf("an MPS daemon of %s (pid %d, in %s)", daemon.User, daemon.PID, daemon.Pipe)
	}
	return fmt.Sprintf("an MPS daemon of %s (pid %d)", daemon.User, daemon.PID)
}

func checkOther(s *site, daemon facts.MPSDaemon, d device.Device) {
	switch {
	case !slices.ContainsFunc(devicesOfDaemon(s.devices, daemon), d.Same):
	case daemon.Lost:
		s.refuse("mps_taken",
			"%s: %s covers %s, and its folder has been removed: nobody can reach it any more; end it with kill %d",
			s.host.Name, describeDaemon(daemon), d, daemon.PID)
	default:
		s.refuse("mps_taken", "%s: %s covers %s already, and two servers on one GPU only take turns: "+
			"have its ranks be clients of that one (daemon = \"existing\"), choose other GPUs, "+
			"or have it ended (echo quit | nvidia-cuda-mps-control, by its user)", s.host.Name, describeDaemon(daemon), d)
	}
}

// checkExisting looks for the daemon that the job file says is there already.
func checkExisting(s *site, m *config.MPS, devices []device.Device) {
	pipe, there := ExistingPipe(m, s.facts), s.facts.MPS
	unknown := false
	for _, daemon := range there.Daemons {
		unknown = unknown || !daemon.Told
		if daemon.Told && daemon.Pipe == pipe {
			checkServes(s, daemon, devices)
			return
		}
	}
	switch {
	case !unknown && there.Left != "":
		s.refuse("no_daemon", "%s: daemon = \"existing\": no MPS daemon runs there; %s are the sockets of one that has ended: "+
			"start it, or leave daemon out", s.host.Name, there.Left)
	case !unknown:
		s.refuse("no_daemon", "%s: daemon = \"existing\": no MPS daemon runs there in %s: start it (nvidia-cuda-mps-control -d), "+
			"say where it is (pipe_directory), or leave daemon out", s.host.Name, pipe)
	case len(m.Memory) > 0:
		s.refuse("mps_number", "%s: pinned_memory_limit goes by the number that a daemon gives a device, "+
			"and that of the daemon there only its user can see: leave it out, or leave daemon out", s.host.Name)
	}
}

func checkServes(s *site, daemon facts.MPSDaemon, devices []device.Device) {
	if daemon.Lost {
		s.refuse("no_daemon", "%s: the MPS daemon there (pid %d) has lost its folder %s: programs find it no more and run "+
			"without MPS; end it with kill %d and start it again", s.host.Name, daemon.PID, daemon.Pipe, daemon.PID)
		return
	}
	served := devicesOfDaemon(s.devices, daemon)
	for _, d := range devices {
		if !slices.ContainsFunc(served, d.Same) {
			s.refuse("no_daemon", "%s: the MPS daemon in %s (pid %d) does not serve %s: choose the devices that it serves "+
				"(ranks { devices = [...] })", s.host.Name, daemon.Pipe, daemon.PID, d)
		}
	}
}
