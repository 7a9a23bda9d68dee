package config

import (
	"slices"

	"github.com/muster-dev/muster/launcher/check/allocator"
)

// warnOfAllocator says what is to be known of allocator settings in env: what no version
// of torch would take, and what they change of the allocator block. Which version the ranks
// use is not known yet.
func (d *decoder) warnOfAllocator(job *Job, host Host, vars []EnvVar) {
	var given []allocator.Given
	for _, v := range vars {
		if !slices.Contains(allocator.Names, v.Name) {
			continue
		}
		given = append(given, allocator.Given{Name: v.Name, Text: v.Value, Source: v.Source})
		_, at := envPlace(v, host.env, job.env)
		for _, f := range allocator.Check(v.Value, "") {
			d.doubt(job.Check, f.Code, at, "Dangerous value", "%s: %s", v.Name, sentence(f.Message))
		}
		pairs, _ := allocator.Parse(v.Value)
		for _, pair := range pairs {
			if written, source, set := job.Allocator.Sets(pair.Key); set {
				d.warn(at, "Set twice", "%s is set here and by %s of the allocator block at %s: env wins. Keep one of the two.", pair.Key, written, source)
			}
		}
	}
	if len(given) > 1 {
		d.warnOfNames(job, host, vars, given)
	}
}

// warnOfNames is for several variables with different settings.
func (d *decoder) warnOfNames(job *Job, host Host, vars []EnvVar, given []allocator.Given) {
	for _, f := range allocator.CheckVars(given, "") {
		if f.Code != allocator.CodeNames {
			continue
		}
		i := slices.IndexFunc(vars, func(v EnvVar) bool { return v.Name == given[0].Name })
		key, _ := envPlace(vars[i], host.env, job.env)
		d.warn(key, "Set twice", "%s. Keep one of the two.", f.Message)
	}
}
