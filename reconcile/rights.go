package reconcile

import (
	"slices"

	"github.com/fairlead-io/fairlead/rights"
)

// Needs says what the code of a reconciler asks of the API server besides what it watches: its own writes first of all,
// and what it reads without a watch. See package rights for the verbs of a client. It allows nothing by itself;
// [Controller.Rights] tells it.
//
// An operator on a cluster that protects owners (the admission plugin OwnerReferencesPermissionEnforcement) needs
// besides to update the subresource finalizers of what owns others.
func Needs(all ...rights.Right) Option {
	return func(s *settings) { s.needs = append(s.needs, all...) }
}

// Rights says what a controller asks of the API server: to get, list and watch what it reconciles and watches; to patch
// the finalizer, of a [Cleaner], and the status, of [Flow]; to write [Events], to take the Lease of its [Leader]; and
// what it [Needs]. What [Follow] watches is not known before it is followed. A kind that the scheme does not know, which
// Run tells, is left out.
//
// [Events]: https://pkg.go.dev/github.com/fairlead-io/fairlead/reconcile#Recorder
func (c *Controller) Rights() []rights.Right {
	out := append(slices.Clone(c.set.needs), c.watchRights()...)
	if c.events != nil {
		out = append(out, rights.Events())
	}
	if l, ok := c.set.leader.(rights.Asker); ok {
		out = append(out, l.Rights()...)
	}
	return out
}

// watchRights are those to what is watched, and to what is written of the primary.
func (c *Controller) watchRights() (out []rights.Right) {
	if c.client == nil {
		return nil
	}
	c.mu.Lock() // resolve may be at work
	defer c.mu.Unlock()
	for _, w := range append([]*watch{c.main}, c.set.watches...) {
		kind, err := w.kindIn(c.client.Scheme())
		if err != nil {
			continue
		}
		out = append(out, rights.Of(kind, "get", "list", "watch"))
		if w == c.main && c.object.cleans {
			out = append(out, rights.Of(kind, "patch"))
		}
		if w == c.main && c.object.saves {
			out = append(out, rights.Status(kind, "patch"))
		}
	}
	return out
}
