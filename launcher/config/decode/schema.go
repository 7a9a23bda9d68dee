package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Schema says what a block may hold.
type Schema struct {
	Where    string // "a job block", for messages
	Args     []string
	Blocks   []BlockType
	Required []string // of Args and Blocks
	Hint     string   // added where something else is written; "" for the list of what is allowed

	// Elsewhere has, for a name that other launchers use for what this block does not hold,
	// how it is written here.
	Elsewhere map[string]string
}

// BlockType is a kind of block within another.
type BlockType struct {
	Name    string
	Label   string // what its one label is, "" where it has none
	Many    bool
	Missing string // what to write where it is required and missing; "" for its example
}

// Block is a block of the file. A nil Block is one that is not written: it has no arguments.
type Block struct {
	File   *File
	Label  string    // "" without one
	Bare   bool      // the label is missing, which was reported
	NameAt hcl.Range // of the label, or of the type where there is none
	TypeAt hcl.Range
	At     hcl.Range // of the header: here a missing thing is reported

	body   hcl.Body
	args   map[string]*Arg
	blocks map[string][]*Block
}

// Open checks the block's body against a schema: unknown names, what is missing, what is
// repeated, labels.
func (b *Block) Open(s Schema) {
	if b == nil {
		return
	}
	b.fixLabels(s)
	content, diags := b.body.Content(s.hcl())
	for _, diag := range diags {
		b.File.Diags = append(b.File.Diags, s.reworded(diag, b.File.Scope.Text))
	}
	b.take(content, s)
	for _, name := range s.Required {
		known := s.block(name)
		switch {
		case known == nil && b.args[name] == nil:
			b.File.Missing(b.At, "Missing required argument", "%s needs the argument %q.", expr.Capital(s.Where), name)
		case known != nil && len(b.blocks[name]) == 0:
			b.File.Missing(b.At, "Missing block", "%s needs a block: %s", expr.Capital(s.Where), cmp.Or(known.Missing, known.example()))
		}
	}
}

// Peek is Open for some arguments and blocks, whatever else there is.
func (b *Block) Peek(s Schema) {
	if b == nil {
		return
	}
	content, _, _ := b.body.PartialContent(s.hcl())
	b.take(content, s)
}

func (b *Block) take(content *hcl.BodyContent, s Schema) {
	b.args, b.blocks = map[string]*Arg{}, map[string][]*Block{}
	for name, attr := range content.Attributes {
		b.args[name] = &Arg{
			Name: name, NameAt: attr.NameRange, At: attr.Expr.Range(), Expr: native(b.File, attr.Expr), file: b.File,
		}
	}
	for _, found := range content.Blocks {
		if first := b.blocks[found.Type]; len(first) > 0 && !s.block(found.Type).Many {
			b.File.ErrorAlso(found.DefRange, first[0].At, "Repeated block",
				"There can be one %s block in %s; the first is at %s.", found.Type, s.Where, first[0].At)
			continue
		}
		inner := &Block{File: b.File, NameAt: found.TypeRange, TypeAt: found.TypeRange, At: found.DefRange}
		inner.body = found.Body
		switch {
		case len(found.LabelRanges) > 0:
			inner.Label, inner.NameAt = found.Labels[0], found.LabelRanges[0]
		case len(found.Labels) > 0:
			inner.Bare = true
		}
		b.blocks[found.Type] = append(b.blocks[found.Type], inner)
	}
}

// Arg is an argument of the block, nil where it is not written.
func (b *Block) Arg(name string) *Arg {
	if b == nil {
		return nil
	}
	return b.args[name]
}

// Args are all that are written, by name.
func (b *Block) Args() map[string]*Arg { return b.args }

// Block is the block of that type within this one, nil where there is none.
func (b *Block) Block(name string) *Block {
	if all := b.Blocks(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Blocks are those of that type within this one.
func (b *Block) Blocks(name string) []*Block {
	if b == nil {
		return nil
	}
	return b.blocks[name]
}

func (s Schema) hcl() *hcl.BodySchema {
	schema := &hcl.BodySchema{}
	for _, name := range s.Args {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	for _, block := range s.Blocks {
		header := hcl.BlockHeaderSchema{Type: block.Name}
		if block.Label != "" {
			header.LabelNames = []string{"label"}
		}
		schema.Blocks = append(schema.Blocks, header)
	}
	return schema
}

// fixLabels reports blocks with wrong labels, which hcl would leave out with all that is wrong
// within them.
func (b *Block) fixLabels(s Schema) {
	native, is := b.body.(*hclsyntax.Body)
	if !is {
		return
	}
	fixed := *native
	fixed.Blocks = nil
	for _, block := range native.Blocks {
		switch known := s.block(block.Type); {
		case known == nil:
		case known.Label != "" && len(block.Labels) == 0:
			b.File.Error(block.TypeRange, "Missing label", "Write %s", known.example())
			fixed.Blocks = append(fixed.Blocks, withLabels(block, 0, ""))
			continue
		case known.Label == "" && len(block.Labels) > 0:
			b.File.Error(block.LabelRanges[0], "Unexpected label", "A %s block has no label: write %s", known.Name, known.example())
			block = withLabels(block, 0)
		case len(block.Labels) > 1:
			b.File.Error(block.LabelRanges[1], "Unexpected label", "A %s block has one label: write %s", known.Name, known.example())
			block = withLabels(block, 1)
		}
		fixed.Blocks = append(fixed.Blocks, block)
	}
	b.body = &fixed
}

// withLabels is the block with its first labels only, and one more.
func withLabels(block *hclsyntax.Block, n int, more ...string) *hclsyntax.Block {
	fixed := *block
	fixed.Labels, fixed.LabelRanges = append(block.Labels[:n:n], more...), block.LabelRanges[:n]
	return &fixed
}

// reworded is a diagnostic of hcl's about the body with what the schema says about it.
func (s Schema) reworded(diag *hcl.Diagnostic, source []byte) *hcl.Diagnostic {
	at, name := diagnostic.Subject(diag), ""
	if at.CanSliceBytes(source) {
		name = strings.Trim(string(at.SliceBytes(source)), `"`)
	}
	switch diag.Summary {
	case "Unsupported argument", "Extraneous JSON object property":
		diag.Summary, diag.Detail = "Unsupported argument", s.unknownArg(name)
	case "Unsupported block type":
		diag.Detail = s.unknownBlock(name)
	}
	return diag
}

func (b BlockType) example() string {
	if b.Label == "" {
		return b.Name + " { ... }"
	}
	return b.Name + " " + b.Label + " { ... }"
}

func (s Schema) block(name string) *BlockType {
	i := slices.IndexFunc(s.Blocks, func(b BlockType) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Blocks[i]
}

// Has reports whether the block holds an argument or a block of that name.
func (s Schema) Has(name string) bool { return slices.Contains(s.Args, name) || s.block(name) != nil }

func (s Schema) unknownArg(name string) string {
	if known := s.block(name); known != nil {
		return fmt.Sprintf("%s is a block, not an argument: write %s without \"=\".", name, known.example())
	}
	return s.unknown("argument", name)
}

func (s Schema) unknownBlock(name string) string {
	if slices.Contains(s.Args, name) {
		return fmt.Sprintf("%s is an argument, not a block: write %s = ...", name, name)
	}
	return s.unknown("block", name)
}

func (s Schema) unknown(kind, name string) string {
	detail := fmt.Sprintf("%s has no %s %q.", expr.Capital(s.Where), kind, name)
	if here := s.Elsewhere[strings.ToLower(strings.ReplaceAll(name, "-", "_"))]; here != "" {
		return detail + " Write " + here + "."
	}
	return detail + text.DidYouMean(name, append(slices.Clone(s.Args), s.blockNames()...)) + " " + s.Allowed()
}

func (s Schema) blockNames() []string {
	var names []string
	for _, block := range s.Blocks {
		names = append(names, block.Name)
	}
	return names
}

// Allowed lists what the block takes.
func (s Schema) Allowed() string {
	blocks := s.blockNames()
	switch {
	case s.Hint != "":
		return s.Hint
	case len(s.Args) == 0 && len(blocks) == 0:
		return "It takes nothing."
	case len(s.Args) == 0:
		return "It takes the blocks " + expr.List(blocks) + "."
	case len(blocks) == 0:
		return "It takes the arguments " + expr.List(s.Args) + "."
	}
	return "It takes the arguments " + expr.List(s.Args) + " and the blocks " + expr.List(blocks) + "."
}
