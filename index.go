package fairlead

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

// IndexField declares an index over the objects of type T, for use with client.Index:
//
//	fairlead.IndexField(rt, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
//	…
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.Index("node", "n1")) { … }
//
// T is a Go type that the scheme knows. fn returns the values of an object. It is called for each version of each
// object, must depend on the object alone and must not change it. An object for which fn panics is not in the index. fn
// does not see the fields that the cache drops ([WithContent]).
//
// Every store of the kind has the index, including stores that controllers, sources and cache.AcquireFor open later.
// The host also watches the kind, as an informer of controller-runtime would, and needs the permission for it
// ([Host.Rights]). options restrict that watch. Without options it has those of [WithSource], and shares the store of
// other watches without options. The watch runs with the caches: in a program with [Host.AddAlways] or hooks, in every
// replica. Controllers start after the first list. A kind that is not served yet is watched when it is served.
//
// IndexField must be called before Run. Run returns the mistakes with file and line: an empty name, a nil function, an
// unknown type, and a name that the kind has already, such as cache.IndexOwner.
func IndexField[T any, P client.ObjectOf[T]](
	h reconcile.Host, name string, fn func(obj *T) []string, options ...cache.Option,
) {
	at := place.Outside("github.com/fairlead-io/fairlead")
	declare := func(ran error) error {
		fail := func(err error) error { return fmt.Errorf("%s: cannot declare index %q: %w", at, name, err) }
		if ran != nil {
			return fail(ran)
		}
		kind, err := store.DeclareIndex(h.Cache(), name, at, fn, options...)
		if err != nil {
			return fail(err)
		}
		if needs, ok := h.(interface{ Need(all ...rights.Right) }); ok {
			needs.Need(rights.Of(kind, "list", "watch"))
		}
		return nil
	}
	if own, ok := h.(interface {
		declare(fn func(ran error) error)
	}); ok { // a Runtime or Host
		own.declare(declare)
		return
	}
	err := declare(nil)
	if err == nil {
		return
	}
	if checker, ok := h.(reconcile.Checker); ok {
		checker.Check(func() error { return err })
		return
	}
	h.Add("index "+name, func(context.Context) error { return err })
}
