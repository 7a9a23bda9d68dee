package nvidiasmi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// replay answers the four commands from recorded outputs; what it lacks ends as an
// unknown option does.
type replay struct {
	mu      sync.Mutex
	asked   []string
	outputs map[string]answer
}

func (r *replay) Run(_ context.Context, args ...string) (Output, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	command := strings.Join(args, " ")
	r.asked = append(r.asked, command)
	if a, is := r.outputs[command]; is {
		return a.Output, a.err
	}
	return Output{Stdout: []byte("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"), Exit: 2}, nil
}

func said(texts ...string) answer {
	return answer{Output: Output{Stdout: []byte(strings.Join(texts, ""))}}
}

func (a answer) exit(status int) answer {
	a.Exit = status
	return a
}

// machineOf is a runner with these answers to -q -x, -L, topo -m and nvlink -s.
func machineOf(query, list, topology, links answer) *replay {
	return &replay{outputs: map[string]answer{"-q -x": query, "-L": list, "topo -m": topology, "nvlink -s": links}}
}

// probe probes and checks what holds for every result.
func probe(t *testing.T, r Runner) *gpu.Inventory {
	t.Helper()
	got, err := New(r).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.GPUs == nil || len(got.Links) != len(got.GPUs) {
		t.Errorf("%d GPUs, %d rows of links", len(got.GPUs), len(got.Links))
	}
	for i, row := range got.Links {
		if len(row) != len(got.GPUs) || row[i] != "X" {
			t.Errorf("row %d of links: %v", i, row)
		}
	}
	for _, name := range got.Unknown() {
		if got.Why[name] == "" {
			t.Errorf("%s is nil without a reason", name)
		}
	}
	seen := map[int]bool{}
	for _, card := range got.GPUs {
		if seen[card.Index] || card.Index < 0 {
			t.Errorf("index %d of GPU %s", card.Index, card.UUID)
		}
		seen[card.Index] = true
		for _, name := range card.Unknown() {
			if card.Why[name] == "" {
				t.Errorf("GPU %d: %s is nil without a reason", card.Index, name)
			}
		}
		for name := range card.Why {
			if name != "state" && !slices.Contains(card.Unknown(), name) {
				t.Errorf("GPU %d: %s has a value and a reason why not", card.Index, name)
			}
		}
	}
	if !slices.IsSortedFunc(got.GPUs, func(a, b gpu.GPU) int { return a.Index - b.Index }) {
		t.Error("GPUs are not in the order of their indices")
	}
	return got
}

// hgx makes the answers of a machine of n GPUs, from the H100 samples: UUID GPU-3 and bus
// 03 are those of GPU 3.
func hgx(t *testing.T, n int) (query, list, topology, links string) {
	gpuText := string(asXML(sample(t, "nvidia-smi/q-load-h100.txt")))
	begin, end := strings.Index(gpuText, "<gpu id"), strings.Index(gpuText, "</gpu>")+len("</gpu>\n")
	linkText := string(sample(t, "nvidia-smi/nvlink-s-h100.txt"))
	query, topology = gpuText[:begin], "\t"
	for i := range n {
		as := strings.NewReplacer("GPU-00000000-0000-0000-0000-000000000000", fmt.Sprintf("GPU-%d", i), "00000000:00:09.0", fmt.Sprintf("00000000:%02X:00.0", i), "GPU 0:", fmt.Sprintf("GPU %d:", i))
		query += as.Replace(gpuText[begin:end])
		list += as.Replace(string(sample(t, "nvidia-smi/L-h100.txt")))
		links += as.Replace(linkText)
		topology += fmt.Sprintf("GPU%d\t", i)
	}
	query = strings.Replace(query, "<attached_gpus>1", fmt.Sprintf("<attached_gpus>%d", n), 1) + gpuText[end:]
	topology += "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
	for i := range n {
		cells := slices.Repeat([]string{"NV18"}, n)
		cells[i] = " X "
		topology += fmt.Sprintf("GPU%d\t%s\t0-47\t0\t\tN/A\n", i, strings.Join(cells, "\t"))
	}
	return query, list, topology, links
}

func TestFourAnswersMakeOneMachine(t *testing.T) {
	query, list, topology, links := hgx(t, 8)
	r := machineOf(said(query), said(list), said(topology), said(links))
	got := probe(t, r)
	slices.Sort(r.asked)
	same(t, "asked", strings.Join(r.asked, ", "), "-L, -q -x, nvlink -s, topo -m")
	same(t, "source", got.Source, "nvidia-smi")
	same(t, "driver", show(got.Driver)+" "+show(got.CUDA), "590.48.01 13.1")
	same(t, "GPUs", len(got.GPUs), 8)
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1, 2, 3, 4, 5, 6, 7}})
	same(t, "notes", len(got.Notes), 0)
	for i, card := range got.GPUs {
		same(t, "PCI", card.PCI, fmt.Sprintf("0000:%02x:00.0", i))
		same(t, "links", active(card.NVLinks), 18)
	}
}

func TestTheH100OfTheSamplesIsWhole(t *testing.T) {
	got := probe(t, machineOf(said(string(asXML(sample(t, "nvidia-smi/q-load-h100.txt")))), said(string(sample(t, "nvidia-smi/L-h100.txt"))),
		said(string(sample(t, "topo/44-single-h100-ansi-driver590.txt"))), said(string(sample(t, "nvidia-smi/nvlink-s-h100.txt")))))
	card := got.GPUs[0]
	same(t, "unknown", card.Unknown(), []string{"retired.single_bit", "retired.double_bit", "retired.pending"})
	same(t, "reason", card.Why["retired.pending"], `nvidia-smi says "N/A"`)
	same(t, "unknown of the machine", len(got.Unknown()), 0)
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"links":[["X"]]`) {
		t.Errorf("JSON %s: %v", text, err)
	}
}

func TestMIGDevicesGetTheirNamesFromTheList(t *testing.T) {
	got := probe(t, machineOf(said(string(asXML(sample(t, "nvidia-smi/q-load-h100-mig.txt")))), said(string(sample(t, "nvidia-smi/L-h100-mig.txt"))),
		said(string(sample(t, "topo/45-single-h100-mig-ansi-driver590.txt"))), said(string(sample(t, "nvidia-smi/nvlink-s-h100-mig.txt")))))
	card := got.GPUs[0]
	var names []string
	for _, mig := range card.MIG.Instances {
		names = append(names, fmt.Sprintf("%s %s %d/%d %s", mig.UUID, mig.Profile, *mig.GI, *mig.CI, mibs(mig.Memory)))
	}
	same(t, "MIG", strings.Join(names, ", "), "MIG-00000000-0000-0000-0000-000000000000 3g.40gb 2/0 40448, MIG-00000001-0000-0000-0000-000000000001 2g.20gb 3/0 20096, "+
		"MIG-00000002-0000-0000-0000-000000000002 1g.10gb 9/0 9984, MIG-00000003-0000-0000-0000-000000000003 1g.10gb 10/0 9984")
	if card.NVLinks != nil || !strings.Contains(card.Why["nvlinks"], "MIG") {
		t.Errorf("NVLinks %v: %q", card.NVLinks, card.Why["nvlinks"])
	}
}

func TestALostGPUStaysInTheList(t *testing.T) {
	query, list, topology, links := hgx(t, 4)
	without := func(text, begin, end string) string {
		from := strings.Index(text, begin)
		to := from + strings.Index(text[from:], end)
		return text[:from] + text[to:]
	}
	query = without(query, `<gpu id="00000000:01`, `<gpu id="00000000:02`)
	list = without(list, "GPU 1:", "GPU 2:")
	links = without(links, "GPU 1:", "GPU 2:")
	for name, sentence := range map[string]string{
		"by index and address": "Unable to determine the device handle for GPU1: 0000:01:00.0: Unknown Error\n",
		"by address":           "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
		"by index":             "Unable to determine the device handle for GPU1: Unknown Error\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, list := range []string{sentence + list, ""} {
				got := probe(t, machineOf(said(sentence, query).exit(15), said(list).exit(15), said(topology), said(sentence, links).exit(15)))
				var states []string
				for _, card := range got.GPUs {
					states = append(states, fmt.Sprintf("%d %s %s", card.Index, card.UUID, card.State))
				}
				same(t, "GPUs", strings.Join(states, ", "), "0 GPU-0 ok, 1  lost, 2 GPU-2 ok, 3 GPU-3 ok")
				lost := got.GPUs[1]
				same(t, "reason", lost.Why["state"]+lost.Why["memory.total"], strings.Repeat(strings.TrimSpace(sentence), 2))
				same(t, "links of the others", got.Links[0][3], "NV18")
				same(t, "notes", len(got.Notes), 0)
			}
		})
	}
}

func TestLinksAreUnknownWhereTheTableNumbersOtherGPUs(t *testing.T) {
	query, list, _, links := hgx(t, 4)
	_, _, three, _ := hgx(t, 3)
	got := probe(t, machineOf(said(query), said(list), said(three), said(links)))
	if gpu.Islands(got.Links) != nil || !strings.Contains(got.Why["links"], "[0 1 2]") {
		t.Errorf("links %v: %q", got.Links, got.Why["links"])
	}
	// The last is lost and the table does without it: the others are known.
	lost := "Unable to determine the device handle for GPU3: 0000:03:00.0: Unknown Error\n"
	got = probe(t, machineOf(said(lost, query).exit(15), said(list), said(three), said(links)))
	same(t, "state", got.GPUs[3].State, gpu.StateLost)
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1, 2}, {3}})
}

func TestADamagedTopologyLeavesTheRest(t *testing.T) {
	query, list, topology, links := hgx(t, 4)
	got := probe(t, machineOf(said(query), said(list), said(topology[:len(topology)-60]), said(links)))
	same(t, "GPUs", len(got.GPUs), 4)
	same(t, "link", got.Links[0][1], "")
	if got.Why["links"] == "" || len(got.Notes) == 0 {
		t.Errorf("why %q, notes %q", got.Why["links"], got.Notes)
	}
}

func TestEveryTopologySampleFitsAMachineOfItsSize(t *testing.T) {
	for _, want := range rightTables(t) {
		if want.Error != "" || want.GPUs < 2 {
			continue
		}
		query, list, _, links := hgx(t, want.HeaderGPUs)
		got := probe(t, machineOf(said(query), said(list), said(string(sample(t, "topo/"+want.Name))), said(links)))
		same(t, want.Name, gpu.Islands(got.Links), want.Islands)
		same(t, want.Name+": links are known", got.Why["links"] == "", !want.Truncated)
		same(t, want.Name+": notes", len(got.Notes), len(want.Warnings))
	}
}

func TestLinksThatAreDownShowAgainstTheSisters(t *testing.T) {
	query, list, topology, _ := hgx(t, 3)
	links := string(sample(t, "nvidia-smi/nvlink-s-a6000-pair-plus-inactive.txt"))
	for i := range 3 {
		links = strings.Replace(links, fmt.Sprintf("GPU-0000000%d-0000-0000-0000-00000000000%d", i+1, i+1), fmt.Sprintf("GPU-%d", i), 1)
	}
	links = strings.Replace(links, "Link 3: 14.062 GB/s", "Link 3: <inactive>", 1)
	got := probe(t, machineOf(said(query), said(list), said(topology), said(links)))
	for i, want := range []string{"3 of 4", "4 of 4", "0 of 4"} {
		card := got.GPUs[i]
		same(t, "active", fmt.Sprintf("%d of %d", active(card.NVLinks), len(card.NVLinks)), want)
	}
	none := string(sample(t, "nvidia-smi/nvlink-s-a100-pcie-all-inactive.txt"))
	query, list, topology, _ = hgx(t, 2)
	got = probe(t, machineOf(said(query), said(list), said(topology), said(strings.NewReplacer("GPU-00000001-0000-0000-0000-000000000001", "GPU-0", "GPU-00000002-0000-0000-0000-000000000002", "GPU-1").Replace(none))))
	if links := got.GPUs[0].NVLinks; links == nil || len(links) != 0 {
		t.Errorf("links %v: all inactive, their number not told", links)
	}
}

func TestEveryNVLinkSampleHasLinksOrAReason(t *testing.T) {
	for _, path := range samples(t, "nvidia-smi/nvlink-s-*") {
		text := sample(t, path)
		reports := plaintext.ParseNVLink(text)
		var query, list strings.Builder
		query.WriteString("<nvidia_smi_log>")
		for _, r := range reports {
			fmt.Fprintf(&query, "<gpu><product_name>%s</product_name><uuid>%s</uuid></gpu>", r.Name, r.UUID)
			fmt.Fprintf(&list, "GPU %d: %s (UUID: %s)\n", r.Index, r.Name, r.UUID)
		}
		query.WriteString("</nvidia_smi_log>")
		got := probe(t, machineOf(said(query.String()), said(list.String()), answer{}, said(string(text))))
		for i, card := range got.GPUs {
			wantNil := reports[i].State == plaintext.LinksHidden || reports[i].State == plaintext.LinksUnsupported
			same(t, path, card.NVLinks == nil, wantNil)
		}
	}
}

func TestIndicesComeFromTheListAndNotFromTheOrder(t *testing.T) {
	query, _, topology, links := hgx(t, 3)
	list := "GPU 2: H100 (UUID: GPU-0)\nGPU 0: H100 (UUID: GPU-1)\nGPU 1: H100 (UUID: GPU-2)\n"
	got := probe(t, machineOf(said(query), said(list), said(topology), said(links)))
	var order []string
	for _, card := range got.GPUs {
		order = append(order, card.UUID)
	}
	same(t, "order", strings.Join(order, " "), "GPU-1 GPU-2 GPU-0")
}

func TestGPUsOfTheListAreKeptWhenTheQueryHangs(t *testing.T) {
	query, list, topology, links := hgx(t, 4)
	cut := query[:strings.Index(query, `<gpu id="00000000:02`)+300]
	hung := said(cut)
	hung.err = errors.New("no end within 5s, killed")
	hung.Exit = -1
	got := probe(t, machineOf(hung, said(list), said(topology), said(links)))
	var states []string
	for _, card := range got.GPUs {
		states = append(states, card.State)
	}
	same(t, "states", strings.Join(states, " "), "ok ok unknown unknown")
	same(t, "reason", got.GPUs[2].Why["memory.total"], "no end within 5s, killed")
	same(t, "islands", gpu.Islands(got.Links), [][]int{{0, 1, 2, 3}})
	same(t, "name", got.GPUs[3].Name, "NVIDIA H100 80GB HBM3")
}

func TestWithoutAnyGPUTheReasonIsAnError(t *testing.T) {
	for _, path := range samples(t, "nvidia-smi/fail-*.txt") {
		want := rightAnswers(t)[strings.TrimPrefix(path, "nvidia-smi/")]
		text := said(string(sample(t, path))).exit(9)
		got, err := New(machineOf(text, text, text, text)).Probe(t.Context())
		switch {
		case want.Class == plaintext.NoGPU:
			if err != nil || len(got.GPUs) != 0 || len(got.Notes) != 1 {
				t.Errorf("%s: %+v, %v", path, got, err)
			}
		case want.Class == plaintext.GPULost:
			if err != nil || len(got.GPUs) != 1 || got.GPUs[0].State != gpu.StateLost {
				t.Errorf("%s: %+v, %v", path, got, err)
			}
		default:
			if failure, is := errors.AsType[*plaintext.Failure](err); !is || failure.Class != want.Class {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestWithoutAWordTheExitStatusIsTheReason(t *testing.T) {
	for status, want := range map[int]string{9: plaintext.DriverMissing, 12: plaintext.DriverLibrary, 18: plaintext.DriverMismatch, 4: plaintext.DriverPermission} {
		a := answer{}.exit(status)
		_, err := New(machineOf(a, a, a, a)).Probe(t.Context())
		if failure, is := errors.AsType[*plaintext.Failure](err); !is || failure.Class != want {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for _, a := range []answer{{}, {err: ErrNotInstalled}, answer{}.exit(255), said("garbage\n")} {
		got, err := New(machineOf(a, a, a, a)).Probe(t.Context())
		if err == nil || a.err != nil && !errors.Is(err, a.err) {
			t.Errorf("%+v: %+v, %v", a, got, err)
		}
	}
}

func TestADriverWithoutGPUsIsNoError(t *testing.T) {
	got := probe(t, machineOf(said("<nvidia_smi_log><driver_version>550.54.15</driver_version><attached_gpus>0</attached_gpus></nvidia_smi_log>"), answer{}, answer{}, answer{}))
	same(t, "GPUs", len(got.GPUs), 0)
	same(t, "driver", show(got.Driver), "550.54.15")
}

func TestWhatDoesNotFitIsNoted(t *testing.T) {
	query, list, topology, links := hgx(t, 2)
	query = strings.Replace(query, "<attached_gpus>2", "<attached_gpus>3", 1)
	got := probe(t, machineOf(said("WARNING: infoROM is corrupted at gpu 0000:01:00.0\n", query).exit(14), said(list), said(topology), said(links, "\t Link 18: odd\n")))
	same(t, "notes", strings.Join(got.Notes, "; "), `WARNING: infoROM is corrupted at gpu 0000:01:00.0; GPUs by the driver: 3, by nvidia-smi: 2; GPU 1: nvidia-smi nvlink -s says "Link 18: odd"`)
}

func TestAGPUThatNeedsAResetIsSeenByItsLinks(t *testing.T) {
	query, list, topology, _ := hgx(t, 1)
	got := probe(t, machineOf(said(query), said(list), said(topology), said(list, "NVML: GPU requires reset\n")))
	same(t, "state", got.GPUs[0].State, gpu.StateNeedsReset)
}
