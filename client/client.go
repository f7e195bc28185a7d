package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/discover"
)

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
	permission permission // see Bound
}

// shared is the state that a client and the clients bound from it have in common. Each part has its own lock.
type shared struct {
	call    *call.Client
	ownCall bool        // made by New, and closed by Close
	policy  call.Policy // Options.Policy
	kinds   kinds
	stores  stores
	writes  writeState
	waits   waits

	backstop time.Duration
}

// New returns a client for the cluster of o.Config or o.Call. It sends no request. Without a Mapper, the client asks
// the server for its resources on first use.
func New(o Options) (*Client, error) {
	if o.Config == nil && (o.Call == nil || o.Mapper == nil) {
		return nil, errors.New("cannot make a client: no configuration")
	}
	if o.FieldOwner == "" {
		o.FieldOwner = "fairlead"
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	c := &Client{shared: &shared{
		call: o.Call, policy: o.Policy, stores: newStores(o.Cache, o.Stores), backstop: orDefault(o.Backstop, 30*time.Second),
	}}
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c.kinds.scheme, c.kinds.mapper = o.Scheme, o.Mapper
	c.writes.fieldOwner = o.FieldOwner
	c.writes.plain = url.Values{"fieldManager": {strings.TrimSpace(o.FieldOwner)}}
	c.writes.applied.init(appliesKept)
	c.writes.pending = pending.Writes{
		Stores: c.stores.written, Changed: c.waits.wake, Timeout: cacheTimeout, Log: o.Logger,
	}
	return c, nil
}

// Bound returns a client that applies b to all of its requests, whatever their context. Other packages of this module
// call it. The bindings of c, of the returned client and of a context combine; those of the client are inside those of
// the context. The two clients share everything else, so closing one closes the other.
func (c *Client) Bound(b binding.Binding) *Client {
	if !c.made() {
		return c
	}
	return &Client{shared: c.shared, permission: permission{c.permission.binding.Around(b)}}
}

// Close ends the subscriptions of waits and closes idle connections, also for the clients bound from c.
func (c *Client) Close() {
	if !c.made() {
		return
	}
	c.waits.close()
	if c.ownCall {
		c.call.Close()
	} else {
		c.call.Connection().CloseIdle()
	}
}

// Scheme returns the scheme of the client; for a nil client, that of client-go.
func (c *Client) Scheme() *runtime.Scheme {
	if !c.made() {
		return scheme.Scheme
	}
	return c.kinds.scheme
}

// Mapper returns the mapper of the client; for a nil client, an empty one.
func (c *Client) Mapper() meta.RESTMapper {
	if !c.made() {
		return meta.NewDefaultRESTMapper(nil)
	}
	return c.kinds.mapper
}

// FieldOwner returns the default field manager of writes; empty for a client that New has not made.
func (c *Client) FieldOwner() string {
	if !c.made() {
		return ""
	}
	return c.writes.fieldOwner
}

// made reports whether New has made the client.
func (c *Client) made() bool { return c != nil && c.shared != nil }

// reader returns the reader of the client. For a client that New has not made, its reads return ErrNotMade.
func (c *Client) reader() reader {
	if !c.made() {
		return reader{}
	}
	return reader{
		kinds: &c.kinds, stores: &c.stores,
		server: server{call: c.call, policy: &c.policy, permission: &c.permission},
	}
}

// writer returns the writer of the client. For a client that New has not made, its writes return ErrNotMade.
func (c *Client) writer() writer {
	if !c.made() {
		return writer{}
	}
	return writer{reader: c.reader(), own: &c.writes}
}

// Get fills obj from the store if its kind and namespace are watched, else from the server. It overwrites the previous
// content of obj. If the object does not exist, the error satisfies apierrors.IsNotFound.
func (c *Client) Get(ctx context.Context, key Key, obj Object) error {
	return c.reader().get(ctx, key, obj)
}

// List fills list from the store if the kind and the namespace are watched, else from the server, page by page.
func (c *Client) List(ctx context.Context, list ObjectList, opts ...ReadOption) error {
	return c.reader().list(ctx, list, opts)
}

// Live returns a reader that always asks the server.
func (c *Client) Live() Reader { return liveReader{c} }

// WaitForCache waits until the cache contains everything that the server had when WaitForCache was called. The objects
// in kinds only determine the kinds to wait for; without any, it waits for all watched kinds. Use it to see writes of
// other clients; the client's own writes are visible without it.
//
// It lists the metadata of each kind. All waiting callers share one list, at most once a second: see
// [cache.Store.Barrier]. WaitForCache waits at most 10 s, or until the deadline of ctx if that is earlier. Its error
// then matches ErrCacheBehind and names the kind and the cause. A kind that is not watched returns an error that
// matches ErrNotWatched.
func (c *Client) WaitForCache(ctx context.Context, kinds ...Object) error {
	return c.reader().waitForCache(ctx, kinds)
}

// Create creates obj. If the server generates the name, obj has it afterwards.
func (c *Client) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.writer().create(ctx, "", obj, opts)
}

// Update replaces the object by obj. With a resourceVersion it conflicts with later changes; without one it overwrites
// them. The server removes fields that the Go type of obj does not know. If the cache shows such fields, Update sends
// nothing and returns an error that matches ErrPruned and names one of them. If obj lacks fields that the cache drops,
// Update returns a DroppedError. Neither check is possible for objects that are not watched. Objects from the cache
// lack managedFields, and the server keeps those. Update does not send an update that would change nothing.
func (c *Client) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.writer().update(ctx, "", obj, opts)
}

// Replace replaces the object by obj if it still has the resourceVersion of obj. It is for callers that make many
// writes. It sends one request, does not compare obj with the cache, and decodes only the header of the answer. Reads
// see the write at once.
//
// The caller must own obj. Apart from the intended change, obj must equal the server's object in that version. It must
// come from a read or write in a Go type that knows all of its fields; Replace does not check that, unlike
// [Client.Update]. Replace sends obj even if nothing changed. It returns a DroppedError if obj may lack fields that the
// cache drops.
//
// Afterwards obj has the resourceVersion and the generation of the answer, and no managedFields, so the next write
// keeps those of the server. All other fields are as sent: obj does not show defaults that the server sets or unknown
// fields that it drops. If the answer was lost and a read has shown that the write was made, obj is the object that was
// read. It may then include later changes of other clients.
//
// After an error obj is unchanged. Replace returns an error if obj has no resourceVersion, a conflict
// (apierrors.IsConflict) without retry, call.ErrOutcomeUnknown if the write may have been made, call.ErrTooLarge, or
// ErrFenced.
func (c *Client) Replace(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.writer().replace(ctx, "", obj, opts)
}

// Patch changes the object that obj names and stores the answer in obj.
func (c *Client) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return c.writer().patch(ctx, "", obj, patch, opts)
}

// Apply makes a server-side apply of the fields of obj with the client's field owner. The server removes fields that
// this owner applied before and obj lacks. Apply does not send an apply equal to the last one while the cache still
// shows its result.
//
// If obj is an Object, it holds the server's answer afterwards. A configuration is unchanged; the next read shows the
// answer. Build a new object for each apply. An object that was read, or that an Apply has filled, also holds the
// fields of users and other managers. The operator would become a co-owner of them, so Apply refuses such an object
// with ErrWasRead. A resourceVersion in obj restricts the apply to that version, a uid to that incarnation.
func (c *Client) Apply(ctx context.Context, obj Applicable, opts ...WriteOption) error {
	return c.writer().apply(ctx, "", obj, opts)
}

// Delete deletes the object that obj names. It does not change obj. If the answer is lost, Delete repeats the request
// for the uid in the cache, or else for that of obj. It therefore does not delete a new object of the same name. If
// neither is known, the repeated request deletes any object of that name.
func (c *Client) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.writer().delete(ctx, "", obj, opts)
}

// DeleteCollection deletes the objects that sel selects. obj only determines the kind. The server's answer does not
// state which objects remain. If the kind is watched, DeleteCollection therefore lists the namespace once and stores
// the result.
func (c *Client) DeleteCollection(ctx context.Context, obj Object, sel Selection, opts ...WriteOption) error {
	return c.writer().deleteCollection(ctx, obj, sel, opts)
}

type liveReader struct{ c *Client }

// Get implements Reader.
func (l liveReader) Get(ctx context.Context, key Key, obj Object) error {
	return l.c.reader().live(ctx, key, obj)
}

// List implements Reader.
func (l liveReader) List(ctx context.Context, list ObjectList, opts ...ReadOption) error {
	return l.c.reader().list(ctx, list, append(opts[:len(opts):len(opts)], Live()))
}
