package webhook

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// kind is the destination of a template's output. It determines how values are escaped.
type kind int

const (
	kindPlain kind = iota // method, header value
	kindURL
	kindBody
)

// Bounds of all renderings of one call together, except maxDepth.
const (
	maxSteps   = 100_000          // evaluated items: texts, actions, function arguments, loop iterations
	maxWork    = 4 << 20          // bytes that functions read or produce
	maxDepth   = 64               // nested template calls
	maxRunning = 10 * time.Second // last resort; must not affect valid templates on a slow machine
	clockEvery = 1000             // steps between two checks of the clock
)

var (
	errTooMuch = errors.New("too much work for a template")
	errTooDeep = fmt.Errorf("templates call each other more than %d deep", maxDepth)
)

// Names that compiled templates use and users cannot.
const (
	fnEmit  = "fairlead_emit"  // wraps every printed value
	fnStep  = "fairlead_step"  // starts each list of nodes, with its weight
	fnPay   = "fairlead_pay"   // wraps values that builtin functions and loops read completely
	fnEnter = "fairlead_enter" // surrounds each call of a template
	fnLeave = "fairlead_leave"
)

// text is a parsed template. It is safe for concurrent use.
type text struct {
	kind   kind
	limit  int
	static *string // the constant output, if there are no actions
	runs   sync.Pool
}

// parseTemplate compiles source. The error does not name the field.
func parseTemplate(source string, kind kind, limit int) (*text, error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("cannot parse template: longer than %d bytes", maxTemplate)
	}
	t := &text{kind: kind, limit: limit}
	if !strings.Contains(source, "{{") {
		if len(source) > limit {
			return nil, fmt.Errorf("cannot parse template: its text is longer than %d bytes", limit)
		}
		t.static = &source
		return t, nil
	}
	master, err := template.New("template").Option("missingkey=error").Funcs((&run{}).functions()).Parse(source)
	if err != nil {
		return nil, fmt.Errorf("cannot parse template: %w", err)
	}
	hooks, err := newHooks()
	if err != nil {
		return nil, err
	}
	for _, each := range master.Templates() {
		if each.Tree == nil {
			continue
		}
		if err := hooks.list(each.Root); err != nil {
			return nil, fmt.Errorf("cannot parse template: %w", err)
		}
	}
	t.runs.New = func() any {
		r := &run{kind: kind, limit: limit}
		clone, err := master.Clone()
		if err != nil {
			return err // text templates can always be cloned
		}
		r.template = clone.Funcs(r.functions()).Funcs(r.hooks())
		return r
	}
	return t, nil
}

// effort counts the work of the templates of one call.
type effort struct {
	started     time.Time
	steps, work int
}

func newEffort() *effort { return &effort{started: time.Now()} }

// render executes the template. jsonBody means that the output is JSON.
func (t *text) render(root map[string]any, jsonBody bool, spent *effort) (out string, err error) {
	if t.static != nil {
		return *t.static, nil
	}
	r, ok := t.runs.Get().(*run)
	if !ok {
		return "", errors.New("cannot render template: it cannot be copied")
	}
	r.reset(jsonBody, spent)
	if p := protect.Call(func() { err = r.template.Execute(r, root) }); p != nil {
		return "", fmt.Errorf("cannot render template: panic: %v", p.Value)
	}
	if err != nil {
		for _, bound := range []error{errTooMuch, errTooDeep} {
			if errors.Is(err, bound) {
				return "", fmt.Errorf("cannot render template: %w", bound)
			}
		}
		return "", fmt.Errorf("cannot render template: %s", asWritten(err.Error()))
	}
	out = string(r.out)
	if cap(r.out) > 64<<10 {
		r.out = nil
	}
	t.runs.Put(r)
	return out, nil
}

var (
	paidFor = regexp.MustCompile(`\(` + fnPay + ` ("(?:[^"\\]|\\.)*"|[^()"]*)\)`)
	calling = regexp.MustCompile(` at <(?:` + fnEmit + `|` + fnPay + `)>(: error calling \w+)?`)
)

// asWritten removes our own functions from a message of text/template.
func asWritten(message string) string {
	return calling.ReplaceAllString(paidFor.ReplaceAllString(message, "$1"), "")
}

// hooks inserts calls that bound and escape into a parse tree, as html/template does for its escapers.
type hooks struct{ enter, leave parse.Node }

func newHooks() (*hooks, error) {
	var h hooks
	var errs [2]error
	h.enter, errs[0] = hook(fnEnter)
	h.leave, errs[1] = hook(fnLeave)
	return &h, errors.Join(errs[:]...)
}

func hook(source string) (parse.Node, error) {
	t, err := template.New("hook").Funcs((&run{}).hooks()).Parse("{{" + source + "}}")
	if err != nil {
		return nil, err
	}
	return t.Root.Nodes[0], nil
}

func (h *hooks) list(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	step, err := hook(fmt.Sprintf("%s %d", fnStep, 1+weight(list)))
	if err != nil {
		return err
	}
	nodes := append(make([]parse.Node, 0, 1+len(list.Nodes)), step)
	for _, node := range list.Nodes {
		var err error
		switch n := node.(type) {
		case *parse.ActionNode:
			if err = checkPipe(n.Pipe); err == nil {
				emit(n.Pipe)
			}
		case *parse.IfNode:
			err = h.branch(&n.BranchNode)
		case *parse.WithNode:
			err = h.branch(&n.BranchNode)
		case *parse.RangeNode:
			if err = h.branch(&n.BranchNode); err == nil {
				n.Pipe.Cmds = append(n.Pipe.Cmds, call(fnPay, n.Pipe.Pos)) // a loop sorts the whole map
			}
		case *parse.TemplateNode:
			err = checkPipe(n.Pipe)
			nodes = append(nodes, h.enter, node, h.leave)
			node = nil
		}
		if err != nil {
			return err
		}
		if node != nil {
			nodes = append(nodes, node)
		}
	}
	list.Nodes = nodes
	return nil
}

// weight returns the minimum number of steps to evaluate a list, without nested lists.
func weight(list *parse.ListNode) int {
	n := len(list.Nodes)
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			n += weightOf(node.Pipe)
		case *parse.IfNode:
			n += weightOf(node.Pipe)
		case *parse.WithNode:
			n += weightOf(node.Pipe)
		case *parse.RangeNode:
			n += weightOf(node.Pipe)
		case *parse.TemplateNode:
			n += weightOf(node.Pipe)
		}
	}
	return n
}

func weightOf(pipe *parse.PipeNode) (n int) {
	if pipe == nil {
		return 0
	}
	for _, cmd := range pipe.Cmds {
		for _, arg := range cmd.Args {
			n++
			if inner, ok := arg.(*parse.PipeNode); ok {
				n += weightOf(inner)
			}
		}
	}
	return n
}

func (h *hooks) branch(n *parse.BranchNode) error {
	return errors.Join(checkPipe(n.Pipe), h.list(n.List), h.list(n.ElseList))
}

// call returns a pipeline command that calls one of our functions.
func call(name string, pos parse.Pos, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{
		NodeType: parse.NodeCommand, Pos: pos,
		Args: append([]parse.Node{parse.NewIdentifier(name).SetPos(pos)}, args...),
	}
}

// emit appends the escaper to a pipeline whose value is printed. Constants are part of the template's text and are not
// escaped.
func emit(pipe *parse.PipeNode) {
	if len(pipe.Decl) > 0 {
		return
	}
	if len(pipe.Cmds) == 1 && len(pipe.Cmds[0].Args) == 1 {
		if _, constant := pipe.Cmds[0].Args[0].(*parse.StringNode); constant {
			return
		}
	}
	pipe.Cmds = append(pipe.Cmds, call(fnEmit, pipe.Pos))
}

// checkPipe refuses builtin functions that are useless here or cannot be bounded. It makes comparisons pay for their
// operands.
func checkPipe(pipe *parse.PipeNode) error {
	if pipe == nil {
		return nil
	}
	var cmds []*parse.CommandNode
	for i, cmd := range pipe.Cmds {
		for _, arg := range cmd.Args {
			if err := checkArg(arg); err != nil {
				return err
			}
		}
		if compares(cmd.Args[0]) {
			for j, arg := range cmd.Args[1:] {
				cmd.Args[1+j] = paid(arg)
			}
			if i > 0 { // the value from the pipeline
				cmds = append(cmds, call(fnPay, cmd.Pos))
			}
		}
		cmds = append(cmds, cmd)
	}
	pipe.Cmds = cmds
	return nil
}

func compares(f parse.Node) bool {
	id, ok := f.(*parse.IdentifierNode)
	return ok && slices.Contains([]string{"eq", "ne", "lt", "le", "gt", "ge", "index"}, id.Ident)
}

func paid(arg parse.Node) parse.Node {
	return &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: arg.Position(),
		Cmds: []*parse.CommandNode{call(fnPay, arg.Position(), arg)},
	}
}

func checkArg(arg parse.Node) error {
	switch n := arg.(type) {
	case *parse.IdentifierNode:
		switch n.Ident {
		case "html", "js", "call":
			return fmt.Errorf("function %q is not available", n.Ident)
		}
	case *parse.PipeNode:
		return checkPipe(n)
	case *parse.ChainNode:
		return checkArg(n.Node)
	}
	return nil
}
