package webhook

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Bounds of one evaluation. The price of a single operation is bounded separately, before it runs; see price.
const (
	costLimit   = 200_000          // in CEL units, about one per operation or ten bytes
	evalTimeout = 10 * time.Second // last resort; the cost limit applies first
	checkEvery  = 64               // iterations between two checks of the context
)

// celResponse is the type of the variable response.
type celResponse struct {
	Status  int64             `cel:"status"`
	Headers map[string]string `cel:"headers"`
	Body    any               `cel:"body"`
}

// environments pools the CEL environments. An environment compiles one expression at a time: an undeclared name makes
// it write to itself without a lock, to compute suggestions. Creating one takes milliseconds, and happens as often as
// expressions compile concurrently.
var environments = sync.Pool{New: func() any {
	env, err := cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[celResponse](), ext.ParseStructTags(true)),
		cel.Variable("response", cel.ObjectType("webhook.celResponse")),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpr),
		cel.ParserRecursionLimit(maxExprDepth),
		cel.ExpressionNodeLimit(maxExpr),
		ext.Strings(),
	)
	if err != nil {
		return err
	}
	return env
}}

// expr is a compiled expression. It is safe for concurrent use.
type expr struct {
	field   string
	program cel.Program
	ast     *cel.Ast
}

// compileExpr compiles source, which must yield want.
func compileExpr(field, source string, want *cel.Type) (*expr, error) {
	made := environments.Get()
	env, ok := made.(*cel.Env)
	if !ok {
		return nil, fmt.Errorf("cannot make the environment of expressions: %w", made.(error))
	}
	defer environments.Put(env)
	parsed, issues := env.Parse(source)
	err := issues.Err()
	if err == nil {
		err = checkShape(parsed.NativeRep().Expr()) // before type checking, which is slow for some refused shapes
	}
	if err != nil {
		return nil, fieldError(field, "cannot compile expression: %w", err)
	}
	compiled, issues := env.Check(parsed)
	if err := issues.Err(); err != nil {
		return nil, fieldError(field, "cannot compile expression: %w", err)
	}
	if out := compiled.OutputType(); !out.IsExactType(want) && !out.IsExactType(cel.DynType) {
		return nil, fieldError(field, "cannot compile expression: it yields %s, not %s", out, want)
	}
	program, err := env.Program(compiled, cel.CostLimit(costLimit), cel.CostTracking(readings{}),
		cel.InterruptCheckFrequency(checkEvery),
		cel.CustomDecoratorV2(pricer{env.Functions()}.decorate))
	if err != nil {
		return nil, fieldError(field, "cannot compile expression: %w", err)
	}
	return &expr{field: field, program: program, ast: compiled}, nil
}

func (e *expr) eval(a *answer) (ref.Val, *purse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), evalTimeout)
	defer cancel()
	p := &purse{left: maxSpent}
	out, _, err := e.program.ContextEval(ctx, map[string]any{"response": a.cel(), purseName: p})
	if err != nil && a.large {
		return nil, nil, e.cannot("%w (a body of more than %d values is taken for a text)", err, maxValues)
	}
	if err != nil {
		return nil, nil, e.cannot("%w", err)
	}
	return out, p, nil
}

// cannot returns no FieldError: the expression is valid, but does not fit this answer.
func (e *expr) cannot(format string, args ...any) error {
	return fmt.Errorf("%s: cannot evaluate expression on this answer: "+format, append([]any{e.field}, args...)...)
}

func (e *expr) bool(a *answer) (bool, error) {
	out, _, err := e.eval(a)
	if err != nil {
		return false, err
	}
	truth, ok := out.(types.Bool)
	if !ok {
		return false, e.cannot("it yields %s, not bool", out.Type().TypeName())
	}
	return bool(truth), nil
}

// text returns the value of the expression as a string. Empty JSON values (null, false, {}, []) become the empty
// string, and other values become JSON.
func (e *expr) text(a *answer) (string, error) {
	out, purse, err := e.eval(a)
	if err != nil {
		return "", err
	}
	switch v := out.(type) {
	case types.String:
		return string(v), nil
	case types.Null:
		return "", nil
	case types.Bool:
		if !v {
			return "", nil
		}
	}
	if err := purse.weigh(out); err != nil {
		return "", e.cannot("%w", err)
	}
	native, err := out.ConvertToNative(types.JSONValueType)
	if err != nil {
		return "", e.cannot("it yields %s, not string", out.Type().TypeName())
	}
	marshaler, ok := native.(interface{ MarshalJSON() ([]byte, error) })
	if !ok {
		return "", e.cannot("it yields no JSON")
	}
	data, err := marshaler.MarshalJSON()
	if err != nil {
		return "", e.cannot("%w", err)
	}
	if s := string(data); s != "{}" && s != "[]" {
		return s, nil
	}
	return "", nil
}

// origins returns the origins of URLs in string constants of the expression, which the author trusts.
func (e *expr) origins() []string {
	var found []string
	ast.PostOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		text, ok := literalText(node)
		if !ok {
			return
		}
		if lower := strings.ToLower(text); !strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") {
			return
		}
		if u, err := url.Parse(text); err == nil && u.Host != "" && u.User == nil {
			found = append(found, originOf(u))
		}
	}))
	return found
}
