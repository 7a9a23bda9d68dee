package nvidiasmi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// machine is what the answers amount to so far.
type machine struct {
	gpu.Inventory
	told map[string]bool // sentences that are in the notes or with a GPU
}

const untold = "nvidia-smi does not tell it"

// combine puts the four answers together. All GPUs come from -q -x; those that it leaves
// out from the sentences about lost ones and from -L.
func combine(a answers) (*gpu.Inventory, error) {
	log, logErr := ParseXML(a.query.Stdout)
	list := plaintext.ParseList(a.list.Stdout)
	m := &machine{told: map[string]bool{}, Inventory: gpu.Inventory{
		Source: Source, Driver: log.Driver, CUDA: log.CUDA, Why: log.Why, GPUs: append([]gpu.GPU{}, log.GPUs...),
	}}
	m.takeNames(list)
	trouble := a.query.trouble()
	why := cmp.Or(trouble, logErr)
	m.takeUnqueried(list, why)
	var failures []*plaintext.Failure
	for _, answer := range []answer{a.query, a.list, a.topology, a.links} {
		failures = append(failures, answer.failures()...)
	}
	for _, f := range failures {
		m.takeFailure(f)
	}
	if len(m.Inventory.GPUs) == 0 {
		var failure *plaintext.Failure
		if !errors.As(trouble, &failure) && len(failures) > 0 {
			why = failures[0]
		}
		noGPU := slices.IndexFunc(failures, func(f *plaintext.Failure) bool { return f.Class == plaintext.NoGPU })
		if why != nil && noGPU < 0 {
			return nil, why
		}
		if noGPU >= 0 {
			m.note(failures[noGPU].Text)
		}
		m.Links = [][]gpu.Link{}
		m.Explain("nvidia-smi tells nothing without a GPU")
		return &m.Inventory, nil
	}
	m.takeQuery(a.query, log, logErr)
	m.number()
	m.takeNVLinks(a.links)
	m.takeTopology(a.topology)
	m.explain(why)
	return &m.Inventory, nil
}

func (m *machine) note(text string) {
	if !m.told[text] {
		m.told[text] = true
		m.Notes = append(m.Notes, text)
	}
}

// byUUID finds a GPU, nil where there is none.
func (m *machine) byUUID(uuid string) *gpu.GPU {
	return m.find(func(g *gpu.GPU) bool { return uuid != "" && g.UUID == uuid })
}

func (m *machine) find(is func(*gpu.GPU) bool) *gpu.GPU {
	for i := range m.Inventory.GPUs {
		if card := &m.Inventory.GPUs[i]; is(card) {
			return card
		}
	}
	return nil
}

func (m *machine) add(card gpu.GPU) *gpu.GPU {
	card.Why = map[string]string{}
	m.Inventory.GPUs = append(m.Inventory.GPUs, card)
	return &m.Inventory.GPUs[len(m.Inventory.GPUs)-1]
}

// takeNames takes from -L the index of each GPU and the names of its MIG devices.
func (m *machine) takeNames(list []plaintext.Listed) {
	for _, listed := range list {
		card := m.byUUID(listed.UUID)
		if card == nil || card.Index >= 0 {
			continue
		}
		card.Index = listed.Index
		for i := range card.MIG.Instances {
			instance := &card.MIG.Instances[i]
			for _, mig := range listed.MIG {
				if mig.Index == instance.Index {
					instance.UUID, instance.Profile = mig.UUID, mig.Profile
				}
			}
		}
		if n := len(card.MIG.Instances); n != len(listed.MIG) {
			m.note(fmt.Sprintf("GPU %d: nvidia-smi -q -x tells of %d MIG devices, nvidia-smi -L of %d", listed.Index, n, len(listed.MIG)))
		}
	}
}

// takeUnqueried takes GPUs that -L lists and -q -x does not tell of, as when the driver
// hangs in the middle of it.
func (m *machine) takeUnqueried(list []plaintext.Listed, why error) {
	for _, listed := range list {
		if listed.UUID == "" || m.byUUID(listed.UUID) != nil {
			continue
		}
		card := m.add(gpu.GPU{Index: listed.Index, UUID: listed.UUID, Name: listed.Name, State: gpu.StateUnknown})
		for _, mig := range listed.MIG {
			instance := gpu.MIGInstance{Index: mig.Index, UUID: mig.UUID, Profile: mig.Profile}
			card.MIG.Instances = append(card.MIG.Instances, instance)
		}
		if why == nil {
			why = errors.New("nvidia-smi -L lists it, and nvidia-smi -q -x does not")
		}
		card.Explain(why.Error())
	}
}

// states of the GPU that a sentence is about.
var states = map[string]string{
	plaintext.GPULost: gpu.StateLost, plaintext.GPUNeedsReset: gpu.StateNeedsReset,
	plaintext.GPUUnknown: gpu.StateUnknown,
}

// takeFailure gives a GPU the state that a sentence says, and adds the GPU where only
// the sentence knows of it.
func (m *machine) takeFailure(f *plaintext.Failure) {
	state := states[f.Class]
	if state == "" || f.GPU == nil && f.PCI == "" && f.UUID == "" {
		m.note(f.Text)
		return
	}
	m.told[f.Text] = true
	card := m.find(func(g *gpu.GPU) bool {
		switch {
		case f.UUID != "":
			return g.UUID == f.UUID
		case f.PCI != "" && g.PCI != "":
			return g.PCI == f.PCI
		default:
			return f.GPU != nil && g.Index == *f.GPU
		}
	})
	if card == nil {
		card = m.add(gpu.GPU{Index: -1, UUID: f.UUID, PCI: f.PCI})
	}
	if f.GPU != nil && card.Index < 0 && m.find(func(g *gpu.GPU) bool { return g.Index == *f.GPU }) == nil {
		card.Index = *f.GPU
	}
	card.PCI = cmp.Or(card.PCI, f.PCI)
	if card.State != gpu.StateLost {
		card.State = state
	}
	card.Why["state"] = f.Text
}

// takeQuery notes where -q -x as a whole is not what it should be.
func (m *machine) takeQuery(query answer, log *Log, logErr error) {
	if query.err != nil {
		m.note("nvidia-smi -q -x: " + query.err.Error())
	}
	if logErr != nil && len(log.GPUs) > 0 {
		m.note(logErr.Error())
	}
	if n := len(m.Inventory.GPUs); log.Attached != nil && *log.Attached != n {
		m.note(fmt.Sprintf("GPUs by the driver: %d, by nvidia-smi: %d", *log.Attached, n))
	}
}

// number gives an index to each GPU that has none, or one that another has: the free ones
// in the order of the output, where a GPU that is not in it stands by its PCI address.
// Then it sorts.
func (m *machine) number() {
	gpus := m.Inventory.GPUs
	used := map[int]bool{}
	for i := range gpus {
		if used[gpus[i].Index] {
			gpus[i].Index = -1
		}
		used[gpus[i].Index] = true
	}
	var waiting []*gpu.GPU
	for i := range gpus {
		card := &gpus[i]
		if card.Index >= 0 {
			continue
		}
		at := len(waiting)
		if card.Name == "" && card.PCI != "" {
			if next := slices.IndexFunc(waiting, func(w *gpu.GPU) bool { return w.PCI > card.PCI }); next >= 0 {
				at = next
			}
		}
		waiting = slices.Insert(waiting, at, card)
	}
	next := 0
	for _, card := range waiting {
		for used[next] {
			next++
		}
		card.Index, used[next] = next, true
	}
	slices.SortStableFunc(gpus, func(a, b gpu.GPU) int { return cmp.Compare(a.Index, b.Index) })
}

// takeNVLinks takes the NVLinks of each GPU.
func (m *machine) takeNVLinks(a answer) {
	reports, trouble := plaintext.ParseNVLink(a.Stdout), a.trouble()
	for i := range m.Inventory.GPUs {
		card := &m.Inventory.GPUs[i]
		at := slices.IndexFunc(reports, func(r plaintext.LinkReport) bool {
			if r.UUID == "" || card.UUID == "" {
				return r.Index == card.Index
			}
			return r.UUID == card.UUID
		})
		delete(card.Why, "nvlinks")
		switch {
		case at >= 0:
			m.takeReport(card, reports[at], reports)
		case trouble != nil:
			card.Why["nvlinks"] = trouble.Error()
		default:
			card.Why["nvlinks"] = "nvidia-smi nvlink -s does not tell of it"
		}
	}
}

func (m *machine) takeReport(card *gpu.GPU, report plaintext.LinkReport, all []plaintext.LinkReport) {
	switch report.State {
	case plaintext.LinksListed:
		card.NVLinks = append([]gpu.NVLink{}, report.Links...)
	case plaintext.LinksInactive:
		card.NVLinks = inactiveLike(report.Name, all)
	case plaintext.LinksHidden:
		card.Why["nvlinks"] = "MIG mode hides the NVLinks"
	case plaintext.LinksUnsupported:
		card.Why["nvlinks"] = "this product has no NVLinks"
	default:
		if f := plaintext.Classify(report.Text); f != nil && states[f.Class] != "" && card.State == gpu.StateOK {
			card.State, card.Why["state"] = states[f.Class], f.Text
		}
		card.Why["nvlinks"] = cmp.Or(report.Text, "nvidia-smi nvlink -s says nothing about it")
	}
	for _, line := range report.Puzzle {
		m.note(fmt.Sprintf("GPU %d: nvidia-smi nvlink -s says %q", card.Index, plaintext.Clip(line, 120)))
	}
}

// inactiveLike are the links of a GPU that says only that all of them are inactive: it
// has as many as another of the same product.
func inactiveLike(product string, all []plaintext.LinkReport) []gpu.NVLink {
	links := []gpu.NVLink{}
	for _, sister := range all {
		if sister.Name == product && len(sister.Links) > len(links) {
			links = slices.Clone(sister.Links)
		}
	}
	for i := range links {
		links[i].Active = false
	}
	return links
}

// takeTopology takes the links between the GPUs. All are unknown where the table is
// damaged, or numbers other GPUs than are here.
func (m *machine) takeTopology(a answer) {
	gpus := m.Inventory.GPUs
	position := map[int]int{}
	m.Links = make([][]gpu.Link, len(gpus))
	for i, card := range gpus {
		position[card.Index] = i
		m.Links[i] = make([]gpu.Link, len(gpus))
		m.Links[i][i] = "X"
	}
	if len(gpus) < 2 {
		return
	}
	table, err := plaintext.ParseTopology(a.Stdout)
	if err != nil {
		m.Why["links"] = cmp.Or(a.trouble(), err).Error()
		return
	}
	for _, problem := range table.Problems {
		m.note("nvidia-smi topo -m: " + problem)
	}
	links, err := table.Links()
	if err == nil && !m.numbers(table.Header) {
		err = fmt.Errorf("nvidia-smi topo -m shows GPUs %v, which are not those of nvidia-smi -q -x", table.Header)
	}
	if err != nil {
		m.Why["links"] = err.Error()
		return
	}
	for i, row := range links {
		for j, link := range row {
			m.Links[position[table.Header[i]]][position[table.Header[j]]] = link
		}
	}
}

// numbers tells whether these are the indices of all GPUs, or of all but those lost.
func (m *machine) numbers(indices []int) bool {
	var all, alive []int
	for _, card := range m.Inventory.GPUs {
		all = append(all, card.Index)
		if card.State != gpu.StateLost {
			alive = append(alive, card.Index)
		}
	}
	return slices.Equal(indices, all) || slices.Equal(indices, alive)
}

// explain gives a reason to all that is still nil without one.
func (m *machine) explain(query error) {
	for i := range m.Inventory.GPUs {
		card := &m.Inventory.GPUs[i]
		reason := cmp.Or(card.Why["state"], untold)
		if card.Why["state"] == "" && card.Name == "" && query != nil {
			reason = query.Error()
		}
		card.Explain(reason)
		for _, instance := range card.MIG.Instances {
			if instance.UUID == "" {
				card.Why["mig.instances.uuid"] = "nvidia-smi -L does not tell it"
			}
		}
		maps.DeleteFunc(card.Why, func(_, text string) bool { return strings.TrimSpace(text) == "" })
	}
	reason := untold
	if query != nil {
		reason = query.Error()
	}
	m.Explain(reason)
}
