package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/deviceref"
	"github.com/muster-dev/muster/launcher/plural"
)

var ranksSchema = decode.Schema{
	Where: "a ranks block",
	Args:  []string{"per_host", "backend", "devices", "shared", "min_free", "visibility", "device_names", "groups", "equal", "bind"},
}

// hostRanksSchema is a ranks block within a host block.
var hostRanksSchema = decode.Schema{
	Where: "the ranks block of one host",
	Args:  []string{"per_host", "devices"},
	Hint:  "It takes the arguments devices, per_host; the others are for all hosts: write them in the job's own ranks block.",
}

// Bounds; beyond them a number is a slip.
const (
	maxPerHost = 1024
	minMinFree = 1 << 20
	maxMinFree = 16 << 40
	maxGroup   = 1 << 20
)

// ranks are the values of a ranks block.
type ranks struct {
	block     *decode.Block
	perHost   rankCount
	devices   Devices
	backend   string
	placement Placement
}

func decodeRanks(b *decode.Block) ranks {
	b.Open(ranksSchema)
	return ranks{
		block:   b,
		perHost: decodePerHost(b.Arg("per_host"), rankCount{}),
		devices: decodeDevices(b.Arg("devices"), Devices{Kind: DevicesAll}),
		backend: decode.OneOf(b.Arg("backend"), "", []string{"nccl", "gloo", "none"}),
		placement: Placement{
			Groups:        decodeGroups(b.Arg("groups"), b),
			Equal:         decode.Bool(b.Arg("equal"), false),
			Shared:        decode.Bool(b.Arg("shared"), false),
			Visibility:    decode.OneOf(b.Arg("visibility"), "", []string{"host", "rank"}),
			DeviceNames:   decode.OneOf(b.Arg("device_names"), "", []string{"uuid", "index"}),
			Bind:          decode.OneOf(b.Arg("bind"), "numa", []string{"numa", "none"}),
			MinFree:       decode.Size(b.Arg("min_free"), 0, minMinFree, maxMinFree),
			VisibilityAt:  valueAt(b.Arg("visibility")),
			DeviceNamesAt: valueAt(b.Arg("device_names")),
		},
	}
}

// valueAt is where the value of an argument is written; "" where none is.
func valueAt(a *decode.Arg) string {
	if !a.IsSet() {
		return ""
	}
	return placeOf(a.At)
}

// decodeHostRanks applies the ranks block of a host block.
func decodeHostRanks(b *decode.Block, host *Host) {
	b.Open(hostRanksSchema)
	host.setRanks(decodePerHost(b.Arg("per_host"), host.ranks()))
	host.Devices = decodeDevices(b.Arg("devices"), host.Devices)
}

// rankCount is what per_host says, and where.
type rankCount struct {
	n      int  // 0: the plan counts
	perGPU bool // "gpu" is written
	at     hcl.Range
}

func (h *Host) ranks() rankCount { return rankCount{h.PerHost, h.PerGPU, h.perHostAt} }

func (h *Host) setRanks(count rankCount) {
	h.PerHost, h.PerGPU, h.perHostAt = count.n, count.perGPU, count.at
}

// decodePerHost is how many ranks a host has; def where nothing is written. What is wrong
// counts as not known, so that nothing is concluded from it.
func decodePerHost(a *decode.Arg, def rankCount) rankCount {
	if !a.IsSet() && !a.Wrong() {
		return def
	}
	count := rankCount{at: a.At}
	if word, _ := a.Word(); word == "gpu" {
		count.perGPU = true
		return count
	}
	n, ok := a.WholeNumber()
	switch {
	case a.Wrong():
	case !ok || n < 1 || n > maxPerHost:
		a.Error("Invalid number of ranks",
			"per_host is a whole number from 1 to %d, or \"gpu\" for one rank per GPU, not %s.", maxPerHost, a.Describe())
	default:
		count.n = n
	}
	return count
}

// decodeDevices says which devices of a host are used; def where nothing is written. What is
// wrong has no Kind, so that nothing is concluded from it.
func decodeDevices(a *decode.Arg, def Devices) Devices {
	if a == nil {
		return def
	}
	devices := Devices{Range: a.At}
	if elements, ok := a.Elements(); ok {
		devices.Kind, devices.List = decodeDeviceList(a, elements)
	} else if !a.IsSet() && !a.Wrong() {
		return def
	} else if word, isText := a.Word(); isText && isProfile(a) {
		profile, _ := deviceref.Profile(word)
		devices.Kind, devices.List = DevicesProfile, []DeviceRef{{profile, a.At}}
	} else if a.IsSet() {
		devices.Kind, devices.Count = decodeDeviceWord(a)
	}
	if a.Wrong() {
		return Devices{Range: devices.Range}
	}
	return devices
}

// decodeDeviceWord is a value of devices that is no list.
func decodeDeviceWord(a *decode.Arg) (kind string, count int) {
	word, isText := a.Word()
	n, isNumber := a.WholeNumber()
	switch {
	case word == DevicesAll || word == DevicesNone:
		return word, 0
	case isNumber && n == 0:
		return DevicesNone, 0
	case isNumber && n > 0 && n <= deviceref.Max:
		return DevicesCount, n
	}
	advice := ""
	if isText {
		advice = deviceref.ListAdvice(strings.TrimSpace(word))
	}
	a.Error("Invalid devices",
		"devices cannot be %s.%s It is \"all\", \"none\", how many GPUs of each host, from 1 to %d, a list of them such as [0, 1], or a profile of MIG such as \"1g.10gb\".",
		a.Describe(), advice, deviceref.Max)
	return "", 0
}

// isProfile reports whether a value is a profile of MIG.
func isProfile(a *decode.Arg) bool {
	word, _ := a.Word()
	_, is := deviceref.Profile(word)
	return is
}

// decodeDeviceList decodes the elements of a list: devices, of which each is named once, or
// profiles of MIG, of which each stands for any device.
func decodeDeviceList(a *decode.Arg, elements []*decode.Arg) (kind string, found []DeviceRef) {
	if len(elements) > deviceref.Max {
		a.Error("Too many devices", "devices has %d elements; a host has at most %d devices. Leave devices out to use all.", len(elements), deviceref.Max)
		return "", nil
	}
	kind = DevicesList
	read := decodeDevice
	if slices.ContainsFunc(elements, isProfile) {
		kind, read = DevicesProfiles, decodeProfile
	} else if len(elements) == 0 {
		return DevicesNone, nil
	}
	earlier := map[string]DeviceRef{}
	for _, e := range elements {
		device, ok := read(e)
		key, isName := deviceref.Key(device.Text)
		if same, twice := earlier[key]; isName && twice {
			e.ErrorAlso(same.Range, "Device listed twice",
				"%s is the same device as %s at %s. Name each device once; shared = true gives one device to several ranks.",
				device.Text, same.Text, same.Range)
		} else if ok {
			earlier[key] = device
			found = append(found, device)
		}
	}
	return kind, found
}

func decodeProfile(e *decode.Arg) (DeviceRef, bool) {
	word, _ := e.Word()
	profile, ok := deviceref.Profile(word)
	if _, read := e.Value(); read && !ok {
		e.Error("Invalid device",
			"%s stands beside profiles of MIG: of those any idle device is taken, and it might be one that the list names. Write profiles only, or name all devices.", e.Describe())
	}
	return DeviceRef{profile, e.At}, ok
}

// decodeDevice is one element of a list of devices.
func decodeDevice(e *decode.Arg) (DeviceRef, bool) {
	word, isText := e.Word()
	n, isNumber := e.WholeNumber()
	text := strings.TrimSpace(word)
	_, isName := deviceref.Key(text)
	switch _, read := e.Value(); {
	case !read:
	case isText && !isName:
		e.Error("Invalid device", "%s", deviceref.Advice(text))
	case isText && deviceref.IsNumber(text):
		return DeviceRef{strconv.Itoa(n), e.At}, true
	case isText:
		return DeviceRef{text, e.At}, true
	case !isNumber || n < 0 || n >= deviceref.Max:
		e.Error("Invalid device", "A device cannot be %s. %s", e.Describe(), deviceref.Forms)
	default:
		return DeviceRef{strconv.Itoa(n), e.At}, true
	}
	return DeviceRef{}, false
}

var groupNameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// decodeGroups decodes sizes of groups of ranks, by size, largest first.
func decodeGroups(a *decode.Arg, b *decode.Block) (found []Group) {
	entries, ok := a.Entries("Repeated group", "%s has a size at %s already. Give each kind of group one size.")
	if !ok && a.IsSet() {
		a.Error("Wrong type", "groups is an object of names and sizes, not %s: write { tensor = 4 }.", a.Describe())
	}
	for _, e := range entries {
		n, isNumber := e.Value.WholeNumber()
		switch {
		case !groupNameForm.MatchString(e.Name):
			e.Value.ErrorAt(e.Value.NameAt, "Invalid group name", "%q: the name of a group is made of letters, digits, '-' and '_', 63 at most, and begins with a letter or '_'.", e.Name)
		case e.Value.Wrong():
		case !isNumber || n < 2 || n > maxGroup:
			e.Value.Error("Invalid group size", "The size of %s is a whole number of ranks from 2 to %d, not %s. Leave out groups of one rank.", e.Name, maxGroup, e.Value.Describe())
		default:
			found = append(found, Group{e.Name, n, e.At})
		}
	}
	slices.SortFunc(found, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name))
	})
	for i := 1; i < len(found); i++ {
		checkNesting(b.File, found[i-1], found[i])
	}
	return found
}

func groupNames(groups []Group) (names []string) {
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return names
}

// checkNesting checks that each size divides the next larger one. Groups are of ranks in
// a row: otherwise one of them would lie across the border of two larger ones.
func checkNesting(f *decode.File, large, small Group) {
	if large.Size%small.Size == 0 {
		return
	}
	above := (large.Size/small.Size + 1) * small.Size
	if above > maxGroup {
		above -= small.Size
	}
	advice := fmt.Sprintf("write %s = %d", large.Name, above)
	if common := gcd(large.Size, small.Size); common > 1 {
		advice += fmt.Sprintf(", or %s = %d", small.Name, common)
	}
	f.ErrorAlso(small.Range, large.Range, "Groups do not nest",
		"Groups are made of ranks in a row, and those of %s = %d would lie across the borders of %s = %d. A size must divide the next larger one: %s.",
		small.Name, small.Size, large.Name, large.Size, advice)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// checkRanks checks what the job file says of ranks and devices against itself, host by
// host. base is what a host has without a block of its own.
func checkRanks(f *decode.File, job *Job, r ranks, base Host) {
	if f.Partial { // what is not seen may be what makes it right
		return
	}
	hosts := job.Hosts
	if len(hosts) == 0 {
		hosts = []Host{base}
	}
	for _, host := range hosts {
		checkCounts(f, host, base, job)
		if job.Backend == "nccl" && host.Devices.Kind == DevicesNone {
			f.ErrorAlso(r.block.Arg("backend").NameAt, host.Devices.Range, "Ranks and devices do not match",
				"%sbackend = \"nccl\" needs GPUs, and devices at %s leaves none. Write backend = \"gloo\", or name devices.", of(host, base), host.Devices.Range)
		}
	}
	if slices.ContainsFunc(hosts, func(h Host) bool { return h.Devices.Kind != DevicesNone }) {
		return
	}
	none := hosts[0].Devices.Range
	if job.MPS != nil {
		f.ErrorAlso(job.MPS.Range, none, "Ranks and devices do not match", "mps has ranks share GPUs, and devices at %s leaves none. Leave the mps block out, or name devices.", none)
	}
	for _, name := range []string{"bind", "device_names", "groups", "min_free", "shared", "visibility"} {
		r.block.Arg(name).NoEffect("Without effect", "%s is about devices, and devices at %s leaves none. Leave it out, or name devices.", name, none)
	}
}

// checkCounts checks a number of ranks against a number of devices.
func checkCounts(f *decode.File, host, base Host, job *Job) {
	devices := host.Devices
	count, chosen := devices.Count, "asked"
	if devices.Kind == DevicesList || devices.Kind == DevicesProfiles {
		count, chosen = len(devices.List), "named"
	}
	problem := ""
	switch {
	case devices.Kind == DevicesNone && host.PerGPU:
		problem = "per_host = \"gpu\" is one rank per GPU, and devices leaves no GPU. Write a number of ranks, or leave devices out"
	case job.MPS != nil:
		problem = ranksOfMPS(job.MPS, host.PerHost, count)
	case host.PerHost == 0 || count == 0 || host.PerHost == count:
	case host.PerHost < count && job.Placement.Visibility == "rank":
		problem = fmt.Sprintf("%s for %s, of which each is to see one: which ones? Write as many devices as ranks, or leave visibility out: then every rank sees all",
			plural.Of(count, "device"), plural.Of(host.PerHost, "rank"))
	case host.PerHost < count: // a process that spreads over several GPUs by itself
	case !job.Placement.Shared:
		problem = fmt.Sprintf("%s asked, %s %s: each rank has a GPU of its own. Write as many devices as ranks, or per_host = %d; where several ranks on one GPU are meant, shared = true",
			plural.Of(host.PerHost, "rank"), plural.Of(count, "device"), chosen, count)
	}
	if problem == "" {
		return
	}
	at, also := devices.Range, host.perHostAt
	if devices.Range == base.Devices.Range && host.perHostAt != base.perHostAt {
		at, also = also, at // the host's own block is where to look first
	}
	if at == (hcl.Range{}) {
		f.Error(also, "Ranks and devices do not match", "%s%s.", of(host, base), problem)
		return
	}
	f.ErrorAlso(at, also, "Ranks and devices do not match", "%s%s.", of(host, base), problem)
}

// of names the host that a problem is of, where it is not that of all hosts.
func of(host, base Host) string {
	if host.Devices.Range == base.Devices.Range && host.perHostAt == base.perHostAt {
		return ""
	}
	return host.Name + ": "
}
