package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
)

// CacheOptions configure a Cache. Only Config is needed.
type CacheOptions struct {
	Config *rest.Config
	// Connection is shared by the sources. If nil, NewCache makes one from Config, and Run closes it.
	Connection *connection.Conn
	// Scheme knows the Go types. The default is the scheme of client-go.
	Scheme *runtime.Scheme
	// Mapper maps kinds to resources. The default asks the server when it has to.
	Mapper meta.RESTMapper
	// Linger is how long an unused store is still watched. 0 means 30 seconds; a negative value ends the watch at once.
	Linger time.Duration
	// Source is applied to every source before the options of its request. Its namespaces do not apply to cluster-scoped
	// kinds.
	Source []source.Option
	// Store is the template for the options of every store: HotBytes, DetectMutation, OnMutation, OverlayBound.
	Store Options
	// Fields is Options.Fields for the stores of each kind.
	Fields map[schema.GroupKind]map[string]FieldValue
	// Contents restricts what stores hold of the objects of each kind, for all requests. The entry of the empty kind
	// applies to kinds without an entry. All requests for a kind share the Transform of its entry.
	Contents map[schema.GroupKind]Content
	// Dir is a directory where stores are saved. At the next start they resume from there without a list. If empty,
	// stores are not saved. The directory must exist and belong to this program alone, since saved objects are as
	// secret as watched ones. A resumed store may at first lack writes of an earlier run; Store.Barrier waits until it
	// has them. A store that drops fields deletes the files that were saved for the same objects with other contents.
	Dir string
	// SaveEvery is how often a changed store is saved. It is also saved when it stops. 0 means 5 minutes.
	SaveEvery time.Duration
	// OnWatch runs in a goroutine of its own while a store is watched; nil means none. ctx ends with the watch. OnWatch
	// should return after StatusWatch.C of the store is closed. Run waits for it.
	OnWatch func(ctx context.Context, s *Store)
	Logger  *slog.Logger
	// TracerProvider makes the spans of the sources; see source.Config. By default there are none.
	TracerProvider trace.TracerProvider
}

const defaultLinger = 30 * time.Second

// Cache makes the stores of one cluster on demand. All requests for the same objects share one store and one watch. The
// watch stops when the last handle is released and the time Linger is over. A Cache is safe for concurrent use.
//
// A Cache only connects its parts. It makes the stores and runs their watches.
type Cache struct {
	opt     CacheOptions
	conn    *connection.Conn
	server  *url.URL // with the path prefix of the API; nil if NewCache has not made the Cache
	planner planner
	stores  catalog
	indexes declaredIndexes
	holds   holds
	saver   *saver   // nil: stores are not saved
	within  []string // see Namespaces

	running sync.WaitGroup // watches
	mu      sync.Mutex     // guards failed; a leaf
	failed  error          // of watches that stopped early
}

// NewCache returns a cache without stores. The watches start with Run.
func NewCache(opt CacheOptions) (*Cache, error) {
	if opt.Config == nil {
		return nil, errors.New("cannot make cache: no rest.Config")
	}
	if opt.Linger == 0 {
		opt.Linger = defaultLinger
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Scheme == nil {
		opt.Scheme = scheme.Scheme
	}
	if opt.SaveEvery <= 0 {
		opt.SaveEvery = defaultSaveEvery
	}
	for kind, content := range opt.Contents {
		if err := content.Check(); err != nil {
			return nil, fmt.Errorf("cannot make cache: kind %q: %w", kind, err)
		}
	}
	if err := source.Check(opt.Source); err != nil {
		return nil, fmt.Errorf("cannot make cache: %w", err)
	}
	c := &Cache{opt: opt, conn: opt.Connection}
	c.stores.init(opt.Linger)
	var err error
	if c.conn == nil {
		if c.conn, err = connection.New(opt.Config, connection.Options{}); err != nil {
			return nil, fmt.Errorf("cannot make cache: %w", err)
		}
	}
	c.server = c.conn.Base()
	if opt.Mapper == nil {
		if c.opt.Mapper, err = discover.NewMapper(opt.Config, c.conn, opt.Logger); err != nil {
			return nil, fmt.Errorf("cannot make cache: %w", err)
		}
	}
	if c.saver, err = newSaver(&c.opt); err != nil {
		return nil, fmt.Errorf("cannot make cache: %w", err)
	}
	c.planner = newPlanner(&c.opt, c.conn)
	var all source.Config
	for _, o := range opt.Source {
		if o != nil {
			o(&all)
		}
	}
	c.within, _ = distinct(all.Namespaces)
	return c, nil
}

// usable returns ErrNoCache for a nil Cache and for one that NewCache has not made.
func (c *Cache) usable() error {
	if c == nil || c.server == nil {
		return ErrNoCache
	}
	return nil
}

// Run watches the requested objects until ctx is done. It returns when all watches have stopped and all stores are
// closed. If a watch panics, Run stops early and returns an error, because readers would see stale objects. Run can be
// called once.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return fmt.Errorf("cannot run cache: %w", err)
	}
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	began := c.stores.begin(func(e *cacheEntry) context.CancelFunc {
		own, stop := context.WithCancel(ctx)
		c.running.Go(func() {
			defer stop()
			c.watch(own, e, fail)
		})
		return stop
	})
	if !began {
		return errors.New("cannot run cache: it has been run already")
	}
	for _, x := range c.indexes.list() {
		c.running.Go(func() { c.watchIndexed(ctx, x) })
	}
	<-ctx.Done()
	c.stores.end()
	c.running.Wait()
	if c.opt.Connection == nil {
		c.conn.Close()
	}
	return c.failed
}

// watch runs the source of a store until ctx is done. An error is the end of the Cache.
func (c *Cache) watch(ctx context.Context, e *cacheEntry, fail context.CancelFunc) {
	var beside sync.WaitGroup
	defer beside.Wait()
	defer e.store.Close()
	if c.opt.OnWatch != nil {
		beside.Go(func() { c.opt.OnWatch(ctx, e.store) })
	}
	defer e.claim.release()
	endSaving := e.load(ctx)
	c.holds.wait(ctx, e.store.opt.Kind.GroupKind())
	err := e.source.Run(ctx)
	endSaving(err == nil) // a store that a panic left half updated must not be resumed
	if err == nil {
		return
	}
	resource := e.store.opt.Resource
	c.opt.Logger.ErrorContext(ctx, "cannot watch", "resource", resource.String(), "error", err)
	c.mu.Lock()
	c.failed = errors.Join(c.failed, fmt.Errorf("cannot watch %s: %w", resource.GroupResource(), err))
	c.mu.Unlock()
	fail()
	c.stores.retire(e) // later requests must not get a store that no longer changes
}

// AcquireFor is like [Cache.Acquire] for a Go type that the Scheme knows.
func AcquireFor[T any](c *Cache, options ...source.Option) (*Handle, error) {
	kind, err := kindOf[T](c)
	if err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %T: %w", *new(T), err)
	}
	return c.Open(Request{Kind: kind, Options: options})
}

// kindOf returns the kind of a Go type that the Scheme knows.
func kindOf[T any](c *Cache) (kind schema.GroupVersionKind, err error) {
	if err := c.usable(); err != nil {
		return kind, err
	}
	o, ok := any(new(T)).(runtime.Object)
	if !ok {
		return kind, fmt.Errorf("%T is not an API type", *new(T))
	}
	kinds, _, err := c.opt.Scheme.ObjectKinds(o)
	if err != nil {
		return kind, err
	}
	return kinds[0], nil
}

// Acquire returns a handle to the store of a kind, shared by all requests for the same objects. Release the handle
// after use.
func (c *Cache) Acquire(kind schema.GroupVersionKind, options ...source.Option) (*Handle, error) {
	return c.Open(Request{Kind: kind, Options: options})
}

// Open returns a handle to the store that a request asks for. Release the handle after use.
func (c *Cache) Open(req Request) (*Handle, error) {
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
	}
	p, err := c.planner.plan(req)
	if err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
	}
	e, err := c.stores.acquire(p, c.newEntry)
	if err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
	}
	return &Handle{Store: e.store, catalog: &c.stores, entry: e}, nil
}

// newEntry makes a store with this key, and its source.
func (c *Cache) newEntry(key cacheKey, p *plan) (*cacheEntry, error) {
	cfg, req := p.cfg, &p.req
	cfg.Encoding, cfg.Metadata, cfg.NoExcerpts = source.JSON, key.metadata, cfg.NoExcerpts || len(req.Content.Drop) > 0
	if !key.json {
		cfg.Encoding = source.Protobuf
	}
	opt := c.opt.Store
	opt.Resource, opt.Kind, opt.Namespaced, opt.Scheme = req.Resource, req.Kind, req.Namespaced, c.opt.Scheme
	opt.LabelSelector, opt.FieldSelector, opt.Shard = key.label, key.field, key.shard
	opt.Scope, opt.Content, opt.Unstructured = key.scope(), req.Content, key.json && !key.metadata
	if own := c.opt.Fields[req.Kind.GroupKind()]; own != nil {
		opt.Fields = own
	}
	if opt.Logger == nil {
		opt.Logger = c.opt.Logger
	}
	e := &cacheEntry{store: New(opt)}
	err := c.indexes.addTo(e.store)
	if err != nil {
		e.store.Close()
		return nil, err
	}
	if e.source, err = source.New(cfg, e.store.Sink); err != nil {
		e.store.Close()
		return nil, err
	}
	e.store.intake.live.Store(e.source)
	e.claim = c.saver.claim(e.store, key.scopes)
	for _, ns := range cfg.Namespaces { // the store is synced only after all of them were listed
		e.store.Sink(ns)
	}
	return e, nil
}

// Expect announces a later request for whole objects. A request for the metadata of the same objects that is opened
// earlier then shares that store, so one watch serves both. Expect opens no watch and sends no request. It has effect
// for the lifetime of the Cache.
func (c *Cache) Expect(req Request) {
	if c.usable() == nil {
		c.planner.expect(req)
	}
}

// Hold delays the sources of a kind, in all its versions: none is opened before ready is closed. For example, the
// sources of a custom resource wait for its conversion. A source that is open already is not affected.
func (c *Cache) Hold(kind schema.GroupKind, ready <-chan struct{}) {
	if c.usable() == nil {
		c.holds.add(kind, ready)
	}
}

// Holds reports whether Hold was called for a kind, even if the wait is over.
func (c *Cache) Holds(kind schema.GroupKind) bool {
	return c.usable() == nil && len(c.holds.of(kind)) > 0
}

// Server returns the address of the server that the cache watches: scheme, host and the path prefix of the API, if any.
// It returns nil for a cache that NewCache has not made. The caller owns the result.
func (c *Cache) Server() *url.URL {
	if c.usable() != nil {
		return nil
	}
	server := *c.server
	return &server
}

// Namespaces returns the sorted namespaces to which CacheOptions.Source restricts every watch that has no namespaces of
// its own; nil means all namespaces. The slice is shared and READ-ONLY.
func (c *Cache) Namespaces() []string {
	if c.usable() != nil {
		return nil
	}
	return c.within
}

// Lookup returns the stores of one resource. Those without a selector come first, among these those of whole objects
// before those that drop fields and those of metadata, and among these the one of all namespaces. Lookup takes no lock
// and does not allocate. The slice is shared and READ-ONLY.
func (c *Cache) Lookup(resource schema.GroupVersionResource) []*Store {
	if c.usable() != nil {
		return nil
	}
	return c.stores.index.all()[resource]
}

// LookupAll returns the stores of all versions of a resource, in no particular order.
func (c *Cache) LookupAll(resource schema.GroupResource) (stores []*Store) {
	if c.usable() != nil {
		return nil
	}
	for of, have := range c.stores.index.all() {
		if of.GroupResource() == resource {
			stores = append(stores, have...)
		}
	}
	return stores
}

// Stores returns the stores of one resource, or all stores if resource is empty.
func (c *Cache) Stores(resource schema.GroupVersionResource) []*Store {
	if !resource.Empty() {
		return slices.Clone(c.Lookup(resource))
	}
	if c.usable() != nil {
		return nil
	}
	var out []*Store
	for _, stores := range c.stores.index.all() {
		out = append(out, stores...)
	}
	return out
}
