package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// references collects, as a walker, what an expression refers to. HCL's own
// Variables does not see through meters.
type references struct {
	names  []hcl.Traversal
	calls  []*hclsyntax.FunctionCallExpr
	locals []map[string]struct{} // names that for expressions around have made
}

// Enter notes a node.
func (r *references) Enter(node hclsyntax.Node) hcl.Diagnostics {
	if child, ok := node.(hclsyntax.ChildScope); ok {
		r.locals = append(r.locals, child.LocalNames)
	}
	expr, ok := node.(hclsyntax.Expression)
	if !ok {
		return nil
	}
	switch e := unwrap(expr).(type) {
	case *hclsyntax.ScopeTraversalExpr:
		if !r.isLocal(e.Traversal.RootName()) {
			r.names = append(r.names, e.Traversal)
		}
	case *hclsyntax.FunctionCallExpr:
		r.calls = append(r.calls, e)
	}
	return nil
}

// Exit leaves a node.
func (r *references) Exit(node hclsyntax.Node) hcl.Diagnostics {
	if _, ok := node.(hclsyntax.ChildScope); ok {
		r.locals = r.locals[:len(r.locals)-1]
	}
	return nil
}

func (r *references) isLocal(name string) bool {
	for _, names := range r.locals {
		if _, ok := names[name]; ok {
			return true
		}
	}
	return false
}
