package nvidiasmi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins"
)

// machine is what the answers amount to so far.
type machine struct {
	plugins.GPUs
	told map[string]bool // sentences that are in the notes or with a GPU
}

// combine puts the four answers together. All GPUs come from -q -x; those that it leaves
// out from the sentences about lost ones and from -L.
func combine(a answers) (*plugins.GPUs, error) {
	log, logErr := ParseXML(a.query.Stdout)
	list := ParseList(a.list.Stdout)
	m := &machine{told: map[string]bool{}}
	m.Source, m.Driver, m.CUDA, m.Why = Source, log.Driver, log.CUDA, log.Why
	m.GPUs.GPUs = append([]plugins.GPU{}, log.GPUs...)

	m.takeNames(list)
	why := firstOf(a.query.trouble(), logErr)
	m.takeUnqueried(list, why)
	failures := slices.Concat(a.query.failures(), a.list.failures(), a.topology.failures(), a.links.failures())
	for _, f := range failures {
		m.takeFailure(f)
	}
	if len(m.GPUs.GPUs) == 0 {
		return m.none(a, failures, logErr)
	}
	m.takeQuery(a.query, log, logErr)
	m.number()
	m.takeNVLinks(a.links)
	m.takeTopology(a.topology)
	m.explain(why)
	return &m.GPUs, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// none is the result without any GPU: a machine that has none, or an error.
func (m *machine) none(a answers, failures []*Failure, logErr error) (*plugins.GPUs, error) {
	for _, f := range failures {
		if f.Class == NoGPU {
			m.note(f.Text)
			m.Links = [][]plugins.Link{}
			m.Explain("nvidia-smi tells nothing without a GPU")
			return &m.GPUs, nil
		}
	}
	err := a.query.trouble()
	var failure *Failure
	if !errors.As(err, &failure) && len(failures) > 0 {
		err = failures[0]
	}
	if err = firstOf(err, logErr); err != nil {
		return nil, err
	}
	m.Links = [][]plugins.Link{}
	m.Explain("nvidia-smi tells nothing without a GPU")
	return &m.GPUs, nil
}

func (m *machine) note(text string) {
	if !m.told[text] {
		m.told[text] = true
		m.Notes = append(m.Notes, text)
	}
}

// byUUID finds a GPU, nil where there is none.
func (m *machine) byUUID(uuid string) *plugins.GPU {
	return m.find(func(g *plugins.GPU) bool { return uuid != "" && g.UUID == uuid })
}

func (m *machine) find(is func(*plugins.GPU) bool) *plugins.GPU {
	for i := range m.GPUs.GPUs {
		if gpu := &m.GPUs.GPUs[i]; is(gpu) {
			return gpu
		}
	}
	return nil
}

func (m *machine) add(gpu plugins.GPU) *plugins.GPU {
	m.GPUs.GPUs = append(m.GPUs.GPUs, gpu)
	return &m.GPUs.GPUs[len(m.GPUs.GPUs)-1]
}

// takeNames takes from -L the index of each GPU and the names of its MIG devices.
func (m *machine) takeNames(list []Listed) {
	for _, listed := range list {
		gpu := m.byUUID(listed.UUID)
		if gpu == nil || gpu.Index >= 0 {
			continue
		}
		gpu.Index = listed.Index
		for i := range gpu.MIG.Instances {
			instance := &gpu.MIG.Instances[i]
			for _, mig := range listed.MIG {
				if mig.Index == instance.Index {
					instance.UUID, instance.Profile = mig.UUID, mig.Profile
				}
			}
		}
		if n := len(gpu.MIG.Instances); n != len(listed.MIG) {
			m.note(fmt.Sprintf("GPU %d: nvidia-smi -q -x tells of %d MIG devices, nvidia-smi -L of %d", listed.Index, n, len(listed.MIG)))
		}
	}
}

// takeUnqueried takes GPUs that -L lists and -q -x does not tell of, as when the driver
// hangs in the middle of it.
func (m *machine) takeUnqueried(list []Listed, why error) {
	for _, listed := range list {
		if listed.UUID == "" || m.byUUID(listed.UUID) != nil {
			continue
		}
		gpu := m.add(plugins.GPU{Index: listed.Index, UUID: listed.UUID, Name: listed.Name, State: plugins.StateUnknown})
		for _, mig := range listed.MIG {
			gpu.MIG.Instances = append(gpu.MIG.Instances, plugins.MIGInstance{Index: mig.Index, UUID: mig.UUID, Profile: mig.Profile})
		}
		if why == nil {
			why = errors.New("nvidia-smi -L lists it, and nvidia-smi -q -x does not")
		}
		gpu.Explain(why.Error())
	}
}

// states of the GPU that a sentence is about.
var states = map[string]string{GPULost: plugins.StateLost, GPUNeedsReset: plugins.StateNeedsReset, GPUUnknown: plugins.StateUnknown}

// takeFailure gives a GPU the state that a sentence says, and adds the GPU where only
// the sentence knows of it.
func (m *machine) takeFailure(f *Failure) {
	state := states[f.Class]
	if state == "" || f.GPU == nil && f.PCI == "" && f.UUID == "" {
		m.note(f.Text)
		return
	}
	m.told[f.Text] = true
	gpu := m.find(func(g *plugins.GPU) bool {
		switch {
		case f.UUID != "":
			return g.UUID == f.UUID
		case f.PCI != "" && g.PCI != "":
			return g.PCI == f.PCI
		default:
			return f.GPU != nil && g.Index == *f.GPU
		}
	})
	if gpu == nil {
		gpu = m.add(plugins.GPU{Index: -1, UUID: f.UUID, PCI: f.PCI})
	}
	if f.GPU != nil && gpu.Index < 0 && m.find(func(g *plugins.GPU) bool { return g.Index == *f.GPU }) == nil {
		gpu.Index = *f.GPU
	}
	gpu.PCI = cmp.Or(gpu.PCI, f.PCI)
	if gpu.State != plugins.StateLost {
		gpu.State = state
	}
	if gpu.Why == nil {
		gpu.Why = map[string]string{}
	}
	gpu.Why["state"] = f.Text
}

// takeQuery notes where -q -x as a whole is not what it should be.
func (m *machine) takeQuery(query answer, log *Log, logErr error) {
	if query.err != nil {
		m.note("nvidia-smi -q -x: " + query.err.Error())
	}
	if logErr != nil && len(log.GPUs) > 0 {
		m.note(logErr.Error())
	}
	if n := len(m.GPUs.GPUs); log.Attached != nil && *log.Attached != n {
		m.note(fmt.Sprintf("GPUs by the driver: %d, by nvidia-smi: %d", *log.Attached, n))
	}
}

// number gives an index to each GPU that has none, or one that another has: the free ones
// in the order of the output, where a GPU that is not in it stands by its PCI address.
// Then it sorts.
func (m *machine) number() {
	gpus := m.GPUs.GPUs
	used := map[int]bool{}
	for i := range gpus {
		if used[gpus[i].Index] {
			gpus[i].Index = -1
		}
		used[gpus[i].Index] = true
	}
	var waiting []*plugins.GPU
	for i := range gpus {
		gpu := &gpus[i]
		if gpu.Index >= 0 {
			continue
		}
		at := len(waiting)
		if gpu.Name == "" && gpu.PCI != "" {
			if next := slices.IndexFunc(waiting, func(w *plugins.GPU) bool { return w.PCI > gpu.PCI }); next >= 0 {
				at = next
			}
		}
		waiting = slices.Insert(waiting, at, gpu)
	}
	next := 0
	for _, gpu := range waiting {
		for used[next] {
			next++
		}
		gpu.Index, used[next] = next, true
	}
	slices.SortStableFunc(gpus, func(a, b plugins.GPU) int { return cmp.Compare(a.Index, b.Index) })
}

// takeNVLinks takes the NVLinks of each GPU.
func (m *machine) takeNVLinks(a answer) {
	reports, trouble := ParseNVLink(a.Stdout), a.trouble()
	for i := range m.GPUs.GPUs {
		gpu := &m.GPUs.GPUs[i]
		report := reportOf(gpu, reports)
		if report == nil {
			gpu.Why = withReason(gpu.Why, "nvlinks", trouble, "nvidia-smi nvlink -s does not tell of it")
			continue
		}
		m.takeReport(gpu, report, reports)
	}
}

// reportOf finds the report of a GPU, by its index only where UUIDs are not told.
func reportOf(gpu *plugins.GPU, reports []LinkReport) *LinkReport {
	for i := range reports {
		r := &reports[i]
		if r.UUID != "" && gpu.UUID != "" && r.UUID == gpu.UUID || (r.UUID == "" || gpu.UUID == "") && r.Index == gpu.Index {
			return r
		}
	}
	return nil
}

func (m *machine) takeReport(gpu *plugins.GPU, report *LinkReport, all []LinkReport) {
	switch report.State {
	case LinksListed:
		gpu.NVLinks = append([]plugins.NVLink{}, report.Links...)
		delete(gpu.Why, "nvlinks")
	case LinksInactive:
		gpu.NVLinks = inactiveLike(report.Name, all)
		delete(gpu.Why, "nvlinks")
	case LinksHidden:
		gpu.Why = withReason(gpu.Why, "nvlinks", nil, "MIG mode hides the NVLinks")
	case LinksUnsupported:
		gpu.Why = withReason(gpu.Why, "nvlinks", nil, "this product has no NVLinks")
	default:
		if f := classify(report.Text); f != nil && states[f.Class] != "" && gpu.State == plugins.StateOK {
			gpu.State = states[f.Class]
			gpu.Why = withReason(gpu.Why, "state", nil, f.Text)
		}
		gpu.Why = withReason(gpu.Why, "nvlinks", nil, cmp.Or(report.Text, "nvidia-smi nvlink -s says nothing about it"))
	}
	for _, line := range report.Puzzle {
		m.note(fmt.Sprintf("GPU %d: nvidia-smi nvlink -s says %q", gpu.Index, clip(line, 120)))
	}
}

// inactiveLike are the links of a GPU that says only that all of them are inactive: it
// has as many as another of the same product.
func inactiveLike(product string, all []LinkReport) []plugins.NVLink {
	links := []plugins.NVLink{}
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

func withReason(why map[string]string, name string, err error, otherwise string) map[string]string {
	if why == nil {
		why = map[string]string{}
	}
	why[name] = otherwise
	if err != nil {
		why[name] = err.Error()
	}
	return why
}

// takeTopology takes the ways between the GPUs. All are unknown where the table is
// damaged, or numbers other GPUs than are here.
func (m *machine) takeTopology(a answer) {
	gpus := m.GPUs.GPUs
	m.Links = make([][]plugins.Link, len(gpus))
	for i := range m.Links {
		m.Links[i] = make([]plugins.Link, len(gpus))
		m.Links[i][i] = "X"
	}
	if len(gpus) < 2 {
		return
	}
	table, err := ParseTopology(a.Stdout)
	if err != nil {
		m.Why = withReason(m.Why, "links", a.trouble(), err.Error())
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
		m.Why = withReason(m.Why, "links", err, "")
		return
	}
	position := map[int]int{}
	for i, gpu := range gpus {
		position[gpu.Index] = i
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
	for _, gpu := range m.GPUs.GPUs {
		all = append(all, gpu.Index)
		if gpu.State != plugins.StateLost {
			alive = append(alive, gpu.Index)
		}
	}
	return slices.Equal(indices, all) || slices.Equal(indices, alive)
}

// explain gives a reason to all that is still nil without one.
func (m *machine) explain(query error) {
	for i := range m.GPUs.GPUs {
		gpu := &m.GPUs.GPUs[i]
		reason := "nvidia-smi does not tell it"
		switch {
		case gpu.Why["state"] != "":
			reason = gpu.Why["state"]
		case gpu.Name == "" && query != nil:
			reason = query.Error()
		}
		gpu.Explain(reason)
		for _, instance := range gpu.MIG.Instances {
			if instance.UUID == "" {
				gpu.Why["mig.instances.uuid"] = "nvidia-smi -L does not tell it"
			}
		}
		maps.DeleteFunc(gpu.Why, func(_, text string) bool { return strings.TrimSpace(text) == "" })
	}
	reason := "nvidia-smi does not tell it"
	if query != nil {
		reason = query.Error()
	}
	m.Explain(reason)
}
