package store

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Request describes the objects that a caller wants.
type Request struct {
	Kind schema.GroupVersionKind
	// Resource and Namespaced are looked up with the Mapper if Resource is empty.
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Unstructured asks for a store that unstructured readers can use without loss. Such a store holds JSON.
	Unstructured bool
	// Content restricts the objects, in addition to CacheOptions.Contents for the kind. A field is dropped if either
	// drops it; managedFields are kept if either keeps them. If one has a Keep, only one may drop fields. Requests with
	// equal contents share a store. A request for metadata gets a store of whole objects with the same metadata, if there
	// is one already or Cache.Expect has announced one.
	Content Content
	// Options choose namespaces, selectors and the way of watching. If two requests share a store, the options of the
	// first one apply. Namespaces of a cluster-scoped kind are an error, and so are invalid namespaces and selectors.
	Options []source.Option
}

// plan is a request with everything that identifies its store, except for the encoding and the content. The stores that
// exist decide about these; see catalog.
type plan struct {
	key       cacheKey
	cfg       source.Config
	req       Request
	announced *Request // a later request for whole objects, whose store may serve this one; nil: none
	scheme    *runtime.Scheme
}

// planner turns requests into plans.
type planner struct {
	opt  *CacheOptions
	conn *connection.Conn

	mu         sync.Mutex // a leaf
	expected   map[expectation]Request
	shardings  []*source.Sharding // of requests; the index distinguishes those of one layout
	transforms int                // number of requests with a Transform or Keep of their own
}

func newPlanner(opt *CacheOptions, conn *connection.Conn) planner {
	return planner{opt: opt, conn: conn, expected: map[expectation]Request{}}
}

// plan returns the plan of a request. It may ask the server for the resource of the kind.
func (p *planner) plan(req Request) (*plan, error) {
	if err := p.resolve(&req); err != nil {
		return nil, err
	}
	if err := source.Check(req.Options); err != nil {
		return nil, err
	}
	if !req.Namespaced {
		if err := source.CheckClusterScoped(req.Options); err != nil {
			return nil, err
		}
	}
	own := req.Content.isOwn()
	if p.contentOf(req.Kind.GroupKind()).contradicts(req.Content) {
		return nil, errTwoKeeps
	}
	cfg := p.configure(&req)
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = p.opt.TracerProvider
	}
	if err := req.Content.checkFor(typeOf(p.opt.Scheme, req.Kind)); err != nil {
		return nil, err
	}
	if !req.Namespaced { // CacheOptions.Source applies to namespaced kinds only
		cfg.Namespaces = nil
	}
	out := &plan{req: req, scheme: p.opt.Scheme, key: cacheKey{
		resource: req.Resource, label: cfg.LabelSelector, field: cfg.FieldSelector, shard: p.shardName(&cfg),
	}}
	cfg.Namespaces, out.key.namespaces = distinct(cfg.Namespaces)
	out.cfg = cfg
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case own:
		p.transforms++
		out.key.transform = p.transforms
	case req.Content.Transform != nil:
		out.key.transform = ofKind
	}
	if whole, ok := p.expected[out.key.expectation(req.Kind)]; ok && !own {
		out.announced = &whole
	}
	return out, nil
}

// errTwoKeeps means that a request and CacheOptions.Contents both drop fields, and one of them makes exceptions.
var errTwoKeeps = errors.New("the cache and the request both drop fields, so neither can except objects with Keep")

// expect records a later request for whole objects.
func (p *planner) expect(req Request) {
	own := req.Content.isOwn()
	cfg := p.configure(&req)
	if req.Content.Metadata || own {
		return
	}
	_, namespaces := distinct(cfg.Namespaces)
	e := expectation{
		kind: req.Kind, namespaces: namespaces, label: cfg.LabelSelector, field: cfg.FieldSelector,
		shard: p.shardName(&cfg),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	req.Unstructured = req.Unstructured || p.expected[e].Unstructured
	p.expected[e] = req
}

// resolve fills in Resource and Namespaced of a request.
func (p *planner) resolve(req *Request) error {
	if !req.Resource.Empty() {
		return nil
	}
	m, err := p.opt.Mapper.RESTMapping(req.Kind.GroupKind(), req.Kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w: is its CustomResourceDefinition installed?", err)
	case err != nil:
		return err
	}
	req.Resource, req.Namespaced = m.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace
	return nil
}

// configure applies the options of the cache and of a request. It adds the content of the kind to the request.
func (p *planner) configure(req *Request) source.Config {
	cfg := source.Config{Connection: p.conn, Resource: req.Resource, Logger: p.opt.Logger}
	for _, o := range append(slices.Clone(p.opt.Source), req.Options...) {
		if o != nil {
			o(&cfg)
		}
	}
	req.Content = p.contentOf(req.Kind.GroupKind()).with(req.Content)
	req.Content.Metadata = req.Content.Metadata || cfg.Metadata
	return cfg
}

// contentOf returns the content that CacheOptions set for a kind.
func (p *planner) contentOf(kind schema.GroupKind) Content {
	if content, ok := p.opt.Contents[kind]; ok {
		return content
	}
	return p.opt.Contents[schema.GroupKind{}]
}

// shardName identifies the division of objects. Two requests share a store if they use the same Sharding, whichever
// slots it holds, or ask for the same fixed slots.
func (p *planner) shardName(cfg *source.Config) string {
	name := cfg.ShardName()
	if cfg.Sharding == nil {
		return name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.shardings, cfg.Sharding)
	if i < 0 {
		i = len(p.shardings)
		p.shardings = append(p.shardings, cfg.Sharding)
	}
	if i > 0 {
		name += fmt.Sprintf(" (%d)", i+1)
	}
	return name
}

// entryKey returns the key of the store for a plan, and adapts the request to it. whole returns the key of a store of
// whole objects that serves a request for their metadata; has reports whether there is a store of a key.
func (p *plan) entryKey(whole func(*plan) (cacheKey, bool), has func(cacheKey) bool) cacheKey {
	req, key := &p.req, p.key
	if req.Content.Metadata {
		req.Content = req.Content.ofMetadata()
		if k, ok := whole(p); ok {
			return k
		}
		if p.announced == nil || !p.announced.Content.serves(req.Content) {
			key.json, key.metadata = true, true
			key.content, key.rank = req.Content.name(), req.Content.rank()
			return key
		}
		req.Content, req.Unstructured = p.announced.Content, p.announced.Unstructured
	}
	key.content, key.rank = req.Content.name(), req.Content.rank()
	key.json = true // a store of JSON serves all readers
	if !has(key) {
		key.json = req.Unstructured || !hasProtobuf(p.scheme, req.Kind, req.Content)
	}
	return key
}

// isServedBy reports whether a store of whole objects, with this key and content, serves a request for metadata.
func (p *plan) isServedBy(key cacheKey, content Content) bool {
	same := key
	same.json, same.metadata, same.content, same.rank = p.key.json, p.key.metadata, p.key.content, p.key.rank
	return same == p.key && !key.metadata && content.serves(p.req.Content)
}

// hasProtobuf reports whether the Go type of a kind decodes protobuf and has the fields that content drops.
func hasProtobuf(scheme *runtime.Scheme, kind schema.GroupVersionKind, content Content) bool {
	t := typeOf(scheme, kind)
	if t == nil {
		return false
	}
	if _, ok := reflect.New(t).Interface().(protobuf.Message); !ok {
		return false
	}
	kept := content.ready(t)
	return kept.paths.Len() == 0 || kept.message != nil
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

// serves reports whether a store of this content shows the same metadata as a store of the given metadata content. It
// ignores transforms, which are part of the key.
func (c Content) serves(metadata Content) bool { return c.ofMetadata().name() == metadata.name() }

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
