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

	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
)

// CacheOptions configure a Cache. Only Config is needed.
type CacheOptions struct {
	Config *rest.Config
	// Client is shared by the sources; nil: one is made from Config, and closed when Run returns.
	Client *source.Client
	// Scheme knows the Go types; that of client-go by default.
	Scheme *runtime.Scheme
	// Mapper knows the resources of kinds; by default one that asks the server, when it must.
	Mapper meta.RESTMapper
	// Linger is for how long a store that nobody uses goes on being watched; 0: 30 seconds, negative: not at all.
	Linger time.Duration
	// Source is applied to every source before the options of its request.
	Source []source.Option
	// Store is the pattern for the options of every store: HotBytes, DetectMutation, OnMutation, OverlayBound.
	Store Options
	// Fields is Options.Fields of the stores of each kind.
	Fields map[schema.GroupKind]map[string]FieldValue
	// Contents say what of the objects of a kind is held, whoever asks for them, the entry of the empty kind of all kinds
	// that have none. The Transform of an entry is shared by all who ask.
	Contents map[schema.GroupKind]Content
	// Dir is a directory where stores are saved, and from which they go on at the next start without a list; "":
	// none. It must be there, and belong to this program alone: what is saved is as secret as what is watched. At
	// first such a store may be behind what an earlier run wrote; Store.Barrier waits until it is not. A store that drops
	// fields has what was saved of the same objects with more removed.
	Dir string
	// SaveEvery is how often a store that has changed is saved, besides when it stops; 0: 5 minutes.
	SaveEvery time.Duration
	Logger    *slog.Logger
	// TracerProvider makes the spans of the sources, see source.Config. Default: none are made.
	TracerProvider trace.TracerProvider
}

const defaultLinger = 30 * time.Second

// Cache is the stores of one cluster, made on demand: all that ask for the same objects share one store and one
// watch, which stops when the last has let go of it. It is safe for concurrent use.
type Cache struct {
	opt    CacheOptions
	client *source.Client
	holds  holds

	identity string                 // of the cluster, for what is saved
	files    map[string]*cacheEntry // who saves where, until it has saved last; guarded by mu

	server     *url.URL                                                 // with the path in front of those of the API
	byResource atomic.Pointer[map[schema.GroupVersionResource][]*Store] // of entries; replaced, never changed

	mu         sync.Mutex
	entries    map[cacheKey]*cacheEntry
	expects    map[expectation]Request
	spawn      func(*cacheEntry) // starts the watch of an entry; nil while Run does not run
	ended      bool
	moves      int
	shardings  []*source.Sharding // that requests have named; their place tells those of one layout apart
	transforms int                // handed in with requests
	running    sync.WaitGroup
	failed     error // of a watch that could not go on
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

	// Of an entry that is saved; otherwise nil.
	saved chan struct{}   // closed when it will not save any more
	after <-chan struct{} // the same of its predecessor in the file; nil: there is none
}

// Request says which objects are wanted.
type Request struct {
	Kind schema.GroupVersionKind
	// Resource and Namespaced are looked up with the Mapper if Resource is empty.
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Unstructured asks for a store that unstructured readers can use without loss, which is one from JSON.
	Unstructured bool
	// Content is what of each object is wanted, besides what CacheOptions.Contents say of the kind: what either drops is
	// dropped, and managedFields are kept if either keeps them. Requests for the same share a store. Who wants the
	// metadata only is given a store of whole objects that has the very same metadata where there is one already, or one
	// was announced with Cache.Expect.
	Content Content
	// Options choose namespaces, selectors and how it is watched; of two requests that share a store the first one's
	// count.
	Options []source.Option
}

// NewCache returns a cache without stores. Nothing is watched before Run.
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
		opt: opt, client: opt.Client, entries: map[cacheKey]*cacheEntry{}, files: map[string]*cacheEntry{},
		expects: map[expectation]Request{},
	}
	c.index()
	var err error
	if c.server, _, err = rest.DefaultServerUrlFor(opt.Config); err != nil {
		return nil, fmt.Errorf("cannot make cache: %w", err)
	}
	if c.client == nil {
		if c.client, err = source.NewClient(opt.Config, source.ClientOptions{}); err != nil {
			return nil, fmt.Errorf("cannot make cache: %w", err)
		}
	}
	if opt.Mapper == nil {
		if c.opt.Mapper, err = discover.NewMapper(opt.Config, opt.Logger); err != nil {
			return nil, fmt.Errorf("cannot make cache: %w", err)
		}
	}
	if opt.Dir != "" {
		if c.identity, err = clusterIdentity(opt.Config); err != nil {
			return nil, fmt.Errorf("cannot make cache: %w", err)
		}
	}
	return c, nil
}

// Run watches what is asked for until ctx is done, and returns when all of it has stopped and every store is closed.
// It returns an error, earlier, when a watch cannot go on because of a panic: what readers see would not change any
// more. It can be called once.
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
	if c.opt.Client == nil {
		c.client.Close()
	}
	return c.failed
}

// watch runs the source of an entry.
func (c *Cache) watch(ctx context.Context, e *cacheEntry) {
	defer e.store.Close()
	endSaving := func(last bool) {}
	if e.saved != nil {
		defer c.leaveFile(e)
		if c.fileIsFree(ctx, e) {
			c.removeOthers(ctx, e)
			c.resume(ctx, e)
			endSaving = c.saveNowAndThen(ctx, e)
		}
	}
	c.holds.wait(ctx, e.store.opt.Kind.GroupKind())
	err := e.source.Run(ctx)
	endSaving(err == nil) // what a panic has left half done is not to be gone on from
	if err != nil {
		c.opt.Logger.ErrorContext(ctx, "cannot watch", "resource", e.key.resource.String(), "error", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = errors.Join(c.failed, fmt.Errorf("cannot watch %s: %w", e.key.resource.GroupResource(), err))
		c.fail()
		c.retire(e) // its store changes no more, so nobody may be given it
	}
}

// Acquire returns the store of a kind, shared with all that ask for the same. Release the handle when it is not
// needed any more.
func (c *Cache) Acquire(kind schema.GroupVersionKind, options ...source.Option) (*Handle, error) {
	return c.Open(Request{Kind: kind, Options: options})
}

// Open returns the store that a request asks for.
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

// newEntry makes a store; the caller holds c.mu.
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
	e.store.live.Store(e.source)
	c.claimFile(e)
	for _, ns := range cfg.Namespaces { // all of them belong to "synced" from the start
		e.store.Sink(ns)
	}
	c.entries[key] = e
	c.index()
	if c.spawn != nil {
		c.spawn(e)
	}
	return e, nil
}

// resolve fills in the resource.
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
	var mine *time.Timer // to be compared with: a handle may have been acquired and released since
	mine = time.AfterFunc(c.opt.Linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.linger == mine && e.users == 0 {
			c.retire(e)
		}
	})
	e.linger = mine
}

// retire ends an entry; the caller holds c.mu.
func (c *Cache) retire(e *cacheEntry) {
	if e.gone {
		return
	}
	e.gone, e.linger = true, nil
	delete(c.entries, e.key)
	c.index()
	if e.stop != nil {
		e.stop()
		return
	}
	if e.saved != nil {
		c.leaveFileLocked(e)
	}
	e.store.Close()
}
