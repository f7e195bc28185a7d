package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/discover"
)

// Key names an object; Namespace is empty for cluster-scoped ones.
type Key = cache.Key

// Object is any Kubernetes object: typed, *unstructured.Unstructured or *metav1.PartialObjectMetadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// ObjectList is a list of objects, such as *corev1.PodList or *unstructured.UnstructuredList.
type ObjectList interface {
	metav1.ListInterface
	runtime.Object
}

// KeyOf returns the key of an object; that of nil is empty.
func KeyOf(obj metav1.Object) Key {
	if isNil(obj) {
		return Key{}
	}
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Reader reads objects into memory of the caller's own.
type Reader interface {
	// Get fills obj, whose type says which kind is meant. apierrors.IsNotFound tells absence.
	Get(ctx context.Context, key Key, obj Object) error
	// List fills list, in no particular order.
	List(ctx context.Context, list ObjectList, opts ...ReadOption) error
}

var _ Reader = (*Client)(nil)

// Options configure a Client. Config or Call is required; everything else has a default.
type Options struct {
	Config *rest.Config
	// Call makes the requests; by default a new one for Config. Share it: it holds the retry budget of the server.
	Call *call.Client
	// Policy of the requests.
	Policy call.Policy

	// Cache holds the stores to read from; none by default, so that every read is live.
	Cache *cache.Cache
	// Stores are read from, too, those that hold more first: for those who run sources of their own. Of a resource
	// that is among them those of Cache are not asked.
	Stores []*cache.Store
	// Scheme knows the Go types; that of client-go by default.
	Scheme *runtime.Scheme
	// Mapper knows the resources of kinds; by default one that asks the server, when it must.
	Mapper meta.RESTMapper
	Logger *slog.Logger

	// FieldOwner is the field manager of all writes; "fairlead" by default. Programs that write to the same objects need
	// one each: it tells after a lost answer whose change it is that is there.
	FieldOwner string

	// Backstop is how often waits look at the server; 30 s.
	Backstop time.Duration
}

// How Modify deals with conflicts.
const (
	modifyTries = 10 // writes in all
	modifyBase  = 10 * time.Millisecond
	modifyCap   = time.Second // of the back-off, which has full jitter
	// With resource versions that cannot be ordered, the cache is polled until the version has changed.
	pollInterval = 50 * time.Millisecond
	pollTimeout  = 10 * time.Second
)

// cacheTimeout bounds the time until the cache shows a write that cannot be laid over it, and WaitForCache.
const cacheTimeout = 10 * time.Second

// appliesKept bounds the memory of applies made, by which equal ones are recognised.
const appliesKept = 10_000

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// Client reads and writes objects of one cluster. It is safe for concurrent use.
type Client struct {
	*shared
	binding Binding // of all requests; see Bound
}

// shared is what a client and those that are bound have in common.
type shared struct {
	opt     Options
	apart   map[schema.GroupVersionResource][]*cache.Store // Options.Stores
	call    *call.Client
	ownCall bool
	kinds   kinds
	log     *slog.Logger
	plain   url.Values // the query of a write without options; read-only
	applied applied
	hubs    hubs
	layer   layer
}

// New returns a client. It sends nothing: without a Mapper, the server is asked for its resources when they are needed
// first.
func New(o Options) (*Client, error) {
	if o.Config == nil && (o.Call == nil || o.Mapper == nil) {
		return nil, errors.New("cannot make a client: no configuration")
	}
	o.Backstop = orDefault(o.Backstop, 30*time.Second)
	if o.FieldOwner == "" {
		o.FieldOwner = "fairlead"
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	c := &Client{shared: &shared{opt: o, call: o.Call, log: o.Logger}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.call == nil {
		var err error
		if c.call, err = call.New(call.Options{Config: o.Config, Logger: o.Logger}); err != nil {
			return nil, fmt.Errorf("cannot make a client: %w", err)
		}
		c.ownCall = true
	}
	if o.Mapper == nil {
		m, err := discover.NewMapper(o.Config, o.Logger)
		if err != nil {
			return nil, fmt.Errorf("cannot make a client: %w", err)
		}
		o.Mapper = m
	}
	c.kinds.scheme, c.kinds.mapper = o.Scheme, o.Mapper
	c.plain = url.Values{"fieldManager": {strings.TrimSpace(o.FieldOwner)}}
	c.apart = map[schema.GroupVersionResource][]*cache.Store{}
	for _, st := range o.Stores {
		resource := st.Options().Resource
		c.apart[resource] = append(c.apart[resource], st)
	}
	c.applied.init(appliesKept)
	c.layer = layer{stores: c.written, poke: c.hubs.poke, timeout: cacheTimeout, log: c.log}
	return c, nil
}

// Close ends the subscriptions of waits and closes idle connections, also those of clients that are bound.
func (c *Client) Close() {
	if c.usable() != nil {
		return
	}
	c.hubs.close()
	if c.ownCall {
		c.call.Close()
	}
}

// Scheme returns the scheme that the client knows Go types by; of a nil client that of client-go.
func (c *Client) Scheme() *runtime.Scheme {
	if c.usable() != nil {
		return scheme.Scheme
	}
	return c.kinds.scheme
}

// Mapper returns the mapper that the client knows resources by; of a nil client one that knows none.
func (c *Client) Mapper() meta.RESTMapper {
	if c.usable() != nil {
		return meta.NewDefaultRESTMapper(nil)
	}
	return c.kinds.mapper
}

// usable says why nothing can be done with a client that New has not made.
func (c *Client) usable() error {
	if c == nil || c.shared == nil {
		return ErrNotMade
	}
	return nil
}

// kindOf returns the kind of an object, which may be empty apart from its type.
func (c *Client) kindOf(obj runtime.Object) (*kind, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if isNil(obj) {
		return nil, fmt.Errorf("cannot tell the kind of an object: %w", ErrNil)
	}
	return c.kinds.of(obj)
}

// kindOfList returns the kind of the items of a list.
func (c *Client) kindOfList(list runtime.Object) (*kind, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if isNil(list) {
		return nil, fmt.Errorf("cannot tell the kind of a list: %w", ErrNil)
	}
	return c.kinds.ofList(list)
}

// isNil says whether obj is nil, or a nil pointer.
func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// FieldOwner returns the field manager of writes that name none; empty of a client that New has not made.
func (c *Client) FieldOwner() string {
	if c == nil {
		return ""
	}
	return c.opt.FieldOwner
}
