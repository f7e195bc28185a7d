package reconcile

import (
	"slices"

	"github.com/fairlead-io/fairlead/rights"
)

// Needs declares the permissions that the code of a reconciler needs besides those of the watches. They are mainly for
// its own writes, and for reads without a watch. Package rights has the verbs of each client method. Needs grants
// nothing; [Controller.Rights] returns the declared permissions.
//
// The admission plugin OwnerReferencesPermissionEnforcement protects owners on some clusters. There an operator also
// needs to update the finalizers subresource of each kind that owns others.
func Needs(all ...rights.Right) Option {
	return func(s *settings) { s.needs = append(s.needs, all...) }
}

// Rights returns the permissions that a controller needs from the API server. A controller gets, lists and watches the
// kinds of its watches. It patches the finalizer of a [Cleaner], and the status with [Flow]. The permissions include
// those to write [Events], those for the Lease of its [Leader], and those declared with [Needs]. The kinds of [Follow]
// are not known in advance. Rights omits kinds that the scheme does not know; Run reports them.
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

// watchRights returns the permissions for the watched kinds, and for writes to the primary.
func (c *Controller) watchRights() (out []rights.Right) {
	if c.client == nil {
		return nil
	}
	c.mu.Lock() // a concurrent resolve may write the kinds
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
