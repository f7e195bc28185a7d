package webhook

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"
)

// kind says where the output of a template goes, and so how values are escaped.
type kind int

const (
	kindPlain kind = iota // method, header value
	kindURL
	kindBody
)

// Bounds of one rendering.
const (
	maxSteps   = 50_000           // iterations of loops and calls of templates
	maxWork    = 8 << 20          // bytes that functions produce
	maxDepth   = 64               // templates that call each other
	maxRunning = 10 * time.Second // the last resort; on a starved machine it must not hit honest templates
	clockEvery = 16               // steps between two looks at the clock
)

var (
	errTooMuch = errors.New("too much work for a template")
	errTooDeep = fmt.Errorf("templates call each other more than %d deep", maxDepth)
)

// Names that compiled templates use and users cannot.
const (
	fnEmit  = "fairlead_emit"  // every value goes through it on its way out
	fnStep  = "fairlead_step"  // at the start of each iteration
	fnEnter = "fairlead_enter" // around each call of a template
	fnLeave = "fairlead_leave"
)

// text is a parsed template that can be rendered by many at a time.
type text struct {
	kind   kind
	limit  int
	static *string // what it always renders, if it has no actions
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
			return err // only html templates that ran already cannot be cloned
		}
		r.template = clone.Funcs(r.functions()).Funcs(r.hooks())
		return r
	}
	return t, nil
}

// render executes the template. jsonBody says that the output is JSON.
func (t *text) render(root map[string]any, jsonBody bool) (out string, err error) {
	if t.static != nil {
		return *t.static, nil
	}
	r, ok := t.runs.Get().(*run)
	if !ok {
		return "", errors.New("cannot render template: it cannot be copied")
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = "", fmt.Errorf("cannot render template: panic: %v", p)
		}
	}()
	r.reset(jsonBody)
	if err := r.template.Execute(r, root); err != nil {
		for _, bound := range []error{errTooMuch, errTooDeep} {
			if errors.Is(err, bound) {
				err = bound // without the names of our own functions
			}
		}
		return "", fmt.Errorf("cannot render template: %w", err)
	}
	out = string(r.out)
	if cap(r.out) > 64<<10 {
		r.out = nil
	}
	t.runs.Put(r)
	return out, nil
}

// hooks inserts calls that bound and escape into a parse tree, as html/template does for its escapers.
type hooks struct{ step, enter, leave parse.Node }

func newHooks() (*hooks, error) {
	node := func(name string) (parse.Node, error) {
		t, err := template.New("hook").Funcs((&run{}).hooks()).Parse("{{" + name + "}}")
		if err != nil {
			return nil, err
		}
		return t.Root.Nodes[0], nil
	}
	var h hooks
	var errs [3]error
	h.step, errs[0] = node(fnStep)
	h.enter, errs[1] = node(fnEnter)
	h.leave, errs[2] = node(fnLeave)
	return &h, errors.Join(errs[:]...)
}

func (h *hooks) list(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	nodes := make([]parse.Node, 0, len(list.Nodes))
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
				n.List.Nodes = append([]parse.Node{h.step}, n.List.Nodes...)
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

func (h *hooks) branch(n *parse.BranchNode) error {
	return errors.Join(checkPipe(n.Pipe), h.list(n.List), h.list(n.ElseList))
}

// emit appends the escaper to a pipeline whose value is printed. Constants are part of the template's text.
func emit(pipe *parse.PipeNode) {
	if len(pipe.Decl) > 0 {
		return
	}
	if len(pipe.Cmds) == 1 && len(pipe.Cmds[0].Args) == 1 {
		if _, constant := pipe.Cmds[0].Args[0].(*parse.StringNode); constant {
			return
		}
	}
	pipe.Cmds = append(pipe.Cmds, &parse.CommandNode{
		NodeType: parse.NodeCommand, Pos: pipe.Pos,
		Args: []parse.Node{parse.NewIdentifier(fnEmit).SetPos(pipe.Pos)},
	})
}

// checkPipe refuses the builtin functions that make no sense here or cannot be bounded.
func checkPipe(pipe *parse.PipeNode) error {
	if pipe == nil {
		return nil
	}
	for _, cmd := range pipe.Cmds {
		for _, arg := range cmd.Args {
			if err := checkArg(arg); err != nil {
				return err
			}
		}
	}
	return nil
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
