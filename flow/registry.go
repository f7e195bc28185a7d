package flow

import "maps"

// bound is a flow on an engine, with its metrics. Flows of the same name share their metrics, so a program that builds
// a flow repeatedly does not leak memory.
type bound struct {
	def   *def
	steps []*stepNumbers
	flow  *flowNumbers
	refs  int // number of live fibers
}

// registry has the flows and metrics of an engine. The owner holds core.mu during each call; the
// metrics themselves are atomic.
type registry struct {
	bound map[*def]*bound
	flows map[string]*flowNumbers
}

// keepBound is how many flows the registry may have before it drops flows without fibers.
const keepBound = 256

func (r *registry) bind(d *def) *bound {
	if b := r.bound[d]; b != nil {
		b.refs++
		return b
	}
	if r.bound == nil {
		r.bound, r.flows = map[*def]*bound{}, map[string]*flowNumbers{}
	}
	numbers := r.flows[d.name]
	if numbers == nil {
		numbers = &flowNumbers{steps: map[string]*stepNumbers{}}
		r.flows[d.name] = numbers
	}
	b := &bound{def: d, flow: numbers, refs: 1, steps: make([]*stepNumbers, len(d.steps))}
	for i := range d.steps {
		s := numbers.steps[d.steps[i].path]
		if s == nil {
			s = &stepNumbers{}
			numbers.steps[d.steps[i].path] = s
		}
		b.steps[i] = s
	}
	r.bound[d] = b
	return b
}

func (r *registry) release(b *bound) {
	if b.refs--; b.refs == 0 && len(r.bound) > keepBound {
		delete(r.bound, b.def)
	}
}

func (b *bound) started()            { b.flow.begun.Add(1) }
func (b *bound) ended(status Status) { b.flow.ends[status-Completed].Add(1) }

// snapshot returns the metrics by name of the flow, and those of the steps by flow and path.
func (r *registry) snapshot() (flows map[string]*flowNumbers, steps map[string]map[string]*stepNumbers) {
	steps = make(map[string]map[string]*stepNumbers, len(r.flows))
	for name, f := range r.flows {
		steps[name] = maps.Clone(f.steps)
	}
	return maps.Clone(r.flows), steps
}
