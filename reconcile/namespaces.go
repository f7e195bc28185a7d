package reconcile

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
)

// namespaces are those in which a controller watches, once SetNamespaces has been called. Methods are safe for
// concurrent use.
type namespaces struct {
	intake *intake
	mapper func() meta.RESTMapper

	mu  sync.Mutex // held while watches change, so that the last call decides
	set *[]string  // nil: those of the declaration
}

// SetNamespaces changes the namespaces in which the controller watches its objects and those that they own, before or
// during the run. None means all namespaces. New namespaces are listed, and their objects reconciled. A change from all
// namespaces to some, or back, lists and reconciles all of them again. To the controller, the objects of removed
// namespaces are deleted, without a call to its reconciler or Cleanup: a controller of [Flow] ends their fibers and
// calls Fibers.Gone.
// Watches of [Watches] and [Follow] keep their namespaces.
//
// The namespaces are those of the store: they also change for other controllers and observers that watch the same
// objects with the same options. SetNamespaces waits for the watches that end, so a reconciler must not call it.
func (c *Controller) SetNamespaces(namespaces ...string) error {
	if err := c.namespaces.change(namespaces); err != nil {
		return fmt.Errorf("cannot set namespaces of controller %q: %w", c.name, err)
	}
	return nil
}

func (n *namespaces) change(to []string) error {
	if err := source.CheckNamespaces([]source.Option{source.Namespaces(to...)}); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set = &to
	var errs []error
	for _, s := range n.intake.snapshot().watches {
		if s.follow == nil && s.watch.sameNamespace && (s.main || s.handle.Options().Namespaced) {
			errs = append(errs, s.handle.SetNamespaces(to...))
		}
	}
	return errors.Join(errs...)
}

// clusterScoped reports whether the objects of a watch have no namespaces.
func (n *namespaces) clusterScoped(w *watch) bool {
	m, err := n.mapper().RESTMapping(w.kind.GroupKind(), w.kind.Version)
	return err == nil && m.Scope.Name() == meta.RESTScopeNameRoot // the attempt to open the watch returns an error
}

// open opens a declared watch in the namespaces that were set last.
func (n *namespaces) open(w *watch) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var options []cache.Option
	if n.set != nil && w.sameNamespace && (w == n.intake.main || !n.clusterScoped(w)) {
		options = append(options, cache.Namespaces(*n.set...))
	}
	_, err := n.intake.open(w, nil, options...)
	return err
}
