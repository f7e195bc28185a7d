package webhook

import (
	"errors"
	"regexp"
	"strings"

	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// maxSpent is what the operations of one evaluation may cost together, in bytes that they read or make, or 16 a value.
// CEL charges for a call when it is done; these are charged before.
const maxSpent = 4 << 20

var errTooDear = errors.New("too much work for an expression")

// purse is what is left of an evaluation.
type purse struct{ left int }

// purseName is that of a variable which no expression can name, by which the operations find the purse.
const purseName = "fairlead purse"

func (p *purse) pay(n int) error {
	if n < 0 || n > p.left {
		p.left = 0
		return errTooDear
	}
	p.left -= n
	return nil
}

// weigh pays for a walk through a value. Values within values can be shared, so that one may be far larger than the
// memory that it takes.
func (p *purse) weigh(v ref.Val) error {
	err := p.pay(16 + len(textOf(v)))
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); err == nil && it.HasNext() == types.True; {
			key := it.Next()
			if err = p.weigh(key); err == nil {
				err = p.weigh(v.Get(key))
			}
		}
	case traits.Lister:
		for it := v.Iterator(); err == nil && it.HasNext() == types.True; {
			err = p.weigh(it.Next())
		}
	case traits.Indexer: // the answer as a whole
		for _, field := range []types.String{"headers", "body"} {
			if err == nil {
				err = p.weigh(v.Get(field))
			}
		}
	}
	return err
}

// textOf is the content of a string or of bytes.
func textOf(v ref.Val) string {
	switch v := v.(type) {
	case types.String:
		return string(v)
	case types.Bytes:
		return string(v)
	}
	return ""
}

// price pays for a call before it is made.
type price func(p *purse, args []ref.Val) error

// prices are those of the operations that may take more than their arguments are long, or make more.
var prices = map[string]price{
	operators.Equals:    payForAll,
	operators.NotEquals: payForAll,
	operators.In:        payForAll,
	"format":            payForAll,
	"join": func(p *purse, args []ref.Val) error {
		err := p.weigh(args[0])
		if list, ok := args[0].(traits.Lister); ok && err == nil && len(args) > 1 {
			n, _ := list.Size().(types.Int)
			err = p.pay(int(n) * len(textOf(args[1])))
		}
		return err
	},
	"replace": func(p *purse, args []ref.Val) error {
		if len(args) < 3 {
			return nil
		}
		text, old, with := textOf(args[0]), textOf(args[1]), textOf(args[2])
		return p.pay(len(text) + (strings.Count(text, old)+1)*(16+len(with)))
	},
	"split": func(p *purse, args []ref.Val) error {
		if len(args) < 2 {
			return nil
		}
		text := textOf(args[0])
		return p.pay(len(text) + 16*(strings.Count(text, textOf(args[1]))+1))
	},
	operators.Add: func(p *purse, args []ref.Val) error {
		switch sum := args[0].(type) {
		case traits.MutableLister: // the result of filter or map, which grows in place
			return p.pay(16)
		case traits.Lister:
			n, _ := sum.Size().(types.Int)
			if more, ok := args[1].(traits.Lister); ok {
				m, _ := more.Size().(types.Int)
				n += m
			}
			return p.pay(16 * int(n))
		}
		return p.pay(16 + len(textOf(args[0])) + len(textOf(args[1])))
	},
	"strings.quote": func(p *purse, args []ref.Val) error { return p.pay(6 * len(textOf(args[0]))) },
}

// payForAll pays for values as they would be if nothing in them were shared.
func payForAll(p *purse, args []ref.Val) error {
	for _, arg := range args {
		if err := p.weigh(arg); err != nil {
			return err
		}
	}
	return nil
}

// payForTexts pays for reading texts once.
func payForTexts(p *purse, args []ref.Val) error {
	n := 16
	for _, arg := range args {
		n += len(textOf(arg))
	}
	return p.pay(n)
}

// zonePrice is that of looking up a time zone, which reads a file.
const zonePrice = maxSpent / 64

// matchPrice is that of a regular expression: each byte may be held against each instruction.
func matchPrice(pattern string) price {
	size, err := patternSize(pattern)
	return func(p *purse, args []ref.Val) error {
		if err != nil {
			return err
		}
		return p.pay(16 + len(textOf(args[0]))*size/4)
	}
}

// readings charge for the other calls, when they are done, by what they read and make: CEL takes many of them, size for
// one, to be as cheap for a long text as for a short one.
type readings struct{}

// CallCost implements cost.ActualCostEstimator.
func (readings) CallCost(_, _ string, args []ref.Val, result ref.Val) *uint64 {
	n := len(textOf(result))
	for _, arg := range args {
		n += len(textOf(arg))
	}
	units := uint64(1 + n/10)
	return &units
}

// pricer puts prices on the operations of a program.
type pricer struct {
	functions map[string]*decls.FunctionDecl
}

func (f pricer) decorate(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok {
		return node, nil
	}
	name, args := call.Function(), call.Args()
	made := &pricedCall{InterpretableCall: call, args: args, price: prices[name]}
	switch {
	case name == operators.Equals:
		made.impl = func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
		return made, nil
	case name == operators.NotEquals:
		made.impl = func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
		return made, nil
	case name == overloads.Matches && len(args) == 2:
		pattern, ok := args[1].(interpreter.InterpretableConst)
		if !ok {
			return nil, errors.New("the pattern of matches is no constant")
		}
		text := textOf(pattern.Value())
		compiled, err := regexp.Compile(text)
		if err != nil {
			return nil, err
		}
		made.price = matchPrice(text)
		made.impl = func(args ...ref.Val) ref.Val {
			s, ok := args[0].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[0])
			}
			return types.Bool(compiled.MatchString(string(s)))
		}
		return made, nil
	case searches[name] != nil:
		made.price, made.impl = payForTexts, searches[name]
		return made, nil
	case strings.HasSuffix(call.OverloadID(), "_with_tz") || len(args) == 2 && strings.HasPrefix(name, "get"):
		made.price = func(p *purse, _ []ref.Val) error { return p.pay(zonePrice) }
	case made.price == nil:
		return node, nil
	}
	var err error
	made.impl, err = implementation(f.functions[name])
	if name == operators.Add {
		made.impl = flatten(made.impl)
	}
	return made, err
}

// flatten adds lists so that the sum holds their items. CEL's holds the two lists, and asks both for their sizes at
// each look at it.
func flatten(add functions.FunctionOp) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		sum := add(args...)
		list, ok := sum.(traits.Lister)
		if _, grows := sum.(traits.MutableLister); grows || !ok {
			return sum
		}
		var items []ref.Val
		for it := list.Iterator(); it.HasNext() == types.True; {
			items = append(items, it.Next())
		}
		return types.DefaultTypeAdapter.NativeToValue(items)
	}
}

// implementation is what a function does, whatever the types of its arguments are.
func implementation(f *decls.FunctionDecl) (functions.FunctionOp, error) {
	bindings, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	for _, b := range bindings {
		if b.Operator != f.Name() {
			continue
		}
		return func(args ...ref.Val) ref.Val {
			switch {
			case b.Unary != nil && len(args) == 1:
				return b.Unary(args[0])
			case b.Binary != nil && len(args) == 2:
				return b.Binary(args[0], args[1])
			case b.Function != nil:
				return b.Function(args...)
			}
			return types.NewErr("no such overload: %s", f.Name())
		}, nil
	}
	return nil, errors.New("cannot find what " + f.Name() + " does")
}

// pricedCall is a call that is paid for before it is made.
type pricedCall struct {
	interpreter.InterpretableCall
	args  []interpreter.InterpretableV2
	price price
	impl  functions.FunctionOp
}

// Exec implements interpreter.InterpretableV2.
func (c *pricedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(c.args))
	for i, arg := range c.args {
		if args[i] = arg.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	found, _ := frame.ResolveName(purseName)
	p, ok := found.(*purse)
	if !ok {
		return types.NewErrWithNodeID(c.ID(), "cannot account for %s", c.Function())
	}
	if err := c.price(p, args); err != nil {
		return types.WrapErr(err)
	}
	return c.impl(args...)
}

// Eval implements interpreter.Interpretable.
func (c *pricedCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}
