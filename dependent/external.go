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

// defaultInterval is how often something external is read.
const defaultInterval = 10 * time.Minute

// external is an External without its types.
type external struct {
	interval time.Duration
	// keep returns how it is after that. With an error, gone reports that it does not exist any more.
	keep    func(ctx context.Context, c *client.Client, obj any) (is any, gone bool, err error)
	release func(ctx context.Context, c *client.Client, obj any) error
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
		e.Interval = defaultInterval
	}
	n.external = &external{
		interval: e.Interval,
		keep: func(ctx context.Context, c *client.Client, obj any) (any, bool, error) {
			is, gone, err := keep[T, V, PT](ctx, c, PT(obj.(*T)), name, e)
			return is, gone, err
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

// keep creates what there is not, and brings what there is to what is desired. With an error, gone reports that it was
// found to be gone.
func keep[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) (is *V, gone bool, err error) {
	for range 2 {
		id, err := alloc.Once(ctx, c, obj, slot, func(ctx context.Context, key string) (string, error) {
			return e.Create(ctx, (*T)(obj), key)
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
		// It was deleted by others, or an earlier release has not ended: its slot is free after that.
		if err := giveUp(ctx, c, obj, slot, e); err != nil {
			return nil, gone, err
		}
	}
	return nil, true, fmt.Errorf("%w right after it was created", errGone)
}

// bring reads it, updates it if it differs, and returns how it is then; nil if it is gone.
func (e External[T, V]) bring(ctx context.Context, obj *T, id string) (*V, error) {
	is, err := e.Read(ctx, obj, id)
	if err != nil || is == nil || e.Differs == nil || !e.Differs(obj, is) {
		return is, err
	}
	if err := e.Update(ctx, obj, id, is); err != nil {
		return nil, err
	}
	return e.Read(ctx, obj, id)
}

func giveUp[T, V any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, e External[T, V],
) error {
	return alloc.Release(ctx, c, obj, slot, func(ctx context.Context, key, id string) error {
		return e.Delete(ctx, (*T)(obj), key, id)
	})
}

// outside is what is remembered of something external, as it was read last. There is none before the first read of this
// process.
type outside struct {
	is         any // nil: it is gone
	read       time.Time
	generation int64 // of the primary that it was read for
	failed     bool  // a later attempt to read or change it has failed: how it is now is unknown
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
	if s.asked && !done && (known == nil || known.failed || known.is == nil || known.generation != r.primary.GetGeneration() || r.poked ||
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
	if failed != nil || known == nil || known.is == nil {
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
	is, gone, err := e.keep(ctx, r.c, obj)
	if o.gone = gone; err != nil {
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
		if known := r.outside(o.state); o.gone {
			r.known.outsides[o.state.index] = &outside{failed: true} // another one may exist
		} else if known != nil {
			known.failed = true
		}
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
