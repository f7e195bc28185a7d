package dependent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/why"
)

// controller maintains the children of all primaries of a graph.
type controller[T any, PT client.ObjectOf[T]] struct {
	graph  *Graph[T]
	name   string
	c      *client.Client
	log    *slog.Logger
	memory memory
}

// errNoEngine is the error of a graph without an engine.
var errNoEngine = errors.New("no engine: the host has none, and Graph.Engine gives none")

func newController[T any, PT client.ObjectOf[T]](
	g *Graph[T], h reconcile.Host, name string, opts []reconcile.Option,
) *reconcile.Controller {
	k := &controller[T, PT]{graph: g, name: name, c: h.Client(), log: slog.New(slog.DiscardHandler)}
	if o, ok := h.(reconcile.Overseer); ok && o.Inherit().Logger != nil {
		k.log = o.Inherit().Logger.With("controller", name)
	}
	if k.c != nil {
		for _, n := range g.nodes {
			g.fault(n.resolve(k.c))
		}
	}
	engine := g.engine
	if host, ok := h.(interface{ Engine() *flow.Engine }); engine == nil && ok {
		engine = host.Engine()
	}
	if engine == nil {
		g.fault(fmt.Errorf("%w %q: %w", errInvalid, name, errNoEngine))
	}
	all := []reconcile.Option{reconcile.Fault(g.Err())}
	if g.Err() == nil {
		for _, n := range g.nodes {
			if n.external == nil {
				all = append(all, n.watched...)
				all = append(all, reconcile.Needs(rights.Of(n.kind, "create", "patch", "delete")))
			}
		}
		all = append(all, k.needs()...)
	}
	return reconcile.Flow[T, packet[T, PT], PT](h, name, engine, reconcile.Fibers[T, packet[T, PT]]{
		Flow: k.flow(),
		Packet: func(ctx context.Context, t *reconcile.Task[T]) (*packet[T, PT], error) {
			p := &packet[T, PT]{controller: k, key: client.KeyOf(PT(t.Object)), uid: PT(t.Object).GetUID()}
			p.poked = k.poked(ctx)
			return p, nil
		},
		Changed: func(ctx context.Context, p *packet[T, PT]) bool { return p.notify(k.poked(ctx)) },
		Gone:    k.memory.forget,
	}, append(all, opts...)...)
}

// needs returns the permissions for writes to the primaries, except for their finalizers.
func (k *controller[T, PT]) needs() (opts []reconcile.Option) {
	if k.c == nil {
		return nil
	}
	kinds, _, err := k.c.Scheme().ObjectKinds(PT(new(T)))
	if err != nil {
		return nil // the controller reports it
	}
	outside := slices.ContainsFunc(k.graph.nodes, func(n *node) bool { return n.external != nil })
	if outside { // package alloc records slots in the primary
		opts = append(opts, reconcile.Needs(rights.Of(kinds[0], "patch")))
	}
	if outside || k.graph.status != nil {
		opts = append(opts, reconcile.Needs(rights.Status(kinds[0], "patch")))
	}
	return opts
}

// poked reports whether Controller.Trigger was called, other than at the end of a fiber.
func (k *controller[T, PT]) poked(ctx context.Context) bool {
	return slices.ContainsFunc(reconcile.InfoFrom(ctx).Reasons, func(r reconcile.Reason) bool {
		return r.Type == reconcile.Triggered && r.Source != k.name
	})
}

// packet is the packet of the fiber of a primary.
type packet[T any, PT client.ObjectOf[T]] struct {
	*controller[T, PT]
	key     client.Key
	uid     types.UID
	changed flow.Signal
	round   *round
	todo    []*op

	mu    sync.Mutex
	over  bool // the fiber takes no further changes
	news  bool // a change since begin
	poked bool
}

// notify makes the fiber look again. It returns false if the fiber takes no further changes.
func (p *packet[T, PT]) notify(poked bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.news = true
	p.poked = p.poked || poked
	p.changed.Set()
	return true
}

// begin starts a look. Changes from now on lead to another look.
func (p *packet[T, PT]) begin() (poked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	poked = p.poked
	p.news, p.poked = false, false
	p.changed.Clear()
	return poked
}

// finish makes the fiber take no further changes, unless there was one since begin. It reports whether it did.
func (p *packet[T, PT]) finish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = !p.news
	return p.over
}

// flow returns the flow of a primary. It looks, acts until there is nothing left to do, writes the status, and waits
// for the next change. It ends when there is nothing to wait for. It depends only on the current state, so it may
// restart at any time. Its Undo deletes the children.
func (k *controller[T, PT]) flow() *flow.Flow[packet[T, PT]] {
	type fiber = flow.Fiber[packet[T, PT]]
	opts := []flow.Option{flow.To("wait")}
	if k.graph.finalizes() {
		opts = append(opts, flow.Undo(func(ctx context.Context, f *fiber) flow.Next { return f.Packet.remove(ctx, f) }))
	}
	return flow.New(cmp.Or(k.name, "graph"),
		flow.Step("look", func(ctx context.Context, f *fiber) flow.Next { return f.Packet.look(ctx, f) }),
		flow.Step("children", func(ctx context.Context, f *fiber) flow.Next { return f.Packet.act(ctx, f) }, opts...),
		flow.Step("wait", func(ctx context.Context, f *fiber) flow.Next { return f.Packet.wait(ctx, f) },
			flow.To("look")),
	)
}

// finalizes reports whether a primary needs a finalizer. The garbage collector does not delete in order, and does not
// delete children elsewhere or external resources.
func (g *Graph[T]) finalizes() bool {
	return slices.ContainsFunc(g.nodes, func(n *node) bool {
		return len(n.after) > 0 || n.elsewhere || n.external != nil || n.deleted != nil
	})
}

func (p *packet[T, PT]) newRound(obj PT, now time.Time) *round {
	m := &marks{controller: p.name, kind: obj.GetObjectKind().GroupVersionKind()}
	r := newRound(p.graph.nodes, p.c, m, p.memory.of(p.key, p.uid), p.log, now)
	r.setPrimary(obj, (*T)(obj))
	return r
}

// load reads the primary; it returns nil if it is gone.
func (p *packet[T, PT]) load(ctx context.Context) (PT, error) {
	obj := PT(new(T))
	err := p.c.Get(ctx, p.key, obj)
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != p.uid {
		return nil, nil
	}
	if err == nil && obj.GetObjectKind().GroupVersionKind().Empty() {
		kinds, _, err := p.c.Scheme().ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	return obj, err
}

func (p *packet[T, PT]) look(ctx context.Context, f *flow.Fiber[packet[T, PT]]) flow.Next {
	poked := p.begin()
	obj, err := p.load(ctx)
	if err != nil {
		return f.Fail(err)
	}
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return f.End()
	}
	p.round = p.newRound(obj, f.Now())
	p.round.externals.poked = poked
	return f.Next()
}

// act performs the operations that next returns, and repeats until there are none.
func (p *packet[T, PT]) act(ctx context.Context, f *flow.Fiber[packet[T, PT]]) flow.Next {
	children, err := p.next(ctx)
	switch {
	case err != nil:
		return f.Fail(err)
	case len(children) > 0:
		return f.Fork(children, flow.Limit(p.graph.limit)).Then("children")
	}
	return f.Goto("wait")
}

// next looks at the primary and returns a fiber for each operation.
func (p *packet[T, PT]) next(ctx context.Context) (children []flow.Child, err error) {
	r := p.round
	outside := false
	for _, o := range p.todo {
		r.record(o)
		outside = outside || o.state.external != nil
	}
	p.todo = nil
	if outside { // package alloc has changed the slots in the primary
		obj, err := p.load(ctx)
		if obj == nil || err != nil {
			return nil, err
		}
		r.setPrimary(obj, (*T)(obj))
	}
	p.todo = r.dueOps(ctx)
	for _, o := range p.todo {
		children = append(children, doing.Child(o.name(), o))
	}
	return children, nil
}

// doing is the flow of one op. It never fails: the op has the error.
var doing = flow.New("child", flow.Step("do", func(ctx context.Context, f *flow.Fiber[op]) flow.Next {
	f.Packet.run(ctx)
	return f.Next()
}))

// wait writes the status, and parks until a change.
func (p *packet[T, PT]) wait(ctx context.Context, f *flow.Fiber[packet[T, PT]]) flow.Next {
	r := p.round
	conclude(r.states)
	unreported := p.report(ctx)
	if err := errors.Join(failures(r.states, r.stale), unreported); err != nil {
		return f.Fail(why.Because(err, append(causes(r.states, r.stale), failure(unreported)...)...))
	}
	rest, until := atRest(r.states)
	if rest && p.finish() {
		return f.End()
	}
	binding.Recovered(ctx)
	f.Because(causes(r.states, r.stale)...)
	p.round = nil // saves memory during the wait; the next look computes it again
	return await(f, &p.changed, until).Then("look")
}

func await[P any](f *flow.Fiber[P], changed flow.Wait, until time.Time) flow.Next {
	if until.IsZero() {
		return f.Await(changed)
	}
	return f.Await(changed, flow.Until(until))
}

// report writes the status, if it has changed.
func (p *packet[T, PT]) report(ctx context.Context) error {
	if p.graph.status == nil {
		return nil
	}
	r := p.round
	report := &Report{obj: r.marks.primary, states: r.states}
	for _, s := range r.states {
		report.nodes = append(report.nodes, s.status)
	}
	obj := r.marks.primary.DeepCopyObject().(PT)
	err := client.ModifyStatus[T, PT](ctx, p.c, obj, func(obj PT) error {
		_, err := guarded(func() (struct{}, error) { p.graph.status((*T)(obj), report); return struct{}{}, nil })
		return err
	})
	if apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot determine the state of the children: %w", err)
	}
	return nil
}

// remove deletes the children of a primary that is being deleted, in the reverse order of their creation.
func (p *packet[T, PT]) remove(ctx context.Context, f *flow.Fiber[packet[T, PT]]) flow.Next {
	if len(p.todo) == 0 {
		p.begin()
		obj, err := p.load(ctx)
		if err != nil {
			return f.Fail(err)
		}
		if obj == nil {
			return f.Next()
		}
		p.round = p.newRound(obj, f.Now())
		p.round.ending = true
	}
	children, err := p.next(ctx)
	switch {
	case err != nil:
		return f.Fail(err)
	case len(children) > 0:
		return f.Fork(children, flow.Limit(p.graph.limit)).Then("children")
	}
	r := p.round
	conclude(r.states)
	if err := failures(r.states, r.stale); err != nil {
		return f.Fail(why.Because(err, causes(r.states, r.stale)...))
	}
	if isEmpty(r.states) {
		return f.Next()
	}
	binding.Recovered(ctx)
	f.Because(causes(r.states, r.stale)...)
	p.round = nil
	return f.Await(&p.changed).Then("children")
}
