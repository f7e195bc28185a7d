package flow

import (
	"context"
	"strings"
	"time"
)

// def is a flow without its packet type. Groups are flattened into one list of steps, and names are resolved.
type def struct {
	name      string
	version   int
	providers []Provider
	steps     []step
	first     int32
	index     map[string]int32 // path of a step or group → step
	undo      *def             // nil in an undo flow
	undoes    []int32          // in an undo flow: for each step, the index of the step of forward that it undoes
	forward   *def             // in an undo flow: the flow that it undoes
	nodes     any              // []Node[P], for Inline
	err       error
}

type step struct {
	path     string
	run      func(ctx context.Context, fiber any) Next // fiber is the *Fiber[P] of the flow
	done     func(ctx context.Context, fiber any) (bool, error)
	retry    *Backoff
	deadline time.Duration
	next     int32 // none for the last step
	onError  int32 // none if there is no handler
	save     bool
	undoes   bool // the step has an Undo of its own
	detour   bool
	fork     bool
	targets  []int32 // declared with To
}

// none means no step: the end of the line, or no target.
const none int32 = -1

func (d *def) with(change func(*def)) *def {
	c := *d
	change(&c)
	if d.undo != nil {
		c.undo = d.undo.with(change)
		c.undo.forward = &c
	}
	return &c
}

// path returns the path of a step, "" for none.
func (d *def) path(pc int32) string {
	if pc == none {
		return ""
	}
	return d.steps[pc].path
}

// resolve finds a step by name, as seen from the step at pc: first in its group, then in the enclosing groups, then as
// a full path.
func (d *def) resolve(pc int32, name string) (int32, bool) {
	scope := d.steps[pc].path
	for {
		cut := strings.LastIndexByte(scope, '/')
		if cut < 0 {
			i, ok := d.index[name]
			return i, ok
		}
		scope = scope[:cut]
		if i, ok := d.index[scope+"/"+name]; ok {
			return i, true
		}
	}
}

// from returns the step to begin with. path names that step or, in an undo flow, the last step that was begun. from
// returns none if no step has to be undone.
func (d *def) from(path string) (int32, bool) {
	if d.forward == nil {
		i, ok := d.index[path]
		return i, ok
	}
	last, ok := d.forward.index[path]
	if !ok {
		return none, false
	}
	for i, of := range d.undoes {
		if of <= last {
			return int32(i), true
		}
	}
	return none, true
}
