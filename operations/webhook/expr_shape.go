package webhook

import (
	"errors"
	"fmt"
	"regexp/syntax"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// Bounds of the shape of an expression, checked before any expensive work. Type checking of nested literals takes
// polynomial time in their depth, and exponential time if map keys are maps themselves.
const (
	maxExprDepth   = 64   // levels of the syntax tree
	maxLiterals    = 64   // list and map literals
	maxLiteralNest = 8    // nesting depth of literals
	maxMacros      = 8    // all, exists, exists_one, filter, map
	maxPattern     = 1000 // instructions of a compiled regular expression
)

// checkShape refuses expressions that are unreasonably expensive to compile or to evaluate.
func checkShape(root ast.Expr) error {
	s := &shape{}
	s.visit(root, 1, 0)
	return s.err
}

type shape struct {
	literals, macros int
	err              error
}

func (s *shape) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *shape) visit(e ast.Expr, depth, nest int) {
	if depth > maxExprDepth {
		s.refuse("it is nested more than %d deep", maxExprDepth)
	}
	if s.err != nil {
		return
	}
	down := func(nest int, children ...ast.Expr) {
		for _, child := range children {
			s.visit(child, depth+1, nest)
		}
	}
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			down(nest, call.Target())
		}
		down(nest, call.Args()...)
		if call.FunctionName() == overloads.Matches && len(call.Args()) > 0 {
			s.pattern(call.Args()[len(call.Args())-1])
		}
	case ast.SelectKind:
		down(nest, e.AsSelect().Operand())
	case ast.ListKind:
		s.literal(nest + 1)
		down(nest+1, e.AsList().Elements()...)
	case ast.MapKind:
		s.literal(nest + 1)
		for _, entry := range e.AsMap().Entries() {
			if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
				s.refuse("a key of a map is computed")
			}
			down(nest+1, entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		s.refuse("it makes an object of type %s", e.AsStruct().TypeName())
	case ast.ComprehensionKind:
		if s.macros++; s.macros > maxMacros {
			s.refuse("it has more than %d of all, exists, exists_one, filter and map", maxMacros)
		}
		c := e.AsComprehension()
		down(nest, c.IterRange(), c.LoopCondition(), c.LoopStep(), c.Result())
		if c.AccuInit().Kind() != ast.ListKind { // the initial list of a macro is not a literal of the author
			down(nest, c.AccuInit())
		}
	}
}

func (s *shape) literal(nest int) {
	if s.literals++; s.literals > maxLiterals {
		s.refuse("it spells out more than %d lists and maps", maxLiterals)
	}
	if nest > maxLiteralNest {
		s.refuse("it spells out lists and maps more than %d deep", maxLiteralNest)
	}
}

// pattern checks a regular expression. It must be a constant, because its size determines the price.
func (s *shape) pattern(e ast.Expr) {
	text, ok := literalText(e)
	if !ok {
		s.refuse("the pattern of matches is no constant")
		return
	}
	if _, err := patternSize(text); err != nil {
		s.refuse("cannot use the pattern of matches: %w", err)
	}
}

// patternSize returns the number of instructions of a compiled regular expression.
func patternSize(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	// compilation expands repetitions, into up to three million instructions
	if atLeast(parsed) > maxPattern {
		return 0, errTooLarge
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	if len(program.Inst) > maxPattern {
		return 0, errTooLarge
	}
	return len(program.Inst), nil
}

var errTooLarge = errors.New("it is too large")

// atLeast returns a lower bound of the instructions of a regular expression, capped above maxPattern.
func atLeast(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += atLeast(sub)
	}
	switch re.Op {
	case syntax.OpRepeat:
		n *= max(re.Min, re.Max) // Max is -1 without an upper bound
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpEmptyMatch:
	default:
		n = max(n, 1)
	}
	return min(n, maxPattern+1)
}

func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
