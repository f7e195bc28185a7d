package observe

import (
	"github.com/fairlead-io/fairlead/rights"
)

// Rights says what the declared sources ask of the API server: to list and to watch their kinds. Those of a type that
// the scheme does not know, which Check tells, ask nothing.
func (r *Registry) Rights() []rights.Right {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []rights.Right
	for _, o := range r.origins {
		kind := o.kind
		switch {
		case o.filter != nil || o.derive != nil || len(o.inputs) > 0:
			continue
		case kind.Empty():
			var err error
			if kind, err = r.kindOf(o.object); err != nil {
				continue
			}
		}
		out = append(out, rights.Of(kind, "list", "watch"))
	}
	return out
}
