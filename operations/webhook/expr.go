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

// Bounds of one evaluation. What a single operation takes besides is bounded before it is done, see price.
const (
	costLimit   = 200_000          // in the units of CEL, about one per operation or ten bytes
	evalTimeout = 10 * time.Second // the last resort; the cost limit strikes first
	checkEvery  = 64               // iterations between two looks at the context
)

// celResponse is what expressions call response.
type celResponse struct {
	Status  int64             `cel:"status"`
	Headers map[string]string `cel:"headers"`
	Body    any               `cel:"body"`
}

// environments are those that expressions are compiled in, one at a time in each: an undeclared name makes an
// environment write to itself, and the suggestions that it makes then are not guarded. Making one takes milliseconds,
// and is done as often as expressions are compiled side by side.
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

// expr is a compiled expression, safe for concurrent use.
type expr struct {
	field   string
	program cel.Program
	ast     *cel.Ast
}

// compileExpr compiles source, which is to yield want.
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
		err = checkShape(parsed.NativeRep().Expr()) // before its types are checked, which what it refuses makes slow
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

// cannot is no FieldError: the expression is valid, it is this answer that it does not fit.
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

// text is the string that the expression yields. What is empty in JSON (null, false, {}, []) is the empty string, and
// what is no string is its JSON.
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

// origins are those that string constants of the expression begin with: hosts that the author names.
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
