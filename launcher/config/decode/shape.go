package decode

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

// checkShape finds where brackets or operators go beyond the limits, nil where
// they do not.
func checkShape(text []byte, filename string) *hcl.Diagnostic {
	tokens, _ := hclsyntax.LexConfig(text, filename, hcl.InitialPos)
	brackets, operators := nesting{open: map[hclsyntax.TokenType]int{}}, 0
	for _, token := range tokens {
		brackets.add(token.Type)
		if !plain[token.Type] {
			operators++
		}
		if brackets.depth > maxNesting || operators > maxOperators {
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

// nesting counts brackets that are open. Each kind is counted by itself, so that
// stray closing brackets, which the parser skips, hide no opening ones.
type nesting struct {
	open  map[hclsyntax.TokenType]int // by the opening token
	depth int
}

// opens and closes are the brackets; a closing token has its opening ones.
var (
	opens = map[hclsyntax.TokenType]bool{
		hclsyntax.TokenOBrace: true, hclsyntax.TokenOParen: true, hclsyntax.TokenOBrack: true, hclsyntax.TokenOQuote: true,
		hclsyntax.TokenOHeredoc: true, hclsyntax.TokenTemplateInterp: true, hclsyntax.TokenTemplateControl: true,
	}
	closes = map[hclsyntax.TokenType][]hclsyntax.TokenType{
		hclsyntax.TokenCBrace:         {hclsyntax.TokenOBrace},
		hclsyntax.TokenCParen:         {hclsyntax.TokenOParen},
		hclsyntax.TokenCBrack:         {hclsyntax.TokenOBrack},
		hclsyntax.TokenCQuote:         {hclsyntax.TokenOQuote},
		hclsyntax.TokenCHeredoc:       {hclsyntax.TokenOHeredoc},
		hclsyntax.TokenTemplateSeqEnd: {hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl},
	}
)

// plain are the tokens that make no expression deeper. Square brackets and
// directives can do so one after the other: a[0][0], %{if}%{if}.
var plain = map[hclsyntax.TokenType]bool{
	hclsyntax.TokenOBrace: true, hclsyntax.TokenOParen: true, hclsyntax.TokenOQuote: true, hclsyntax.TokenOHeredoc: true,
	hclsyntax.TokenCBrace: true, hclsyntax.TokenCParen: true, hclsyntax.TokenCQuote: true, hclsyntax.TokenCHeredoc: true,
	hclsyntax.TokenTemplateInterp: true, hclsyntax.TokenTemplateSeqEnd: true, hclsyntax.TokenCBrack: true,
	hclsyntax.TokenIdent: true, hclsyntax.TokenNumberLit: true, hclsyntax.TokenStringLit: true, hclsyntax.TokenQuotedLit: true,
	hclsyntax.TokenNewline: true, hclsyntax.TokenComma: true, hclsyntax.TokenEqual: true, hclsyntax.TokenComment: true,
}

func (n *nesting) add(t hclsyntax.TokenType) {
	if opens[t] {
		n.open[t]++
		n.depth++
	}
	for _, opening := range closes[t] {
		if n.open[opening] > 0 {
			n.open[opening]--
			n.depth--
			break
		}
	}
}
