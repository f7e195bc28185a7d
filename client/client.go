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
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/discover"
)

// Key names an object. Namespace is empty for cluster-scoped objects.
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

// KeyOf returns the key of obj, or an empty key if obj is nil.
func KeyOf(obj metav1.Object) Key {
	if isNil(obj) {
		return Key{}
	}
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Reader reads objects into memory that the caller owns.
type Reader interface {
	// Get fills obj, whose type determines the kind. If the object does not exist, the error satisfies
	// apierrors.IsNotFound.
	Get(ctx context.Context, key Key, obj Object) error
	// List fills list, in no particular order.
	List(ctx context.Context, list ObjectList, opts ...ReadOption) error
}

var _ Reader = (*Client)(nil)

// Options configures a Client. Config, or else both Call and Mapper, is required. All other fields are optional.
type Options struct {
	Config *rest.Config
	// Call sends the requests; by default New makes one for Config. Clients of one server should share it, because it
	// holds the retry budget of that server.
	Call *call.Client
	// Policy applies to all requests.
	Policy call.Policy

	// Cache holds the stores to read from. Without it every read asks the server.
	Cache *cache.Cache
	// Stores are further stores to read from, for programs with their own sources, in order of decreasing content. If
	// they contain a resource, reads of it do not use the stores of Cache.
	Stores []*cache.Store
	// Scheme maps Go types to kinds; by default that of client-go.
	Scheme *runtime.Scheme
	// Mapper maps kinds to resources; by default one that asks the server when necessary.
	Mapper meta.RESTMapper
	Logger *slog.Logger

	// FieldOwner is the field manager of all writes; "fairlead" by default. Programs that write to the same objects need
	// different ones: after a lost answer, it identifies the program that made a change.
	FieldOwner string

	// Backstop is the interval at which waits ask the server; 30 s by default.
	Backstop time.Duration
}

// How Modify retries after conflicts.
const (
	modifyTries = 10 // attempts in total
	modifyBase  = 10 * time.Millisecond
	modifyCap   = time.Second // upper bound of the back-off, which has full jitter
	// If resource versions cannot be ordered, Modify polls the cache until the version has changed.
	pollInterval = 50 * time.Millisecond
	pollTimeout  = 10 * time.Second
)

// cacheTimeout bounds WaitForCache, and the time in which the cache catches up with a write that cannot be stored in
// it.
const cacheTimeout = 10 * time.Second

// appliesKept bounds the number of applies that are remembered to recognise equal ones.
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
	binding binding.Binding // of all requests; see Bound
}

// shared is the state that a client and the clients bound from it have in common.
type shared struct {
	opt     Options
	apart   map[schema.GroupVersionResource][]*cache.Store // Options.Stores
	call    *call.Client
	ownCall bool
	kinds   kinds
	log     *slog.Logger
	plain   url.Values // query of a write without options; read-only
	applied applied
	hubs    hubs
	layer   layer
}

// New returns a client for the cluster of o.Config or o.Call. It sends no request. Without a Mapper, the client asks
// the server for its resources on first use.
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
		m, err := discover.NewMapper(o.Config, c.call.Connection(), o.Logger)
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

// Close ends the subscriptions of waits and closes idle connections, also for the clients bound from c.
func (c *Client) Close() {
	if c.usable() != nil {
		return
	}
	c.hubs.close()
	if c.ownCall {
		c.call.Close()
	} else {
		c.call.Connection().CloseIdle()
	}
}

// Scheme returns the scheme of the client; for a nil client, that of client-go.
func (c *Client) Scheme() *runtime.Scheme {
	if c.usable() != nil {
		return scheme.Scheme
	}
	return c.kinds.scheme
}

// Mapper returns the mapper of the client; for a nil client, an empty one.
func (c *Client) Mapper() meta.RESTMapper {
	if c.usable() != nil {
		return meta.NewDefaultRESTMapper(nil)
	}
	return c.kinds.mapper
}

// usable returns an error for a client that New has not made.
func (c *Client) usable() error {
	if c == nil || c.shared == nil {
		return ErrNotMade
	}
	return nil
}

// kindOf returns the kind of an object, of which only the type must be set.
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

// isNil reports whether obj is nil or a nil pointer.
func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// FieldOwner returns the default field manager of writes; empty for a client that New has not made.
func (c *Client) FieldOwner() string {
	if c == nil {
		return ""
	}
	return c.opt.FieldOwner
}
