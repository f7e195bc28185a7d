package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	requests "github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// ledger is a Cleaner with an external account for each object. The account records the size of the object and the
// annotation that other clients write. ledger writes both into the status, fails at random, and sometimes asks for
// another call.
type ledger struct {
	b *bench

	mu      sync.Mutex
	rnd     *rand.Rand
	seen    map[string]gateway // the last state that was handled without error
	opened  map[string]int     // accounts, by uid
	calls   int
	cleaned map[string]int // successful clean-ups, by uid
}

func (l *ledger) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.IntN(n)
}

func (l *ledger) Reconcile(ctx context.Context, g *gateway) (reconcile.Result, error) {
	before := *g.DeepCopyObject().(*gateway)
	l.mu.Lock()
	l.calls++
	l.opened[string(g.UID)] = 1
	l.mu.Unlock()
	if !slices.Contains(g.Finalizers, finalizer) {
		return reconcile.Terminal(errors.New("no finalizer"))
	}
	if l.draw(6) == 0 {
		return reconcile.Retry(errors.New("now and then"))
	}
	err := client.ModifyStatus(ctx, l.b.client(), g, func(g *gateway) error {
		g.Status.Seen, g.Status.Note = g.Generation, map[string]string{"touched": g.Annotations["touched"]}
		return nil
	})
	if err != nil {
		return reconcile.Retry(err)
	}
	if g.Generation != before.Generation || g.Annotations["touched"] != before.Annotations["touched"] {
		// Another client has written in the meantime. The status has its change and the account has the older state, so
		// another call must follow.
		err = client.ModifyStatus(ctx, l.b.client(), g, func(g *gateway) error { g.Status.Count++; return nil })
		if err != nil {
			return reconcile.Retry(err)
		}
	}
	l.mu.Lock()
	l.seen[g.Name] = before
	l.mu.Unlock()
	if l.draw(4) == 0 {
		return reconcile.After(time.Duration(l.draw(5000)) * time.Millisecond), nil
	}
	return reconcile.Done, nil
}

func (l *ledger) Cleanup(_ context.Context, g *gateway) (reconcile.Result, error) {
	if l.draw(3) == 0 {
		return reconcile.Retry(errors.New("not yet"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.opened, string(g.UID))
	l.cleaned[string(g.UID)]++
	return reconcile.Done, nil
}

// TestDisturbedReconciliations changes and deletes objects at random while a third of the controller's requests fail.
// In the end each object was reconciled in its last state, and deleted objects are cleaned up. Then the controller is
// idle.
func TestDisturbedReconciliations(t *testing.T) {
	t.Parallel()
	seed.Play(t, 4, func(t *testing.T, seed uint64) {
		inBubble(t, func(b *bench) { b.disturbedReconciliations(seed) })
	})
}

func (b *bench) disturbedReconciliations(seed uint64) {
	t := b.t
	d := newDisturber(b, seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	l := &ledger{
		b: b, rnd: rand.New(rand.NewPCG(seed, 3)), seen: map[string]gateway{}, opened: map[string]int{},
		cleaned: map[string]int{},
	}
	var policy requests.Policy
	if seed%2 == 0 {
		policy = impatient
	}
	var opts []reconcile.Option
	if seed%4 >= 2 {
		opts = append(opts, reconcile.Preempt())
	}
	var c *reconcile.Controller
	process := func() {
		b.host = b.disturbed(d, func() bool { return false }, policy)
		c = reconcile.New[gateway](b.host, "gateways", l,
			append(opts, reconcile.MaxInterval(-1), reconcile.Finalizer(finalizer))...)
		b.host.Start(b.ctx)
	}
	process()
	names := []string{"one", "two", "three", "four"}
	for _, name := range names {
		b.put(name)
	}
	deleted := map[string]bool{}
	for i := range 40 {
		testbed.Settle(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		name := names[rnd.IntN(len(names))]
		if deleted[name] {
			continue
		}
		switch n := rnd.IntN(12); {
		case n < 5:
			patch := fmt.Sprintf(`{"spec":{"size":%d}}`, i+2)
			if err := d.foreign.Patch(b.ctx, testbed.New("a", name),
				client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Error(err)
			}
		case n < 10:
			d.touch(b.ctx, name, 1000+i)
		case n == 10:
			deleted[name] = true
			if err := d.foreign.Delete(b.ctx, testbed.New("a", name)); err != nil {
				t.Error(err)
			}
		case seed%8 >= 4:
			if err := b.host.Stop(); err != nil {
				t.Error(err)
			}
			process()
		}
	}
	testbed.Settle(10 * time.Minute)
	problem := func(name, format string, args ...any) {
		t.Errorf("FAIRLEAD_SEED=%d: %s: %s\n%s", seed, name, fmt.Sprintf(format, args...), d.of(name))
	}
	d.calm()
	testbed.Settle(2 * time.Minute)
	for _, name := range names {
		g := testbed.Stored(b.server, client.Key{Namespace: "a", Name: name})
		switch {
		case deleted[name] && g != nil:
			problem(name, "it is still there, with finalizers %v", g.Finalizers)
		case deleted[name]:
		default:
			seen := l.seen[name]
			if seen.Generation != g.Generation || seen.Annotations["touched"] != g.Annotations["touched"] {
				problem(name, "generation %d touched by %s was never reconciled, but %d touched by %s", g.Generation,
					g.Annotations["touched"],
					seen.Generation, seen.Annotations["touched"])
			}
			if g.Status.Seen != g.Generation || g.Status.Note["touched"] != g.Annotations["touched"] {
				problem(name, "the status of generation %d touched by %s is %+v", g.Generation, g.Annotations["touched"], g.Status)
			}
		}
	}
	if open := len(names) - len(deleted); len(l.opened) != open {
		problem("", "%d accounts are open, not %d", len(l.opened), open)
	}
	before := l.calls
	testbed.Settle(time.Hour)
	if st, f := c.Describe(0).Counts, c.Failures(); len(f) > 0 || st.Ready+st.Running > 0 {
		problem("", "%+v, failures %v", st, f)
	}
	// Only calls requested by After continue. A quarter of the calls requests one, so they die out.
	if n := l.calls - before; n > 40 || l.calls > 2000 {
		problem("", "%d calls, %d in the last hour", l.calls, n)
	}
	t.Logf("%d calls, %d requests, %d of them disturbed", l.calls, d.all, d.hurt)
}
