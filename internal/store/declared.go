package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/source"
)

// DeclareIndex gives every store of the kind of T an index, including stores that are opened later. Stores of metadata
// have no such index, since fn takes whole objects. The Cache also watches the kind from the start of Run, with these
// options, and shares that watch with equal requests. If it cannot watch the kind, it tries again.
//
// place is the file:line of the declaration, for messages. DeclareIndex returns the kind. It fails after the start of
// Run, for a type that the scheme does not know, and for a name that the kind has already.
func DeclareIndex[T any](
	c *Cache, name, place string, fn func(*T) []string, options ...source.Option,
) (schema.GroupVersionKind, error) {
	kind, err := kindOf[T](c)
	if err != nil {
		return kind, err
	}
	x := &declaredIndex{kind: kind, name: name, place: place, options: options, tried: make(chan struct{})}
	if fn != nil {
		x.fn = indexFunc(fn)
	}
	return kind, c.declare(x)
}

// declare checks and adds a declared index.
func (c *Cache) declare(x *declaredIndex) error {
	if err := x.check(); err != nil {
		return err
	}
	there, err := c.stores.declare(func() error { return c.indexes.add(x) })
	if err != nil {
		return err
	}
	c.planner.expect(Request{Kind: x.kind, Options: x.options}) // requests for the metadata share the store
	var errs []error
	for _, st := range there {
		errs = append(errs, x.addTo(st))
	}
	return errors.Join(errs...)
}

// declaredIndex is an index of every store of a kind.
type declaredIndex struct {
	kind    schema.GroupVersionKind
	name    string
	fn      IndexFunc
	place   string          // file:line of the declaration
	options []source.Option // of the watch

	tried  chan struct{}          // closed after the first attempt to watch the kind
	handle atomic.Pointer[Handle] // of the watch; nil until the kind is watched
}

var errNoIndexName = errors.New("the name is empty")

// check returns the mistakes in a declaration.
func (x *declaredIndex) check() error {
	switch {
	case x.name == "":
		return errNoIndexName
	case x.name == IndexNamespace, x.name == IndexLabel, x.name == IndexOwner:
		return errors.New("every store has an index of that name")
	case x.fn == nil:
		return errNoIndexFunc
	}
	return errors.Join(source.CheckSelectors(x.options), source.CheckNamespaces(x.options))
}

// addTo adds the index to a store of its kind.
func (x *declaredIndex) addTo(st *Store) error {
	if st.opt.Kind != x.kind || st.opt.Content.Metadata {
		return nil
	}
	return st.AddIndex(x.name, x.fn)
}

// declaredIndexes are the indexes that a Cache adds to its stores. They are safe for concurrent use.
type declaredIndexes struct {
	mu  sync.Mutex // after catalog.mu
	all []*declaredIndex
}

// add adds an index, unless its kind has one of that name.
func (d *declaredIndexes) add(x *declaredIndex) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.all {
		if other.kind == x.kind && other.name == x.name {
			return fmt.Errorf("%s has an index of that name, declared at %s", x.kind.Kind, other.place)
		}
	}
	d.all = append(d.all, x)
	return nil
}

// list returns the indexes.
func (d *declaredIndexes) list() []*declaredIndex {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// addTo adds the indexes to a new store of their kind.
func (d *declaredIndexes) addTo(st *Store) error {
	var errs []error
	for _, x := range d.list() {
		errs = append(errs, x.addTo(st))
	}
	return errors.Join(errs...)
}

// rewatching is the back-off between attempts to watch the kind of a declared index.
var rewatching = backoff.Policy{Base: time.Second, Cap: 10 * time.Second, Factor: 2, Floor: time.Second}

// watchIndexed opens the store of a declared index. The claim lasts as long as the Cache. If the store cannot be
// opened, watchIndexed tries again until ctx is done.
func (c *Cache) watchIndexed(ctx context.Context, x *declaredIndex) {
	log := c.opt.Logger.With("kind", x.kind.String(), "index", x.name, "declared", x.place)
	for attempt := 0; ctx.Err() == nil; attempt++ {
		h, err := c.Open(Request{Kind: x.kind, Options: x.options})
		if err == nil {
			x.handle.Store(h)
		}
		if attempt == 0 {
			close(x.tried)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if attempt > 0 {
				log.InfoContext(ctx, "the kind of an index is watched now")
			}
			return
		case attempt == 0:
			log.WarnContext(ctx, "cannot watch the kind of an index, trying again", "error", err,
				"served", !meta.IsNoMatchError(err))
		}
		if backoff.Pause(ctx, rewatching.Delay(attempt, rand.Float64)) != nil {
			return
		}
	}
}

// AwaitIndexes waits until the stores that the Cache watches for declared indexes have been listed. It does not wait
// for a kind that could not be watched at the first attempt. It returns the cause of ctx if that ends first.
func (c *Cache) AwaitIndexes(ctx context.Context) error {
	if c.usable() != nil {
		return nil
	}
	for _, x := range c.indexes.list() {
		if err := await(ctx, x.tried); err != nil {
			return err
		}
		if h := x.handle.Load(); h != nil {
			if err := await(ctx, h.Synced()); err != nil {
				return err
			}
		}
	}
	return nil
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// UntriedIndexes names the declared indexes for which the Cache has not tried yet to watch the kind.
func (c *Cache) UntriedIndexes() (names []string) {
	if c.usable() != nil {
		return nil
	}
	for _, x := range c.indexes.list() {
		select {
		case <-x.tried:
		default:
			names = append(names, fmt.Sprintf("index %q of %s: the watch is not open yet", x.name, x.kind.Kind))
		}
	}
	return names
}
