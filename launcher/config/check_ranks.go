package config

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/plural"
)

// ofDevices are the arguments of a ranks block that mean nothing without devices.
var ofDevices = []string{"bind", "device_names", "groups", "min_free", "shared", "visibility"}

// checkRanks checks what the job file says of ranks and devices against itself, host by
// host. base is what a host has without a block of its own.
func (d *decoder) checkRanks(job *Job, r ranks, base Host) {
	if d.partial { // what is not seen may be what makes it right
		return
	}
	hosts := job.Hosts
	if len(hosts) == 0 {
		hosts = []Host{base}
	}
	for _, host := range hosts {
		d.checkCounts(host, base, job)
		if job.Backend == "nccl" && host.Devices.Kind == DevicesNone {
			d.errorAlso(r.attrs["backend"].NameRange, host.Devices.Range, "Ranks and devices do not match",
				"%sbackend = \"nccl\" needs GPUs, and devices at %s leaves none. Write backend = \"gloo\", or name devices.", of(host, base), host.Devices.Range)
		}
	}
	if !slices.ContainsFunc(hosts, func(h Host) bool { return h.Devices.Kind != DevicesNone }) {
		if job.MPS != nil {
			d.errorAlso(job.MPS.Range, hosts[0].Devices.Range, "Ranks and devices do not match", "mps has ranks share GPUs, and devices at %s leaves none. Leave the mps block out, or name devices.", hosts[0].Devices.Range)
		}
		d.warnWithoutDevices(r.attrs, hosts[0].Devices.Range)
	}
}

// checkCounts checks a number of ranks against a number of devices.
func (d *decoder) checkCounts(host, base Host, job *Job) {
	p := job.Placement
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
	case host.PerHost < count && p.Visibility == "rank":
		problem = fmt.Sprintf("%s for %s, of which each is to see one: which ones? Write as many devices as ranks, or leave visibility out: then every rank sees all",
			plural.Of(count, "device"), plural.Of(host.PerHost, "rank"))
	case host.PerHost < count: // a process that spreads over several GPUs by itself
	case !p.Shared:
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
		d.error(also, "Ranks and devices do not match", "%s%s.", of(host, base), problem)
		return
	}
	d.errorAlso(at, also, "Ranks and devices do not match", "%s%s.", of(host, base), problem)
}

// of names the host that a problem is of, where it is not that of all hosts.
func of(host, base Host) string {
	if host.Devices.Range == base.Devices.Range && host.perHostAt == base.perHostAt {
		return ""
	}
	return host.Name + ": "
}

// warnWithoutDevices warns of arguments that no device will make use of.
func (d *decoder) warnWithoutDevices(attrs map[string]*hclsyntax.Attribute, none hcl.Range) {
	for _, name := range ofDevices {
		if at, set := d.written(attrs[name]); set {
			d.warn(at, "Without effect", "%s is about devices, and devices at %s leaves none. Leave it out, or name devices.", name, none)
		}
	}
}

// written is where an argument is written, if it is and is neither null nor wrong.
func (d *decoder) written(attr *hclsyntax.Attribute) (hcl.Range, bool) {
	if attr == nil || !d.isSet(attr) {
		return hcl.Range{}, false
	}
	return attr.NameRange, true
}
