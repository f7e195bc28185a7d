package dependent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
)

// External says how a node keeps something outside of the cluster, such as a database of a cloud, of type V. Its id is
// allocated exactly once by package alloc, in a slot that has the name of the node. All but Update and Differs have to
// be given. The functions may block for as long as a request takes.
type External[T, V any] struct {
	// Create makes it, and returns its id. It may be called again, with the same key, after a crash.
	Create func(ctx context.Context, obj *T, idempotencyKey string) (id string, err error)
	// Read returns how it is; nil if it is gone, so that another one is created.
	Read func(ctx context.Context, obj *T, id string) (*V, error)
	// Differs says whether it has to be updated. Default: never.
	Differs func(obj *T, is *V) bool
	// Update brings it to what is desired.
	Update func(ctx context.Context, obj *T, id string, is *V) error
	// Delete gives it back. That there is none is a success. id is empty if it is not known whether one was created
	// under the key.
	Delete func(ctx context.Context, obj *T, idempotencyKey, id string) error
	// Interval is how often it is read, to see what has changed by itself; a spec that changes, and a child that does,
	// has it read besides. Default, and 0: 10 minutes.
	Interval time.Duration
}

// DefaultInterval is how often something external is read.
const DefaultInterval = 10 * time.Minute

// external is an External without its types.
type external struct {
	interval time.Duration
	keep     func(ctx context.Context, c *client.Client, obj any) (is any, err error)
	release  func(ctx context.Context, c *client.Client, obj any) error
}

// AddExternal adds a node for something outside of the cluster. The options are those of [Add] that are not about
// objects: After, If, When, Ready and Timeout.
func AddExternal[T, V any, PT client.ObjectOf[T]](
	g *Graph[T], name string, e External[T, V], opts ...Option,
) *Node[V] {
	n := &node{
		name: name, primary: reflect.TypeFor[T](), child: reflect.TypeFor[V](), ready: func(any) bool { return true },
	}
	if e.Create == nil || e.Read == nil || e.Delete == nil || (e.Differs == nil) != (e.Update == nil) {
		n.fault("Create, Read and Delete have to be given, and Differs and Update both or none")
	}
	if e.Interval < 0 {
		n.fault("an interval of %v", e.Interval)
	}
	if e.Interval == 0 {
		e.Interval = DefaultInterval
	}
	n.external = &external{
		interval: e.Interval,
		keep: func(ctx context.Context, c *client.Client, obj any) (any, error) {
			is, err := keep[T, V, PT](ctx, c, PT(obj.(*T)), name, e)
			return is, err
		},
		release: func(ctx context.Context, c *client.Client, obj any) error {
			return alloc.Release(ctx, c, PT(obj.(*T)), name, func(ctx context.Context, key, id string) error {
				return e.Delete(ctx, obj.(*T), key, id)
			})
		},
	}
	add(g, n, opts)
	if n.adopt || n.noForce || n.recreate || n.elsewhere || n.deleted != nil || len(n.watch) > 0 || !n.kind.Empty() {
		n.fault("an option that is about objects of the API server")
	}
	return &Node[V]{n}
}

// errGone has what is gone created once more.
var errGone = errors.New("it is gone")

// keep creates what there is not, and brings what there is to what is desired.
func keep[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) (*V, error) {
	for again := false; ; again = true {
		id, err := alloc.Once(ctx, c, obj, slot, func(ctx context.Context, key string) (string, error) {
			return e.Create(ctx, (*T)(obj), key)
		})
		if errors.Is(err, alloc.ErrReleasing) && !again {
			if err := giveUp(ctx, c, obj, slot, e); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		is, err := e.Read(ctx, (*T)(obj), id)
		switch {
		case err != nil:
			return nil, err
		case is == nil && again:
			return nil, fmt.Errorf("%w right after it was created (%s)", errGone, id)
		case is == nil: // somebody has deleted it
			if err := giveUp(ctx, c, obj, slot, e); err != nil {
				return nil, err
			}
			continue
		case e.Differs == nil || !e.Differs((*T)(obj), is):
			return is, nil
		}
		if err := e.Update(ctx, (*T)(obj), id, is); err != nil {
			return nil, err
		}
		return e.Read(ctx, (*T)(obj), id)
	}
}

func giveUp[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) error {
	return alloc.Release(ctx, c, obj, slot, func(ctx context.Context, key, id string) error {
		return e.Delete(ctx, (*T)(obj), key, id)
	})
}

// outside is what is remembered of something external.
type outside struct {
	is         any
	read       time.Time
	generation int64 // of the primary that it was read for
}

// lookOutside says whether something external is to be looked at, or given back.
func (r *round) lookOutside(s *state) []*op {
	at := childKey{node: s.index}
	_, done := r.tried[at]
	o := &op{round: r, state: s, want: &want{}, at: at, verb: verbOutside}
	known := r.outside(s)
	if !s.wanted && s.decided {
		if o.verb = verbRelease; done || !s.held(r) || !r.mayGo(s) {
			return nil
		}
		return []*op{o}
	}
	if s.asked && !done && (known == nil || known.generation != r.primary.GetGeneration() || r.poked ||
		!r.now.Before(known.read.Add(s.external.interval))) {
		return []*op{o}
	}
	r.judgeOutside(s, r.tried[at])
	return nil
}

func (r *round) judgeOutside(s *state, failed error) {
	known := r.outside(s)
	s.err = failed
	s.status = NodeStatus{State: StateProgressing}
	if failed != nil || known == nil {
		return
	}
	s.until = known.read.Add(s.external.interval)
	ok, err := guarded(func() (bool, error) { return s.ready(known.is), nil })
	switch {
	case err != nil:
		s.err = r.fail("judge", s, client.Key{}, err)
	case ok:
		s.status.State = StateReady
	}
}

func (o *op) runOutside(ctx context.Context) error {
	e, r := o.state.external, o.round
	obj := r.primary.DeepCopyObject() // others look at ours meanwhile
	if o.verb == verbRelease {
		return r.fail("give back", o.state, client.Key{}, e.release(ctx, r.c, obj))
	}
	is, err := e.keep(ctx, r.c, obj)
	if err != nil {
		return r.fail("keep", o.state, client.Key{}, err)
	}
	o.outside = is
	return nil
}

func (o *op) doneOutside() {
	r := o.round
	switch {
	case o.err != nil:
		o.state.err = o.err
		r.forgetOutside(o.state)
	case o.verb == verbRelease:
		r.forgetOutside(o.state)
	default:
		r.known.outsides[o.state.index] = &outside{is: o.outside, read: r.now, generation: r.primary.GetGeneration()}
	}
}

func (r *round) outside(s *state) *outside { return r.known.outsides[s.index] }
func (r *round) forgetOutside(s *state)    { delete(r.known.outsides, s.index) }

// held says whether something external is recorded in the primary.
func (s *state) held(r *round) bool {
	return s.external != nil && slices.Contains(alloc.Held(r.primary), s.name)
}

func (s *state) concludeOutside(r *round, st NodeStatus) NodeStatus {
	if s.held(r) {
		st.Children = 1
	}
	switch {
	case s.err != nil:
		st.State, st.Message = StateFailed, s.err.Error()
	case s.decided && !s.wanted && st.Children > 0:
		st.State, st.Message = StateRemoving, "it is being given back"
	case s.decided && !s.wanted:
		st.State = StateAbsent
	case len(s.blocked) > 0 || !s.decided:
		st.State, st.Message = StateWaiting, waitsFor(s.blocked)
	case s.status.State == StateReady:
		st.State, st.Ready = StateReady, 1
	default:
		st.State, st.Message = StateProgressing, "it is not ready"
	}
	return st
}
