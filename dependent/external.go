package dependent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

// External manages a resource of type V outside of the cluster, such as a database of a cloud, for each primary.
// Package alloc allocates its id exactly once, in a slot with the name of the node. Create, Read and Delete are
// required; Differs and Update are optional, but only together. The functions may block for the time of a request,
// beside the workers of the engine (flow.Blocking).
type External[T, V any] struct {
	// Create creates the resource and returns its id. It may be called again with the same key after a crash.
	Create func(ctx context.Context, obj *T, idempotencyKey string) (id string, err error)
	// Read returns the current state. If it returns nil, the resource is gone, and another one is created.
	Read func(ctx context.Context, obj *T, id string) (*V, error)
	// Differs reports whether the resource must be updated. By default it is never updated.
	Differs func(obj *T, is *V) bool
	// Update changes the resource to the desired state.
	Update func(ctx context.Context, obj *T, id string, is *V) error
	// Delete deletes the resource. It must succeed if there is none. id is empty if it is not known whether Create
	// succeeded with the key.
	Delete func(ctx context.Context, obj *T, idempotencyKey, id string) error
	// PollInterval is how soon a resource that is not [Ready] is read again; zero means 2 seconds. It doubles with each
	// read, up to the smaller of a minute and DriftInterval. Jitter subtracts at most half of it.
	PollInterval time.Duration
	// DriftInterval is how often a ready resource is read, to detect external changes; zero means 10 minutes. The
	// controller also reads it when the spec of the primary changes, and after reconcile.Controller.Trigger.
	DriftInterval time.Duration
}

// The defaults of External.PollInterval and External.DriftInterval, and the bound of the first.
const (
	defaultPoll  = 2 * time.Second
	defaultDrift = 10 * time.Minute
	maxPoll      = time.Minute
)

// external is an External without its type parameters.
type external struct {
	poll  flow.Backoff  // between reads of a resource that is not ready
	drift time.Duration // between reads of a ready one
	// keep returns the state after the call. With an error, gone reports that the resource no longer exists.
	keep    func(ctx context.Context, c *client.Client, obj any) (is any, gone bool, err error)
	release func(ctx context.Context, c *client.Client, obj any) error
}

// AddExternal adds a node for a resource outside of the cluster. The options are those of [Add] that do not concern API
// objects: After, If, When, Ready and Timeout.
func AddExternal[T, V any, PT client.ObjectOf[T]](
	g *Graph[T], name string, e External[T, V], opts ...Option,
) *Node[V] {
	n := &node{
		name: name, primary: reflect.TypeFor[T](), child: reflect.TypeFor[V](), ready: func(any) bool { return true },
	}
	if e.Create == nil || e.Read == nil || e.Delete == nil || (e.Differs == nil) != (e.Update == nil) {
		n.fault("Create, Read and Delete are required, and Differs requires Update and the other way round")
	}
	if e.PollInterval < 0 || e.DriftInterval < 0 {
		n.fault("an interval of %v is negative", min(e.PollInterval, e.DriftInterval))
	}
	poll, drift := cmp.Or(e.PollInterval, defaultPoll), cmp.Or(e.DriftInterval, defaultDrift)
	n.external = &external{
		poll: flow.Backoff{Base: poll, Max: min(maxPoll, drift)}, drift: drift,
		keep: func(ctx context.Context, c *client.Client, obj any) (any, bool, error) {
			is, gone, err := keep[T, V, PT](ctx, c, PT(obj.(*T)), name, e)
			return is, gone, err
		},
		release: func(ctx context.Context, c *client.Client, obj any) error {
			return giveUp[T, V, PT](ctx, c, PT(obj.(*T)), name, e)
		},
	}
	add(g, n, opts)
	if n.adopt || n.noForce || n.recreate || n.elsewhere || n.deleted != nil || len(n.watch) > 0 || !n.kind.Empty() {
		n.fault("an option that applies to objects of the API server only")
	}
	return &Node[V]{n}
}

// errGone means that the resource was gone right after its creation.
var errGone = errors.New("it is gone")

// keep creates the resource if there is none, and otherwise updates it. With an error, gone reports that the resource
// was found to be gone.
func keep[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) (is *V, gone bool, err error) {
	for range 2 {
		id, err := alloc.Once(ctx, c, obj, slot, func(ctx context.Context, key string) (string, error) {
			return waitFor(ctx, func() (string, error) { return e.Create(ctx, (*T)(obj), key) })
		})
		switch {
		case err == nil:
			is, err = e.bring(ctx, (*T)(obj), id)
			if is != nil || err != nil {
				return is, false, err
			}
			gone = true
		case !errors.Is(err, alloc.ErrReleasing):
			return nil, gone, err
		}
		// The resource was deleted, or an earlier release is incomplete. Release frees the slot.
		if err := giveUp(ctx, c, obj, slot, e); err != nil {
			return nil, gone, err
		}
	}
	return nil, true, fmt.Errorf("%w right after it was created", errGone)
}

// bring reads the resource, updates it if it differs, and returns its state; nil if it is gone.
func (e External[T, V]) bring(ctx context.Context, obj *T, id string) (*V, error) {
	is, err := waitFor(ctx, func() (*V, error) { return e.Read(ctx, obj, id) })
	if err != nil || is == nil || e.Differs == nil || !e.Differs(obj, is) {
		return is, err
	}
	return waitFor(ctx, func() (*V, error) {
		if err := e.Update(ctx, obj, id, is); err != nil {
			return nil, err
		}
		return e.Read(ctx, obj, id)
	})
}

func giveUp[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) error {
	return alloc.Release(ctx, c, obj, slot, func(ctx context.Context, key, id string) error {
		_, err := waitFor(ctx, func() (struct{}, error) { return struct{}{}, e.Delete(ctx, (*T)(obj), key, id) })
		return err
	})
}

// waitFor calls a function of the user that sends a request, beside the workers of the engine.
func waitFor[R any](ctx context.Context, fn func() (R, error)) (res R, err error) {
	flow.Blocking(ctx, func() { res, err = fn() })
	return res, err
}
