package store

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
)

// usable returns ErrNoCache for a nil Cache and for one that NewCache has not made.
func (c *Cache) usable() error {
	if c == nil || c.entries == nil {
		return ErrNoCache
	}
	return nil
}

// AcquireFor is like [Cache.Acquire] for a Go type that the Scheme knows.
func AcquireFor[T any](c *Cache, options ...source.Option) (*Handle, error) {
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %T: %w", *new(T), err)
	}
	o, ok := any(new(T)).(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("cannot acquire a store for %T: not an API type", *new(T))
	}
	kinds, _, err := c.opt.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %T: %w", *new(T), err)
	}
	return c.Open(Request{Kind: kinds[0], Options: options})
}

// distinct returns the sorted namespaces without duplicates, and a text that identifies the set. Both are empty for all
// namespaces.
func distinct(namespaces []string) ([]string, string) {
	if len(namespaces) == 0 || slices.Contains(namespaces, "") { // "" means all namespaces
		return nil, ""
	}
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	return namespaces, strings.Join(namespaces, ",")
}

// hasProtobuf reports whether the Go type of a kind decodes protobuf and has the fields that content drops.
func (c *Cache) hasProtobuf(kind schema.GroupVersionKind, content Content) bool {
	t := typeOf(c.opt.Scheme, kind)
	if t == nil {
		return false
	}
	if _, ok := reflect.New(t).Interface().(protobuf.Message); !ok {
		return false
	}
	kept := content.ready(t)
	return kept.paths.Len() == 0 || kept.message != nil
}

// configure applies the options of the cache and of a request. It adds the content of the kind to the request.
func (c *Cache) configure(req *Request) source.Config {
	cfg := source.Config{Connection: c.conn, Resource: req.Resource, Logger: c.opt.Logger}
	for _, o := range append(slices.Clone(c.opt.Source), req.Options...) {
		if o != nil {
			o(&cfg)
		}
	}
	req.Content = c.contentOf(req.Kind.GroupKind()).with(req.Content)
	req.Content.Metadata = req.Content.Metadata || cfg.Metadata
	return cfg
}

// find returns the entry that serves a request, or nil and the key of the entry to make. It adapts req to that key. The
// caller holds c.mu.
func (c *Cache) find(key cacheKey, req *Request) (*cacheEntry, cacheKey) {
	if req.Content.Metadata {
		req.Content = req.Content.ofMetadata()
		if e := c.whole(key, req); e != nil {
			return e, e.key
		}
		more, ok := c.expects[key.expectation(req.Kind)]
		if !ok || key.transform > 0 || !more.Content.serves(req.Content) {
			key.json, key.metadata = true, true
			key.content, key.rank = req.Content.name(), req.Content.rank()
			return c.entries[key], key
		}
		req.Content, req.Unstructured = more.Content, more.Unstructured
	}
	key.content, key.rank = req.Content.name(), req.Content.rank()
	key.json = true // a store of JSON serves all readers
	if e := c.entries[key]; e != nil {
		return e, key
	}
	key.json = req.Unstructured || !c.hasProtobuf(req.Kind, req.Content)
	return c.entries[key], key
}

// whole returns an entry of whole objects that serves a request for their metadata, or nil. The caller holds c.mu.
func (c *Cache) whole(key cacheKey, req *Request) (found *cacheEntry) {
	for _, e := range c.entries {
		same := e.key
		same.json, same.metadata, same.content, same.rank = key.json, key.metadata, key.content, key.rank
		if same == key && !e.key.metadata && e.store.opt.Content.serves(req.Content) &&
			(found == nil || e.key.compare(found.key) < 0) {
			found = e
		}
	}
	return found
}

// serves reports whether a store of this content shows the same metadata as a store of the given metadata content. It
// ignores transforms, which are part of the key.
func (c Content) serves(metadata Content) bool { return c.ofMetadata().name() == metadata.name() }

// shardName identifies the division of objects. Two requests share a store if they use the same Sharding, whichever
// slots it holds, or ask for the same fixed slots.
func (c *Cache) shardName(cfg *source.Config) string {
	name := cfg.ShardName()
	if cfg.Sharding == nil {
		return name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.shardings, cfg.Sharding)
	if i < 0 {
		i = len(c.shardings)
		c.shardings = append(c.shardings, cfg.Sharding)
	}
	if i > 0 {
		name += fmt.Sprintf(" (%d)", i+1)
	}
	return name
}

// contentOf returns the content that CacheOptions set for a kind.
func (c *Cache) contentOf(kind schema.GroupKind) Content {
	if content, ok := c.opt.Contents[kind]; ok {
		return content
	}
	return c.opt.Contents[schema.GroupKind{}]
}

// checkFor is like Check, and also checks the paths against the Go type of the kind, unless t is nil.
func (c Content) checkFor(t reflect.Type) error {
	p, err := c.cuts()
	if err == nil && t != nil {
		err = p.Check(t)
	}
	return err
}

// expectation identifies a request before its resource is known.
type expectation struct {
	kind                            schema.GroupVersionKind
	namespaces, label, field, shard string
}

func (k cacheKey) expectation(kind schema.GroupVersionKind) expectation {
	return expectation{kind: kind, namespaces: k.namespaces, label: k.label, field: k.field, shard: k.shard}
}

// Expect announces a later request for whole objects. A request for the metadata of the same objects that is opened
// earlier then shares that store, so one watch serves both. Expect opens no watch and sends no request. It has effect
// for the lifetime of the Cache.
func (c *Cache) Expect(req Request) {
	if c.usable() != nil {
		return
	}
	own := req.Content.Transform != nil
	cfg := c.configure(&req)
	if req.Content.Metadata || own {
		return
	}
	_, namespaces := distinct(cfg.Namespaces)
	e := expectation{
		kind: req.Kind, namespaces: namespaces, label: cfg.LabelSelector, field: cfg.FieldSelector, shard: c.shardName(&cfg),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	req.Unstructured = req.Unstructured || c.expects[e].Unstructured
	c.expects[e] = req
}
