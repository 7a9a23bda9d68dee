package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// schema says what a block may hold. Each kind of block has one, beside the
// function that decodes it.
type schema struct {
	where  string // "a job block", for messages
	attrs  []attrSchema
	blocks []blockSchema
	hint   string // added where something else is written; "" for the list of what is allowed

	// elsewhere has, for a name that other launchers use for what this block does not
	// hold, how it is written here.
	elsewhere map[string]string
}

type attrSchema struct {
	name     string
	required bool
}

type blockSchema struct {
	name     string
	label    string // what its one label is, "" where it has none
	required bool
	many     bool
	missing  string // what to write where it is required and missing; "" for example
}

// content is a block's body, checked against a schema. Attributes that are not
// set are not in attrs; blocks stand in file order.
type content struct {
	attrs  map[string]*hclsyntax.Attribute
	blocks map[string][]*hclsyntax.Block
}

// content checks a body against the schema: unknown names, what is missing, what
// is repeated, labels. header is where a missing thing is reported.
func (d *decoder) content(body *hclsyntax.Body, header hcl.Range, s schema) content {
	c := content{map[string]*hclsyntax.Attribute{}, map[string][]*hclsyntax.Block{}}
	for name, attr := range body.Attributes {
		if s.attr(name) == nil {
			d.error(attr.NameRange, "Unsupported argument", "%s", s.unknownAttr(name))
			continue
		}
		c.attrs[name] = attr
	}
	for _, block := range body.Blocks {
		d.addBlock(c, block, s)
	}
	d.required(c, header, s)
	return c
}

func (d *decoder) addBlock(c content, block *hclsyntax.Block, s schema) {
	known := s.block(block.Type)
	if known == nil {
		d.error(block.TypeRange, "Unsupported block type", "%s", s.unknownBlock(block.Type))
		return
	}
	if first := c.blocks[known.name]; len(first) > 0 && !known.many {
		d.errorAlso(block.DefRange(), first[0].DefRange(), "Repeated block",
			"There can be one %s block in %s; the first is at %s.", known.name, s.where, first[0].DefRange())
		return
	}
	d.checkLabels(block, known)
	c.blocks[known.name] = append(c.blocks[known.name], block)
}

func (d *decoder) checkLabels(block *hclsyntax.Block, known *blockSchema) {
	switch n := len(block.Labels); {
	case known.label == "" && n > 0:
		d.error(block.LabelRanges[0], "Unexpected label", "A %s block has no label: write %s { ... }", known.name, known.name)
	case known.label != "" && n == 0:
		d.error(block.TypeRange, "Missing label", "Write %s %s { ... }", known.name, known.label)
	case known.label != "" && n > 1:
		d.error(block.LabelRanges[1], "Unexpected label", "A %s block has one label: write %s %s { ... }", known.name, known.name, known.label)
	}
}

func (d *decoder) required(c content, header hcl.Range, s schema) {
	for _, attr := range s.attrs {
		if attr.required && c.attrs[attr.name] == nil {
			d.missing(header, "Missing required argument", "%s needs the argument %q.", capital(s.where), attr.name)
		}
	}
	for _, block := range s.blocks {
		if block.required && len(c.blocks[block.name]) == 0 {
			d.missing(header, "Missing block", "%s needs a block: %s", capital(s.where), cmp.Or(block.missing, block.example()))
		}
	}
}

func (b blockSchema) example() string {
	if b.label == "" {
		return b.name + " { ... }"
	}
	return b.name + " " + b.label + " { ... }"
}

func (s schema) attr(name string) *attrSchema {
	i := slices.IndexFunc(s.attrs, func(a attrSchema) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &s.attrs[i]
}

func (s schema) block(name string) *blockSchema {
	i := slices.IndexFunc(s.blocks, func(b blockSchema) bool { return b.name == name })
	if i < 0 {
		return nil
	}
	return &s.blocks[i]
}

func (s schema) names() (attrs, blocks []string) {
	for _, attr := range s.attrs {
		attrs = append(attrs, attr.name)
	}
	for _, block := range s.blocks {
		blocks = append(blocks, block.name)
	}
	return attrs, blocks
}

func (s schema) unknownAttr(name string) string {
	if known := s.block(name); known != nil {
		return fmt.Sprintf("%s is a block, not an argument: write %s without \"=\".", name, known.example())
	}
	attrs, blocks := s.names()
	return s.unknown("argument", name, attrs, blocks)
}

func (s schema) unknownBlock(name string) string {
	if s.attr(name) != nil {
		return fmt.Sprintf("%s is an argument, not a block: write %s = ...", name, name)
	}
	attrs, blocks := s.names()
	return s.unknown("block", name, blocks, attrs)
}

func (s schema) unknown(kind, name string, same, other []string) string {
	detail := fmt.Sprintf("%s has no %s %q.", capital(s.where), kind, name)
	if here := s.elsewhere[strings.ToLower(strings.ReplaceAll(name, "-", "_"))]; here != "" {
		return detail + " Write " + here + "."
	}
	if near := text.Nearest(name, append(same, other...), 2); near != "" {
		detail += fmt.Sprintf(" Did you mean %q?", near)
	}
	return detail + " " + s.allowed()
}

// allowed lists what the block takes.
func (s schema) allowed() string {
	if s.hint != "" {
		return s.hint
	}
	attrs, blocks := s.names()
	switch {
	case len(attrs) == 0 && len(blocks) == 0:
		return "It takes nothing."
	case len(attrs) == 0:
		return "It takes the blocks " + list(blocks) + "."
	case len(blocks) == 0:
		return "It takes the arguments " + list(attrs) + "."
	}
	return "It takes the arguments " + list(attrs) + " and the blocks " + list(blocks) + "."
}

func list(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

func capital(s string) string {
	return strings.ToUpper(s[:1]) + s[1:]
}
