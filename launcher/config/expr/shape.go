package expr

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Limits of a job file's shape. The parser and the evaluator are recursive, and a
// Go program cannot survive a stack that is used up.
const (
	maxNesting   = 64     // brackets within brackets
	maxOperators = 20_000 // of signs that each add a level to an expression
)

// CheckShape finds where brackets or operators go beyond the limits, nil where
// they do not.
func CheckShape(text []byte, filename string) *hcl.Diagnostic {
	tokens, _ := hclsyntax.LexConfig(text, filename, hcl.InitialPos)
	depth, operators := 0, 0
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOParen, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc,
			hclsyntax.TokenTemplateInterp:
			depth++
		case hclsyntax.TokenOBrack, hclsyntax.TokenTemplateControl: // also one after the other: a[0][0], %{if}%{if}
			depth++
			operators++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCParen, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc,
			hclsyntax.TokenCBrack, hclsyntax.TokenTemplateSeqEnd:
			depth = max(0, depth-1) // the parser skips stray ones
		case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenStringLit, hclsyntax.TokenQuotedLit,
			hclsyntax.TokenNewline, hclsyntax.TokenComma, hclsyntax.TokenEqual,
			hclsyntax.TokenColon, hclsyntax.TokenComment:
		default:
			operators++
		}
		if depth > maxNesting || operators > maxOperators {
			return &hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Job file too complex",
				Detail:   "There are too many brackets within brackets, or too many operators. Make such values in the training script instead.",
				Subject:  &token.Range,
			}
		}
	}
	return nil
}
