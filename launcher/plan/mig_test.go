package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

// migUUID is that of instance i of a GPU.
func migUUID(card, i int) string {
	return fmt.Sprintf("MIG-%x%x000000-1111-5222-8333-444455556666", card, i)
}

// cut is a machine whose GPUs are cut into MIG devices of these profiles, separated by spaces;
// "-" leaves one whole, "" cuts it into nothing.
func cut(layouts ...string) facts.Host {
	h := machine(0, len(layouts), nvswitch)
	for card, layout := range layouts {
		g := &h.Devices.Inventory.GPUs[card]
		if layout == "-" {
			g.MIG = gpu.MIG{Enabled: ptr(false), Pending: ptr(false), Instances: []gpu.MIGInstance{}}
			continue
		}
		g.MIG = gpu.MIG{Enabled: ptr(true), Pending: ptr(true), Instances: []gpu.MIGInstance{}}
		for i, profile := range strings.Fields(layout) {
			_, rest, _ := strings.Cut(profile, "g.")
			size := uint64(0)
			fmt.Sscanf(rest, "%dgb", &size)
			g.MIG.Instances = append(g.MIG.Instances, gpu.MIGInstance{Index: i, UUID: migUUID(card, i), Profile: profile, GI: ptr(i + 1), CI: ptr(0),
				Memory: ptr(size << 30), Used: ptr(uint64(10 << 20))})
		}
	}
	return h
}

// use has somebody compute on an instance.
func use(h facts.Host, card, i int) facts.Host {
	g := &h.Devices.Inventory.GPUs[card]
	m := &g.MIG.Instances[i]
	m.Used = ptr(uint64(4 << 30))
	g.Processes = append(g.Processes, gpu.Process{PID: 100*card + i, Name: "python", Kind: "compute", Memory: ptr(uint64(4 << 30)), GI: m.GI, CI: m.CI})
	return h
}

// onParts are the ranks' devices as "GPU.instance", or "GPU".
func onParts(p *plan.Plan) string {
	var all []string
	for _, r := range p.Ranks {
		word := fmt.Sprint(r.Device.Index)
		if r.Device.IsInstance() {
			word += fmt.Sprint(".", r.Device.MIG)
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func TestMIGDevicesAreChosenByProfileAndSpreadOverTheirGPUs(t *testing.T) {
	const small = "1g.10gb 1g.10gb 1g.10gb"
	for _, test := range []struct {
		ranks string
		host  facts.Host
		want  string
	}{
		{`devices = ["1g.10gb"]`, cut("3g.40gb 1g.10gb", "-"), "0.1"},
		{`devices = ["1G.10GB", "3g.40gb"]`, cut("3g.40gb 1g.10gb", "-"), "0.1 0.0"},
		{`devices = ["1g.10gb", "1g.10gb"]`, cut(small, small), "0.0 1.0"},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb"]`, cut(small, small), "0.0 0.1 1.0"},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"]`, cut(small, small), "0.0 0.1 0.2 1.0 1.1"},
		{`devices = ["1g.10gb", "1g.10gb", "2g.20gb"]`, cut("1g.10gb 1g.10gb 2g.20gb", "1g.10gb 2g.20gb"), "0.0 1.0 0.2"},
		// The GPU with the most devices left comes first.
		{`devices = ["1g.10gb"]`, cut("1g.10gb", small), "1.0"},
		// One that others use comes last.
		{`devices = ["1g.10gb"]`, use(cut(small, small), 0, 2), "1.0"},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"]`, use(cut(small, small), 0, 0), "0.1 0.2 1.0 1.1"},
		{`devices = "1g.10gb"`, cut("3g.40gb 1g.10gb", "-", "1g.10gb"), "0.1 2.0"},
		{"devices = \"1g.10gb\"\nper_host = 2", cut(small, small), "0.0 1.0"},
		{"devices = \"1g.10gb\"\nper_host = \"gpu\"", cut("1g.10gb", "1g.10gb"), "0.0 1.0"},
	} {
		p := mustMake(t, on(t, 1, test.ranks+"\nbackend = \"gloo\""), test.host)
		if got := onParts(p); got != test.want {
			t.Errorf("%s: ranks on %s, want %s", test.ranks, got, test.want)
		}
		if !p.Hosts[0].Claimed {
			t.Errorf("%s: not claimed, though chosen as idle", test.ranks)
		}
	}
	p := mustMake(t, on(t, 1, `devices = ["1g.10gb", "1g.10gb"]`), cut(small, small))
	mustHold(t, inWords(p.Notes), "2 MIG devices of profile 1g.10gb are taken of 2 GPUs", "PCIe link", "NCCL before 2.31")
}

// NCCL 2.31 joins those of one GPU directly.
func TestMIGDevicesThatNCCLJoinsAreOnOneGPUWhereOneHasThem(t *testing.T) {
	const small = "1g.10gb 1g.10gb 1g.10gb"
	newer := func(layouts ...string) facts.Host {
		h := cut(layouts...)
		h.Software, h.Devices.Inventory.CUDA = &facts.Software{Torch: "2.9.0", NCCL: "2.31.2"}, ptr("13.0")
		return h
	}
	for _, test := range []struct {
		ranks string
		host  facts.Host
		want  string
	}{
		{`devices = ["1g.10gb", "1g.10gb"]`, newer(small, "1g.10gb 1g.10gb"), "1.0 1.1"},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb"]`, newer("1g.10gb 1g.10gb", small), "1.0 1.1 1.2"},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"]`, newer("1g.10gb 1g.10gb", small), "0.0 1.0 1.1 1.2"},
		{`devices = ["1g.10gb", "3g.40gb"]`, newer(small, "3g.40gb 1g.10gb"), "1.1 1.0"},
		{"devices = [\"1g.10gb\", \"1g.10gb\"]\nbackend = \"gloo\"", newer(small, small), "0.0 1.0"},
		{`devices = ["1g.10gb", "1g.10gb"]`, use(newer("1g.10gb 1g.10gb", small), 0, 0), "1.0 1.1"},
	} {
		if got := onParts(mustMake(t, on(t, 1, test.ranks), test.host)); got != test.want {
			t.Errorf("%s: ranks on %s, want %s", test.ranks, got, test.want)
		}
	}
	p := mustMake(t, on(t, 1, `devices = ["1g.10gb", "1g.10gb"]`), newer(small, small))
	mustHold(t, inWords(p.Notes), "2 MIG devices of profile 1g.10gb are taken of 1 GPU: this NCCL joins those of one GPU directly")
	if e := env(t, p, 1, plan.Meeting{}); e["NCCL_MULTI_RANK_GPU_ENABLE"] != "1" {
		t.Errorf("NCCL_MULTI_RANK_GPU_ENABLE=%q", e["NCCL_MULTI_RANK_GPU_ENABLE"])
	}
	h := newer(small, small)
	h.Devices.Inventory.CUDA = ptr("12.8")
	if got := onParts(mustMake(t, on(t, 1, `devices = ["1g.10gb", "1g.10gb"]`), h)); got != "0.0 1.0" {
		t.Errorf("with an older driver: %s", got)
	}
}

func TestWholeGPUsComeBeforeMIGDevicesAndEqualOnesBeforeAMixture(t *testing.T) {
	mixed := []string{"-", "3g.40gb 1g.10gb 1g.10gb", "3g.40gb 1g.10gb", "-"}
	for ranks, want := range map[string]string{
		"devices = 2": "0 3", "devices = 3": "1.1 1.2 2.1", "per_host = 1": "0", "devices = 4": "0 3 1.0 2.0",
	} {
		p := mustMake(t, on(t, 1, ranks+"\nbackend = \"gloo\""), cut(mixed...))
		if got := onParts(p); got != want {
			t.Errorf("%s: ranks on %s, want %s", ranks, got, want)
		}
	}
	if p := mustMake(t, on(t, 1, "devices = 2\nbackend = \"gloo\""), cut(mixed[1:3]...)); onParts(p) != "0.0 1.0" {
		t.Errorf("two of the largest: %s", onParts(p))
	}
}

func TestRanksOnUnlikeDevicesAreWarnedOf(t *testing.T) {
	h := cut("3g.40gb 1g.10gb", "-")
	mustHold(t, inWords(mustMake(t, on(t, 1, "backend = \"gloo\""), h).Warnings), "unlike devices (1 whole GPU and MIG devices, 1 of 3g.40gb, 1 of 1g.10gb)", `devices = "3g.40gb"`)
	for _, ranks := range []string{"devices = [1]", `devices = "3g.40gb"`, `devices = ["3g.40gb", "1g.10gb"]`} {
		if p := mustMake(t, on(t, 1, ranks+"\nbackend = \"gloo\""), h); problem(p.Warnings, "mig_unlike") != nil {
			t.Errorf("%s: %v", ranks, p.Warnings)
		}
	}
}

func TestAProfileThatCannotBeHadIsExplainedAndNeverMade(t *testing.T) {
	for _, test := range []struct {
		ranks string
		host  facts.Host
		says  []string
	}{
		{`devices = ["2g.20gb"]`, cut("3g.40gb 1g.10gb 1g.10gb", "-"), []string{"job.hcl:8", "m0 has no MIG device of profile 2g.20gb", "it has 1 of 3g.40gb, 2 of 1g.10gb",
			"muster never changes the layout", "nvidia-smi mig -i 0 -cgi 2g.20gb -C"}},
		{`devices = "2g.20gb"`, cut("-", ""), []string{"m0 has no MIG device of profile 2g.20gb", "its GPUs with MIG have no devices", "mig -i 1 -cgi"}},
		{`devices = "2g.20gb"`, cut("-", "-"), []string{"MIG is on for none of its GPUs", "nvidia-smi -i N -mig 1"}},
		{`devices = ["1g.10gb", "1g.10gb", "1g.10gb"]`, cut("1g.10gb", "1g.10gb 3g.40gb"), []string{"3 MIG devices of profile 1g.10gb asked, but it has 2", "2 of 1g.10gb, 1 of 3g.40gb"}},
		{`devices = ["1g.10gb", "1g.10gb"]`, use(cut("1g.10gb", "1g.10gb 3g.40gb"), 1, 0), []string{"only 1 of its 2 can be had", "MIG device 0 of GPU 1 is busy", "pid 100 (python)", "min_free"}},
		{`devices = "1g.10gb"`, use(cut("1g.10gb", "1g.10gb"), 1, 0), []string{"all 2 MIG devices are asked for", "MIG device 0 of GPU 1 is busy"}},
		{"devices = \"1g.10gb\"\nper_host = 3", cut("1g.10gb", "1g.10gb"), []string{"3 ranks asked, but it has 2 MIG devices only"}},
		{"min_free = \"12GiB\"\ndevices = [\"1g.10gb\"]", cut("1g.10gb", "-"), []string{"10.0 GiB free of 10.0 GiB, less than min_free"}},
		{"", cut("-", ""), []string{"GPU 1 has MIG on and it has no instances, and muster makes none", "nvidia-smi mig -i 1 -cgi", "-lgip", "nvidia-smi mig -i 1 -cci", "nvidia-smi -i 1 -mig 0"}},
		{"devices = [1]", cut("-", ""), []string{"GPU 1 has MIG on and cannot be used itself", "nvidia-smi mig -i 1 -cgi"}},
		{"devices = 2", cut("-", ""), []string{"2 GPUs asked, but it has 1 GPU", "GPU 1 has MIG on and it has no instances"}},
		{`devices = ["1g.10gb"]`, setVisible(cut("1g.10gb 3g.40gb"), migUUID(0, 1)), []string{"no MIG device of profile 1g.10gb among those that CUDA_VISIBLE_DEVICES=" + migUUID(0, 1) + " allows"}},
		{"per_host = 1\ndevices = [\"1g.10gb\", \"1g.10gb\"]", cut("1g.10gb", "1g.10gb"), []string{"a process can use one MIG device only"}},
	} {
		mustHold(t, refusal(t, on(t, 1, test.ranks+"\nbackend = \"gloo\""), test.host), test.says...)
	}
	if p := mustMake(t, on(t, 1, "devices = 1"), cut("-", "")); onParts(p) != "0" {
		t.Errorf("beside a GPU without instances: %s", onParts(p))
	}
}

// A list of CUDA's in a host's environment may have the names of old drivers.
func TestOldNamesOfMIGDevicesRestrictTheChoice(t *testing.T) {
	h := cut("1g.10gb 1g.10gb", "-")
	p := mustMake(t, on(t, 1, ""), setVisible(h, "MIG-"+uuid(0, 0)+"/2/0"))
	if onParts(p) != "0.1" || visible(t, p, 0) != migUUID(0, 1) {
		t.Errorf("rank on %s sees %s", onParts(p), visible(t, p, 0))
	}
	old := h
	for i := range old.Devices.Inventory.GPUs[0].MIG.Instances {
		m := &old.Devices.Inventory.GPUs[0].MIG.Instances[i]
		m.UUID = fmt.Sprintf("MIG-%s/%d/%d", uuid(0, 0), *m.GI, *m.CI)
	}
	p = mustMake(t, on(t, 1, `devices = ["MIG-`+uuid(0, 0)+`/2/0"]`), old)
	if got := visible(t, p, 0); got != "MIG-"+uuid(0, 0)+"/2/0" {
		t.Errorf("with an old driver a rank sees %s", got)
	}
}

func TestNCCLBetweenMIGDevicesIsToldByItsVersion(t *testing.T) {
	with := func(layout []string, nccl, cuda string) facts.Host {
		h := cut(layout...)
		h.Software, h.Devices.Inventory.CUDA = &facts.Software{Torch: "2.9.0", NCCL: nccl}, &cuda
		return h
	}
	one, two := []string{"3g.40gb 3g.40gb"}, []string{"3g.40gb", "3g.40gb"}
	for _, test := range []struct {
		host                facts.Host
		warned, noted, says string
	}{
		{with(one, "2.27.5", "13.0"), "nccl_shared_gpu", "", `("Duplicate GPU detected"): there is 2.27.5`},
		{with(one, "2.31.1", "12.8"), "nccl_shared_gpu", "", "CUDA 13.0, and there is 12.8"},
		{with(one, "", "13.0"), "nccl_shared_gpu", "", "not known"},
		{with(one, "2.31.1", "13.0"), "", "nccl_mig", "NCCL 2.31.1 takes MIG devices (experimental): those of one GPU reach each other directly"},
		{with(two, "2.27.5", "13.0"), "nccl_mig", "", "supports MIG devices since 2.31 only: there is 2.27.5"},
		{with(two, "2.31.1", "13.0"), "", "nccl_mig", "experimental"},
	} {
		p := mustMake(t, on(t, 1, ""), test.host)
		got, want := "", test.warned
		for _, w := range p.Warnings {
			if strings.HasPrefix(w.Code, "nccl") {
				got += w.Code
			}
		}
		noted := problem(p.Notes, "nccl_mig") != nil
		if got != want || noted != (test.noted != "") {
			t.Errorf("%s: warned of %q, noted %v; want %q, %q", test.says, got, noted, want, test.noted)
		}
		mustHold(t, inWords(slices.Concat(p.Warnings, p.Notes)), test.says)
		if p := mustMake(t, on(t, 1, "backend = \"gloo\""), test.host); problem(p.Warnings, "nccl_mig") != nil || problem(p.Warnings, "nccl_shared_gpu") != nil {
			t.Errorf("with gloo: %v", p.Warnings)
		}
	}
}

// Compute instances of one GPU instance have its memory in common.
func TestMemoryThatComputeInstancesHaveInCommonIsCountedOnce(t *testing.T) {
	h := cut("1c.3g.40gb 1c.3g.40gb 3g.40gb", "-")
	m := h.Devices.Inventory.GPUs[0].MIG.Instances
	m[1].GI, m[1].CI = m[0].GI, ptr(1)
	p := mustMake(t, needing(t, 1, "devices = [\""+migUUID(0, 0)+"\", \""+migUUID(0, 1)+"\", \""+migUUID(0, 2)+"\"]\nbackend = \"gloo\"", "parameters = \"1.5B\""), h)
	var sharing []int
	for _, r := range p.Memory.Ranks {
		sharing = append(sharing, r.Sharing)
	}
	if !slices.Equal(sharing, []int{2, 2, 1}) || p.Memory.Ranks[0].Verdict != memory.TooLarge || p.Memory.Ranks[2].Verdict == memory.TooLarge {
		t.Errorf("sharing %v, verdicts %v and %v", sharing, p.Memory.Ranks[0].Verdict, p.Memory.Ranks[2].Verdict)
	}
	h = use(h, 0, 1)
	m[0].Used = m[1].Used
	if p := mustMake(t, on(t, 1, "devices = [\"1c.3g.40gb\"]"), h); onParts(p) != "0.0" {
		t.Errorf("beside a neighbour's compute instance: %s", onParts(p))
	}
}

func TestMPSOnAMIGDeviceTakesItsShareOfClients(t *testing.T) {
	block := func(n int) string { return fmt.Sprintf("mps {\n ranks_per_gpu = %d\n}", n) }
	h := cut("1g.10gb 3g.40gb")
	h.Devices.Inventory.CUDA, h.Devices.Inventory.Driver = ptr("12.4"), ptr("550.54.15")
	j := func(n int) string {
		return "job \"j\" {\n command = [\"true\"]\n mode = \"independent\"\n hosts \"ssh\" {\n names = [\"m0\"]\n }\n ranks {\n devices = [\"1g.10gb\"]\n }\n" + block(n) + "\n}"
	}
	mustHold(t, refusal(t, job(t, j(8)), h), "ranks_per_gpu = 8: MPS takes 7 clients on MIG device 0 of GPU 0")
	mustMake(t, job(t, j(7)), h)
	h.Devices.Inventory.Driver = ptr("460.32.03")
	mustHold(t, refusal(t, job(t, j(2)), h), "drivers before 470 give a MIG device no name")
}

// MIG, MPS and NCCL together are one thing that does not work, by the release that takes it.
func TestOfRanksThatShareMIGDevicesByMPSOneThingIsSaidOfNCCL(t *testing.T) {
	for _, c := range []struct{ devices, version, want string }{
		{`["MIG-00"]`, "", "m0: ranks share a MIG device, and NCCL takes one rank of a job per MIG device, with MPS too"},
		{`["MIG-00"]`, "2.30.4", "before 2.31 that cannot be changed, and there is 2.30.4"},
		{`["MIG-00", "MIG-01"]`, "2.27.3", "before 2.31"},
		{`["MIG-00"]`, "2.31.2", "NCCL_MULTI_RANK_GPU_ENABLE"},
		{`["MIG-00", "MIG-01"]`, "2.31.2", "its 2 MIG devices have an MPS daemon each"},
	} {
		h := cut("1g.10gb 1g.10gb", "1g.10gb")
		h.MPS, h.Devices.Inventory.CUDA = withMPS(1).MPS, ptr("13.0")
		if c.version != "" {
			h.Software = &facts.Software{Torch: "2.9.0", NCCL: c.version}
		}
		j := job(t, "job \"j\" {\n command = [\"true\"]\n hosts \"ssh\" {\n names = [\"m0\"]\n }\n ranks {\n devices = "+c.devices+"\n }\n mps {\n ranks_per_gpu = 2\n }\n}")
		if found := mustMake(t, j, h).Warnings; len(found) != 1 || !strings.Contains(found[0].Message, c.want) {
			t.Errorf("%s with NCCL %q: want %q only:\n%s", c.devices, c.version, c.want, inWords(found))
		}
	}
}

// NCCL joins them directly then, and that is no slow link.
func TestAGroupOnPartsOfOneGPUIsNotSaidToBeSlowWhereNCCLJoinsThem(t *testing.T) {
	for version, want := range map[string]bool{"2.31.2": false, "2.27.3": true} {
		h := cut("1g.10gb 1g.10gb")
		h.Devices.Inventory.CUDA, h.Software = ptr("13.0"), &facts.Software{NCCL: version}
		p := mustMake(t, on(t, 1, "groups = { tensor = 2 }"), h)
		if got := strings.Contains(inWords(p.Warnings), "not on fast links"); got != want {
			t.Errorf("NCCL %s: %s", version, inWords(p.Warnings))
		}
	}
}
