package observe

import (
	"github.com/fairlead-io/fairlead/rights"
)

// Rights returns the permissions that the declared sources need: to list and watch their kinds. It omits types that the
// scheme does not know; Check reports those.
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
