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

// maxSpent bounds the total price of the operations of one evaluation. The unit is a byte read or produced; a value
// costs 16. CEL charges for a call after it is done. These prices are charged before.
const maxSpent = 4 << 20

var errTooDear = errors.New("too much work for an expression")

// purse is the remaining budget of an evaluation.
type purse struct{ left int }

// purseName is the variable that holds the budget. Expressions cannot use the name because it contains a space.
const purseName = "fairlead purse"

func (p *purse) pay(n int) error {
	if n < 0 || n > p.left {
		p.left = 0
		return errTooDear
	}
	p.left -= n
	return nil
}

// weigh charges for walking through a value. Nested values may be shared, so a value may be far larger than the memory
// that it takes.
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
	case traits.Indexer: // the whole answer
		for _, field := range []types.String{"headers", "body"} {
			if err == nil {
				err = p.weigh(v.Get(field))
			}
		}
	}
	return err
}

// textOf returns the content of a string or of bytes.
func textOf(v ref.Val) string {
	switch v := v.(type) {
	case types.String:
		return string(v)
	case types.Bytes:
		return string(v)
	}
	return ""
}

// price charges for a call before it is made.
type price func(p *purse, args []ref.Val) error

// prices covers the operations that may take more time than the length of their arguments, or produce more.
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

// payForAll charges for values as if no part of them were shared.
func payForAll(p *purse, args []ref.Val) error {
	for _, arg := range args {
		if err := p.weigh(arg); err != nil {
			return err
		}
	}
	return nil
}

// payForTexts charges for reading texts once.
func payForTexts(p *purse, args []ref.Val) error {
	n := 16
	for _, arg := range args {
		n += len(textOf(arg))
	}
	return p.pay(n)
}

// zonePrice is the price of a time zone lookup, which reads a file.
const zonePrice = maxSpent / 64

// matchPrice returns the price of a regular expression: each byte may be matched against each instruction.
func matchPrice(pattern string) price {
	size, err := patternSize(pattern)
	return func(p *purse, args []ref.Val) error {
		if err != nil {
			return err
		}
		return p.pay(16 + len(textOf(args[0]))*size/4)
	}
}

// readings charges for the other calls, after they are done, by the bytes they read and produce. CEL gives many of
// them, such as size, a cost that does not depend on the length of the text.
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

// pricer adds prices to the operations of a program.
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

// flatten makes the sum of two lists contain their items. CEL's own sum refers to the two lists and asks both for their
// sizes at each access.
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

// implementation returns the implementation of a function that accepts arguments of any type.
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

// pricedCall is a call that is charged before it is made.
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
