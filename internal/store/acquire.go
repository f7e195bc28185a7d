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

// usable says why nothing can be done with a cache that NewCache has not made.
func (c *Cache) usable() error {
	if c == nil || c.entries == nil {
		return ErrNoCache
	}
	return nil
}

// AcquireFor is Acquire for a Go type that the Scheme knows.
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

// distinct returns namespaces in order, each once, and what tells them from others.
func distinct(namespaces []string) ([]string, string) {
	if len(namespaces) == 0 || slices.Contains(namespaces, "") { // "" is all of them
		return nil, ""
	}
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	return namespaces, strings.Join(namespaces, ",")
}

// hasProtobuf says whether the Go type of a kind can be read from protobuf, in which what is dropped can be found.
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

// configure applies the options of a request, and what is said of its kind.
func (c *Cache) configure(req *Request) source.Config {
	cfg := source.Config{Client: c.client, Resource: req.Resource, Logger: c.opt.Logger}
	for _, o := range append(slices.Clone(c.opt.Source), req.Options...) {
		if o != nil {
			o(&cfg)
		}
	}
	req.Content = c.contentOf(req.Kind.GroupKind()).with(req.Content)
	req.Content.Metadata = req.Content.Metadata || cfg.Metadata
	return cfg
}

// find returns what serves a request, if there is something, and else the key of what is to be made. The caller holds
// c.mu.
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
	key.json = true // one from JSON serves everybody
	if e := c.entries[key]; e != nil {
		return e, key
	}
	key.json = req.Unstructured || !c.hasProtobuf(req.Kind, req.Content)
	return c.entries[key], key
}

// whole returns an entry of whole objects that serves a request for their metadata; nil if there is none. The caller
// holds c.mu.
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

// serves says whether who asks for no more than metadata is handed out the very same by a store of this content. Of
// the transforms the key tells.
func (c Content) serves(metadata Content) bool { return c.ofMetadata().name() == metadata.name() }

// shardName tells the divisions of objects apart: two requests share a store when they share the Sharding, whatever it
// holds at the time, or ask for the same slots for good.
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

// contentOf returns what of a kind is held, whoever asks.
func (c *Cache) contentOf(kind schema.GroupKind) Content {
	if content, ok := c.opt.Contents[kind]; ok {
		return content
	}
	return c.opt.Contents[schema.GroupKind{}]
}

// checkFor is Check, also of what the Go type of a kind tells; nil: it is not known.
func (c Content) checkFor(t reflect.Type) error {
	p, err := c.cuts()
	if err == nil && t != nil {
		err = p.Check(t)
	}
	return err
}

// expectation is what a request can be known by before its resource is.
type expectation struct {
	kind                            schema.GroupVersionKind
	namespaces, label, field, shard string
}

func (k cacheKey) expectation(kind schema.GroupVersionKind) expectation {
	return expectation{kind: kind, namespaces: k.namespaces, label: k.label, field: k.field, shard: k.shard}
}

// Expect announces a request for whole objects: one for the metadata of the same that is opened before shares its
// store, so that there is one watch and not two. It opens nothing, sends nothing, and holds for as long as the Cache.
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
