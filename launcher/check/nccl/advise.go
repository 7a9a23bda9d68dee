package nccl

import (
	"fmt"
	"slices"
	"strings"
)

// Host is what a host's links are, as far as NCCL's settings concern them.
type Host struct {
	Name      string
	Hosts     int     // of the job
	GPUs      int     // of the job, on this host
	NVLink    bool    // some two of them are linked by NVLink
	AllNV     bool    // every two of them are
	Sharing   bool    // two ranks share a GPU
	Version   Version // what was found there
	Parts     int     // how many of the job's devices there are MIG devices
	OneGPU    bool    // two of them are of one GPU
	Ranks     int     // how many ranks the job has in all that talk to each other
	CUDA      string  // highest version of the driver, such as "12.4"; "": not known
	Fabric    bool    // the GPUs are of a fabric of NVSwitches, which may reach beyond the host
	Container bool    // within a container
	// Adapters are the InfiniBand and RoCE devices that are up. Interfaces are all network interfaces; nil: not known.
	Adapters   []string
	Interfaces []Interface
}

// Interface is a network interface.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Virtual  string // why it leads to no other machine, such as "bridge"; "": it may
}

// Rule is a case that is known to go wrong, in which muster sets a variable that nobody else has set.
type Rule struct {
	When   func(Host) bool
	Name   string
	Value  string
	Why    string // in words, without a full stop
	Source string // where it is written
}

// Rules are few: each has a source, and what is only a custom is not here. Where GPUs cannot reach each other NCCL sees
// it itself, and what a virtual machine or PCIe's access control does to direct access cannot be seen from facts.
var Rules = []Rule{
	{
		When: func(h Host) bool {
			return h.Container && h.Version.NCCL.since(Release{2, 24, 0}) && h.Version.NCCL.before(Release{2, 26, 5})
		},
		Name:   "NCCL_CUMEM_HOST_ENABLE",
		Value:  "0",
		Why:    "in containers that may not use NUMA calls, NCCL from 2.24 until 2.26.5 fails with \"unhandled cuda error\" when it takes host memory by cuMem",
		Source: "NCCL 2.26.5 has a fallback for it; user guide, NCCL_CUMEM_HOST_ENABLE",
	},
	{
		When:   func(h Host) bool { return h.OneGPU && h.Ranks > 1 && h.Version.NCCL.since(migSince) },
		Name:   "NCCL_MULTI_RANK_GPU_ENABLE",
		Value:  "1",
		Why:    "NCCL takes MIG devices of one GPU for one, and refuses them without it",
		Source: "nccl issue 1716, of 2.31.2; the user guide says otherwise",
	},
	{
		When:   func(h Host) bool { return h.Parts > 0 && h.Fabric && h.Ranks > 1 && h.Version.NCCL.since(migSince) },
		Name:   "NCCL_MNNVL_ENABLE",
		Value:  "0",
		Why:    "MIG devices have no direct access by NVLink, which NCCL would try over a fabric of NVSwitches",
		Source: "user guide, Using MIG instances (2.31)",
	},
}

// Derived are the variables that the rules set on a host.
func Derived(h Host) []Var {
	var vars []Var
	for _, rule := range Rules {
		if rule.When(h) {
			vars = append(vars, Var{Name: rule.Name, Value: rule.Value, Source: rule.Why, Note: rule.Source})
		}
	}
	return vars
}

// advice is a host with the environment of a rank there.
type advice struct {
	Host
	vars map[string]Var
}

// Advise says what variables do on a host that their setter may not have meant. vars is the whole environment of a rank
// there; what does not concern NCCL is passed over.
func Advise(vars []Var, h Host) []Finding {
	a := &advice{Host: h, vars: map[string]Var{}}
	for _, v := range vars {
		a.vars[v.Name] = v
	}
	var found []Finding
	for _, e := range effects {
		if e.when(a) {
			found = append(found, a.found(e.name, e.code, e.fix, "%s", e.does(a)))
		}
	}
	return slices.Concat(found, a.interfaces(), a.devices())
}

func (a *advice) found(name, code, fix, format string, args ...any) Finding {
	v := a.vars[name]
	return Finding{Code: code, Fix: fix, Host: a.Name, Source: v.Source,
		Message: fmt.Sprintf("%s=%s on %s: ", name, shown(v.Value), a.Name) + fmt.Sprintf(format, args...)}
}

func (a *advice) text(name string) string { return a.vars[name].Value }

// is reports whether NCCL reads that number of a variable.
func (a *advice) is(name string, n int64) bool {
	read, set := a.number(name)
	return set && read == n
}

// number is what NCCL reads of a variable; ok is false where it is not set.
func (a *advice) number(name string) (n int64, ok bool) {
	read := readNumber(a.text(name), 0)
	return read.n, a.text(name) != "" && !read.huge
}

// isSet is a number that is not 0.
func (a *advice) isSet(name string) bool {
	n, _ := a.number(name)
	return n != 0
}

func (a *advice) onMIG() bool {
	verdict, _, _ := OnDevices(a.Host, a.is(multiRank, 1))
	return verdict == Works && a.Parts > 0 && a.Ranks > 1
}

// maxTCP bounds the product of NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD.
const maxTCP = 64

// effect is a setting that does something else on a host than its setter may have meant.
type effect struct {
	name, code string
	when       func(a *advice) bool
	fix        string
	does       func(a *advice) string
}

func always(text string) func(*advice) string { return func(*advice) string { return text } }

func leavesAside(a *advice) string {
	return fmt.Sprintf("it leaves aside what is up there (%s): data between hosts goes through TCP, which is much slower", strings.Join(a.Adapters, ", "))
}

const byHostMemory = "NVLink is turned off too, and data between GPUs goes through host memory"

// effects are those of single variables. The user guide lists P2P_DISABLE and P2P_LEVEL among the variables for
// debugging; falling back to TCP is silent; NCCL refuses more than 64 sockets of a connection.
var effects = []effect{
	{"NCCL_P2P_DISABLE", CodeP2P, func(a *advice) bool { return a.GPUs > 1 && a.NVLink && a.is("NCCL_P2P_DISABLE", 1) },
		"take it out, or set NCCL_P2P_LEVEL=NVL to keep NVLink and leave PCIe aside", always(byHostMemory)},
	{"NCCL_P2P_LEVEL", CodeP2P, func(a *advice) bool {
		return a.GPUs > 1 && a.NVLink && !a.is("NCCL_P2P_DISABLE", 1) && slices.Contains([]string{"LOC", "0"}, a.text("NCCL_P2P_LEVEL"))
	}, "take it out, or write NVL to keep NVLink and leave PCIe aside", always(byHostMemory)},
	{"NCCL_P2P_LEVEL", CodeP2P, func(a *advice) bool {
		return a.GPUs > 1 && !a.NVLink && !a.is("NCCL_P2P_DISABLE", 1) && a.text("NCCL_P2P_LEVEL") == "NVL"
	}, "take it out, or write PIX, PXB, PHB or SYS to allow P2P over PCIe",
		always("no two of the job's GPUs there are linked by NVLink, so that direct access between GPUs is off altogether and data goes through host memory")},
	{"NCCL_SHM_DISABLE", CodeP2P, func(a *advice) bool { return a.GPUs > 1 && !a.AllNV && a.is("NCCL_SHM_DISABLE", 1) },
		"take it out; where /dev/shm is too small, make it larger instead",
		always("GPUs that cannot reach each other directly then talk through the network, though they are in one host")},
	{"NCCL_IB_DISABLE", CodeNetwork, func(a *advice) bool { return a.Hosts > 1 && len(a.Adapters) > 0 && a.isSet("NCCL_IB_DISABLE") },
		"take it out", leavesAside},
	{"NCCL_NET", CodeNetwork, func(a *advice) bool {
		return a.Hosts > 1 && len(a.Adapters) > 0 && !a.isSet("NCCL_IB_DISABLE") && strings.EqualFold(a.text("NCCL_NET"), "Socket")
	}, "take it out", leavesAside},
	{"NCCL_NET", CodeInterface, func(a *advice) bool {
		return a.Hosts > 1 && a.Adapters != nil && len(a.Adapters) == 0 && strings.EqualFold(a.text("NCCL_NET"), "IB")
	}, "take it out, or bring a device up (`ibstat` shows them)", always("no InfiniBand or RoCE device is up there, and NCCL fails")},
	{"NCCL_SOCKET_NTHREADS", CodeRange, func(a *advice) bool {
		threads, each := a.sockets()
		return threads > 0 && threads <= maxTCP && each <= maxTCP && threads*each > maxTCP
	}, "lower one of them", func(a *advice) string {
		threads, each := a.sockets()
		return fmt.Sprintf("times NCCL_NSOCKS_PERTHREAD it is %d, and NCCL takes %d at most", threads*each, maxTCP)
	}},
	{"NCCL_DEBUG_SUBSYS", CodeNoEffect, func(a *advice) bool {
		_, set := a.vars["NCCL_DEBUG_SUBSYS"]
		return set && !slices.Contains([]string{"INFO", "TRACE"}, strings.ToUpper(a.text("NCCL_DEBUG")))
	}, "set NCCL_DEBUG=INFO with it", always("it chooses among the lines of NCCL_DEBUG=INFO, which is not set")},
	{"NCCL_DEBUG_FILE", CodeNoEffect, func(a *advice) bool {
		_, set := a.vars["NCCL_DEBUG_FILE"]
		return set && slices.Contains([]string{"", "VERSION"}, strings.ToUpper(a.text("NCCL_DEBUG")))
	}, "set NCCL_DEBUG=WARN or INFO with it", always("nothing is written without NCCL_DEBUG")},
	{"NCCL_MNNVL_ENABLE", CodeMIG, func(a *advice) bool { return a.onMIG() && a.isSet("NCCL_MNNVL_ENABLE") },
		"take it out", always("ranks there are on MIG devices, which have no NVLink, and NCCL is to be told so by 0")},
	{"NCCL_NVLS_ENABLE", CodeMIG, func(a *advice) bool { return a.onMIG() && a.OneGPU && a.is("NCCL_NVLS_ENABLE", 1) },
		"take it out, or write 0 or 2", always("it demands NVLink SHARP, which MIG devices have not: NCCL does not start")},
	{multiRank, CodeMIG, func(a *advice) bool { return a.onMIG() && a.OneGPU && a.text(multiRank) != "" && !a.is(multiRank, 1) },
		"take it out: it is set to 1 then", always("NCCL takes MIG devices of one GPU for one, and refuses them without it")},
}

func (a *advice) sockets() (threads, each int64) {
	threads, _ = a.number("NCCL_SOCKET_NTHREADS")
	each, _ = a.number("NCCL_NSOCKS_PERTHREAD")
	return threads, each
}

// interfaces: what NCCL_SOCKET_IFNAME and NCCL_IB_HCA take on this host.
func (a *advice) interfaces() (found []Finding) {
	if a.text("NCCL_SOCKET_IFNAME") != "" && a.Interfaces != nil {
		found = a.socketInterfaces("NCCL_SOCKET_IFNAME")
	}
	const hca = "NCCL_IB_HCA"
	list := ParseNames(a.text(hca))
	switch {
	case a.text(hca) == "" || a.Adapters == nil || a.isSet("NCCL_IB_DISABLE") || a.Hosts < 2:
	case !slices.ContainsFunc(a.Adapters, list.Takes):
		found = append(found, a.found(hca, CodeInterface, "name a device that is up there (`ibstat` shows them), or leave it out",
			"it takes no device there, and data between hosts goes through TCP; up: %s", presentNames(a.Adapters)))
	default:
		found = append(found, a.beyond(hca, list, a.Adapters)...)
	}
	return found
}

func (a *advice) socketInterfaces(name string) (found []Finding) {
	list := ParseNames(a.text(name))
	var taken []Interface
	var present []string
	for _, i := range a.Interfaces {
		present = append(present, i.Name)
		if list.Takes(i.Name) {
			taken = append(taken, i)
		}
	}
	if len(taken) == 0 {
		return []Finding{a.found(name, CodeInterface, "name an interface of this host, or leave it out: muster sets each host's own",
			"it takes no interface there; present: %s", presentNames(present))}
	}
	usable := slices.ContainsFunc(taken, func(i Interface) bool { return i.fault() == "" })
	if a.Hosts > 1 && !usable && !list.Without {
		found = append(found, a.found(name, CodeInterface, "name the interface that leads to the other hosts, or leave it out", "%s", taken[0].fault()))
	}
	return append(found, a.beyond(name, list, present)...)
}

// fault is why an interface leads to no other host; "" where it may.
func (i Interface) fault() string {
	switch {
	case i.Loopback:
		return i.Name + " is the loopback, which leads to no other host"
	case !i.Up:
		return i.Name + " is down"
	case i.Virtual != "":
		return i.Name + " is a " + i.Virtual + " and leads to no other host"
	}
	return ""
}

// beyond tells of a device that a list without "=" takes though another is named in full.
func (a *advice) beyond(variable string, list Names, present []string) []Finding {
	if list.Exact || list.Without {
		return nil
	}
	for _, entry := range list.Names {
		name, _, _ := strings.Cut(entry, ":")
		if !slices.Contains(present, name) {
			continue // the beginning of names, as is meant
		}
		exact := Names{Exact: true, Names: list.Names}
		for _, device := range present {
			if strings.HasPrefix(device, name) && !exact.Takes(device) {
				return []Finding{a.found(variable, CodePrefix, "write "+exact.String(), "without = each name is the beginning of one, and %s is taken too", device)}
			}
		}
	}
	return nil
}

// presentNames are names of devices, for messages.
func presentNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
