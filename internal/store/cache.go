package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
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
	// Source is applied to every source before the options of its request.
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
	Logger    *slog.Logger
	// TracerProvider makes the spans of the sources; see source.Config. By default there are none.
	TracerProvider trace.TracerProvider
}

const defaultLinger = 30 * time.Second

// Cache makes the stores of one cluster on demand. All requests for the same objects share one store and one watch. The
// watch stops when the last handle is released and the time Linger is over. A Cache is safe for concurrent use.
type Cache struct {
	opt   CacheOptions
	conn  *connection.Conn
	holds holds

	saver *saver // nil: stores are not saved

	server     *url.URL                                                 // with the path prefix of the API
	byResource atomic.Pointer[map[schema.GroupVersionResource][]*Store] // of entries; replaced, never changed

	mu         sync.Mutex
	entries    map[cacheKey]*cacheEntry
	expects    map[expectation]Request
	spawn      func(*cacheEntry) // starts the watch of an entry; nil before and after Run
	ended      bool
	moves      int
	shardings  []*source.Sharding // of requests; the index distinguishes those of one layout
	transforms int                // number of transforms that came with requests
	running    sync.WaitGroup
	failed     error // of watches that stopped early
	fail       context.CancelFunc
}

type cacheEntry struct {
	key    cacheKey
	source *source.Source
	store  *Store
	scopes sync.Mutex // serializes changes of the namespaces
	users  int
	linger *time.Timer
	stop   context.CancelFunc
	gone   bool
	claim  *claim // to the file of the store; nil if it is not saved
}

// Request describes the objects that a caller wants.
type Request struct {
	Kind schema.GroupVersionKind
	// Resource and Namespaced are looked up with the Mapper if Resource is empty.
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Unstructured asks for a store that unstructured readers can use without loss. Such a store holds JSON.
	Unstructured bool
	// Content restricts the objects, in addition to CacheOptions.Contents for the kind. A field is dropped if either
	// drops it; managedFields are kept if either keeps them. Requests with equal contents share a store. A request for
	// metadata gets a store of whole objects with the same metadata, if there is one already or Cache.Expect has
	// announced one.
	Content Content
	// Options choose namespaces, selectors and the way of watching. If two requests share a store, the options of the
	// first one apply.
	Options []source.Option
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
	c := &Cache{
		opt: opt, conn: opt.Connection, entries: map[cacheKey]*cacheEntry{},
		expects: map[expectation]Request{},
	}
	c.index()
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
	return c, nil
}

// Run watches the requested objects until ctx is done. It returns when all watches have stopped and all stores are
// closed. If a watch panics, Run stops early and returns an error, because readers would see stale objects. Run can be
// called once.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return fmt.Errorf("cannot run cache: %w", err)
	}
	c.mu.Lock()
	if c.spawn != nil || c.ended {
		c.mu.Unlock()
		return errors.New("cannot run cache: it has been run already")
	}
	ctx, c.fail = context.WithCancel(ctx)
	defer c.fail()
	c.spawn = func(e *cacheEntry) {
		own, stop := context.WithCancel(ctx)
		e.stop = stop
		c.running.Go(func() {
			defer stop()
			c.watch(own, e)
		})
	}
	for _, e := range c.entries {
		c.spawn(e)
	}
	c.mu.Unlock()

	<-ctx.Done()

	c.mu.Lock()
	c.spawn, c.ended = nil, true
	for _, e := range c.entries {
		if e.linger != nil {
			e.linger.Stop()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
	if c.opt.Connection == nil {
		c.conn.Close()
	}
	return c.failed
}

// watch runs the source of an entry.
func (c *Cache) watch(ctx context.Context, e *cacheEntry) {
	defer e.store.Close()
	defer e.claim.release()
	endSaving := e.load(ctx)
	c.holds.wait(ctx, e.store.opt.Kind.GroupKind())
	err := e.source.Run(ctx)
	endSaving(err == nil) // a store that a panic left half updated must not be resumed
	if err != nil {
		c.opt.Logger.ErrorContext(ctx, "cannot watch", "resource", e.key.resource.String(), "error", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = errors.Join(c.failed, fmt.Errorf("cannot watch %s: %w", e.key.resource.GroupResource(), err))
		c.fail()
		c.retire(e) // later requests must not get a store that no longer changes
	}
}

// load fills the store of an entry from disk before its source starts, and begins to save it. The returned function
// ends that, with a last save if last is true.
func (e *cacheEntry) load(ctx context.Context) (endSaving func(last bool)) {
	if !e.claim.isFree(ctx) {
		return func(bool) {}
	}
	e.claim.removeOthers(ctx)
	e.resume(ctx)
	return e.claim.saveRepeatedly(ctx)
}

func (e *cacheEntry) resume(ctx context.Context) {
	e.scopes.Lock() // the namespaces must not change meanwhile
	defer e.scopes.Unlock()
	watched := map[string]bool{}
	for _, st := range e.source.Status() {
		watched[st.Namespace] = true
	}
	e.claim.resume(ctx, func(namespace string) bool { return watched[namespace] })
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
	if err := c.resolve(&req); err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
	}
	own := req.Content.Transform != nil
	cfg := c.configure(&req)
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = c.opt.TracerProvider
	}
	if err := req.Content.checkFor(typeOf(c.opt.Scheme, req.Kind)); err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
	}
	if !req.Namespaced {
		cfg.Namespaces = nil
	}
	key := cacheKey{resource: req.Resource, label: cfg.LabelSelector, field: cfg.FieldSelector, shard: c.shardName(&cfg)}
	cfg.Namespaces, key.namespaces = distinct(cfg.Namespaces)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case own:
		c.transforms++
		key.transform = c.transforms
	case req.Content.Transform != nil:
		key.transform = ofKind
	}
	if c.ended {
		return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, ErrClosed)
	}
	e, key := c.find(key, &req)
	if e == nil {
		var err error
		if e, err = c.newEntry(key, cfg, req); err != nil {
			return nil, fmt.Errorf("cannot acquire a store for %s: %w", req.Kind, err)
		}
	}
	e.users++
	if e.linger != nil {
		e.linger.Stop()
		e.linger = nil
	}
	return &Handle{Store: e.store, c: c, e: e}, nil
}

// newEntry makes a store and its source. The caller holds c.mu.
func (c *Cache) newEntry(key cacheKey, cfg source.Config, req Request) (*cacheEntry, error) {
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
	e := &cacheEntry{key: key, store: New(opt)}
	var err error
	if e.source, err = source.New(cfg, e.store.Sink); err != nil {
		e.store.Close()
		return nil, err
	}
	e.store.intake.live.Store(e.source)
	e.claim = c.saver.claim(e.store, key.scopes())
	for _, ns := range cfg.Namespaces { // the store is synced only after all of them were listed
		e.store.Sink(ns)
	}
	c.entries[key] = e
	c.index()
	if c.spawn != nil {
		c.spawn(e)
	}
	return e, nil
}

// resolve fills in Resource and Namespaced of a request.
func (c *Cache) resolve(req *Request) error {
	if !req.Resource.Empty() {
		return nil
	}
	m, err := c.opt.Mapper.RESTMapping(req.Kind.GroupKind(), req.Kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w: is its CustomResourceDefinition installed?", err)
	case err != nil:
		return err
	}
	req.Resource, req.Namespaced = m.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace
	return nil
}

func (c *Cache) release(e *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.users > 0 || c.ended {
		return
	}
	if c.opt.Linger <= 0 {
		c.retire(e)
		return
	}
	var mine *time.Timer // a handle may be acquired and released again before the timer fires
	mine = time.AfterFunc(c.opt.Linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.linger == mine && e.users == 0 {
			c.retire(e)
		}
	})
	e.linger = mine
}

// retire removes an entry and ends its watch. The caller holds c.mu.
func (c *Cache) retire(e *cacheEntry) {
	if e.gone {
		return
	}
	e.gone, e.linger = true, nil
	e.claim.end()
	delete(c.entries, e.key)
	c.index()
	if e.stop != nil {
		e.stop()
		return
	}
	e.claim.release()
	e.store.Close()
}
