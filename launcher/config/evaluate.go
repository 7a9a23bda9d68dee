package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var fileSchema = schema{
	where: "a job file",
	blocks: []blockSchema{
		{name: "variable", label: `"NAME"`, many: true},
		{name: "job", label: `"NAME"`, required: true},
	},
}

// Evaluate decodes the job file. The job is nil when there are errors. Strings
// are in Unicode's NFC, as HCL has them.
func (s Source) Evaluate() (*Job, hcl.Diagnostics) {
	if diags := s.checkText(); diags.HasErrors() {
		return nil, diags
	}
	d := newDecoder(s)
	body := d.parse()
	if body == nil {
		return d.result(nil)
	}
	known := len(d.diags)
	job := d.file(body)
	d.forgetAfterLoss(known)
	return d.result(job)
}

func newDecoder(s Source) *decoder {
	return &decoder{
		src:     s,
		used:    map[string]bool{},
		hostEnv: map[string]bool{},
		scope: &scope{
			vars:     map[string]cty.Value{},
			numbers:  map[string]string{},
			literals: map[hcl.Range]string{},
			secrets:  map[string]bool{},
		},
	}
}

// file decodes the top level.
func (d *decoder) file(body *hclsyntax.Body) *Job {
	c := d.content(body, startOf(body), fileSchema)
	d.allVariables(c.blocks["variable"])
	job := &Job{}
	for _, block := range c.blocks["job"] {
		job = d.job(block)
	}
	job.instead(d.src.Instead)
	d.tryEnv(job)
	d.warnUnused(c.blocks["variable"])
	return job
}

// allVariables makes the variables known to what comes after.
func (d *decoder) allVariables(blocks []*hclsyntax.Block) {
	d.ctx = d.scope.context(evaluateBudget, nil)
	d.place = inDefault
	d.variables(blocks)
	d.place = inJob
	d.ctx = d.scope.context(evaluateBudget, nil)
}

// startOf is the file's first character, for what the file lacks as a whole.
func startOf(body *hclsyntax.Body) hcl.Range {
	at := hcl.InitialPos
	end := at
	end.Column, end.Byte = 2, 1
	return hcl.Range{Filename: body.SrcRange.Filename, Start: at, End: end}
}

// forgetAfterLoss drops what was found, from the diagnostic with number known on,
// in the lines where a syntax error has left the parser in the wrong place.
func (d *decoder) forgetAfterLoss(known int) {
	if d.lost == nil {
		return
	}
	kept := d.diags[:known:known]
	for _, diag := range d.diags[known:] {
		if diag.Subject != nil && diag.Subject.Start.Line < d.lost.Line {
			kept = append(kept, diag)
		}
	}
	d.diags = kept
}
