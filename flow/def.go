package flow

import (
	"context"
	"strings"
	"time"
)

// def is a flow without its packet type: the steps in one line, groups flattened, names resolved.
type def struct {
	name      string
	version   int
	providers []Provider
	steps     []step
	first     int32
	index     map[string]int32 // path of a step or group → step
	undo      *def             // nil in an undo flow
	undoes    []int32          // in an undo flow: the step that each step undoes,
	forward   *def             // of this flow
	nodes     any              // []Node[P], for Inline
	err       error
}

type step struct {
	path     string
	run      func(ctx context.Context, fiber any) Next // fiber is the *Fiber[P] of the flow
	done     func(ctx context.Context, fiber any) (bool, error)
	retry    *Backoff
	deadline time.Duration
	next     int32 // none at the end
	onError  int32 // none without
	save     bool
	undoes   bool // it has an Undo of its own
	detour   bool
	fork     bool
	targets  []int32 // that were declared
}

// none is the absence of a step: the end of the line, or no target.
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

// resolve finds a step by name as seen from the step at pc: its group first, then outwards, then as a full path.
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

// from is the step to begin with, given its path, or in an undo flow that of the last step begun; none if nothing is to
// be undone.
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
