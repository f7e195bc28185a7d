package reconcile

import (
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/rights"
)

// declaration holds the watches that a controller was declared with. Their kinds are known after resolve.
type declaration struct {
	main    *watch // of the primaries
	related []*watch

	mu    sync.Mutex // guards title, and the kinds and names of the watches until the controller runs
	title string     // the reconciled kind, as Describe shows it; "" before resolve
}

func (d *declaration) watches() []*watch { return append([]*watch{d.main}, d.related...) }

// check returns the errors of the declaration that need no scheme.
func (d *declaration) check() error {
	var errs []error
	for _, w := range d.watches() {
		errs = append(errs, w.check())
	}
	return errors.Join(errs...)
}

// resolve finds the kinds of the watches, and announces them to the cache: other watches of the same kinds may ask for
// metadata only. It may be called again.
func (d *declaration) resolve(scheme *runtime.Scheme, c *cache.Cache) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, w := range d.watches() {
		errs = append(errs, w.resolve(scheme))
	}
	d.title = d.main.kind.Kind + "." + d.main.kind.GroupVersion().String()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, w := range d.watches() {
		c.Expect(w.request())
	}
	return nil
}

// reconciled returns the reconciled kind and its title, once they are known.
func (d *declaration) reconciled() (kind schema.GroupVersionKind, title string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.main.kind, d.title
}

// rights returns the permissions for the watched kinds that the scheme knows, and the verbs on the primary and its
// status.
func (d *declaration) rights(scheme *runtime.Scheme, patches, patchesStatus bool) (all []rights.Right) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.watches() {
		kind, err := w.kindIn(scheme)
		if err != nil {
			continue
		}
		all = append(all, rights.Of(kind, "get", "list", "watch"))
		if w == d.main && patches {
			all = append(all, rights.Of(kind, "patch"))
		}
		if w == d.main && patchesStatus {
			all = append(all, rights.Status(kind, "patch"))
		}
	}
	return all
}
