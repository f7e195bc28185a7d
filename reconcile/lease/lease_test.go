package lease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// candidate is a process with one controller.
type candidate struct {
	lease *lease.Lease
	host  *testbed.Host
	stop  func()
	calls atomic.Int32
}

type election struct {
	t       *testing.T
	server  *apiserver.Server
	running atomic.Int32 // reconciliations of all candidates
	overlap atomic.Bool
}

func bubble(t *testing.T, fn func(e *election)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &election{t: t, server: testbed.Server(t, apiserver.Options{})}
		defer e.server.Close()
		testbed.Put(t, e.server, testbed.New("a", "web"))
		fn(e)
		if e.overlap.Load() {
			t.Error("two candidates worked at the same time")
		}
	})
}

// start begins a candidate whose reconciliations call do.
func (e *election) start(
	name string, do func(ctx context.Context, c *client.Client, g *testbed.Gateway) error,
) *candidate {
	l, err := lease.New(e.server.Config(), lease.Options{Namespace: "a", Name: "gateways", Identity: name})
	if err != nil {
		e.t.Fatal(err)
	}
	c := &candidate{lease: l, host: testbed.NewHost(e.t, e.server.Config(), testbed.Mapper(testbed.Resources()))}
	c.host.Add("lease", l.Run)
	reconcile.New[testbed.Gateway](c.host, "gateways",
		reconcile.Func[testbed.Gateway](func(ctx context.Context, g *testbed.Gateway) (reconcile.Result, error) {
			c.calls.Add(1)
			if e.running.Add(1) > 1 {
				e.overlap.Store(true)
			}
			defer e.running.Add(-1)
			return reconcile.Done, do(ctx, c.host.Client(), g)
		}), reconcile.Leader(l), reconcile.MaxInterval(-1))
	c.host.Start(e.t.Context())
	c.stop = sync.OnceFunc(func() {
		if err := c.host.Stop(); err != nil {
			e.t.Errorf("%s failed: %v", name, err)
		}
	})
	testbed.Settle(3 * time.Second)
	return c
}

func countUp(ctx context.Context, c *client.Client, g *testbed.Gateway) error {
	return client.ModifyStatus(ctx, c, g, func(g *testbed.Gateway) error { g.Status.Count++; return nil })
}

func (e *election) change(n int64) {
	e.t.Helper()
	g := testbed.Stored(e.server, client.Key{Namespace: "a", Name: "web"})
	g.Spec.Size = int(n)
	testbed.Put(e.t, e.server, g)
	testbed.Settle(3 * time.Second)
}

// leads reports whether a process leads. A leader has no cause why another one does its work.
func leads(t *testing.T, l *lease.Lease) bool {
	t.Helper()
	return l.Why(t.Context(), why.Object{}) == nil
}

func TestOneWorks(t *testing.T) {
	bubble(t, func(e *election) {
		one := e.start("one", countUp)
		defer one.stop()
		two := e.start("two", countUp)
		defer two.stop()
		e.change(2)
		if one.calls.Load() != 2 || two.calls.Load() != 0 || !leads(e.t, one.lease) || leads(e.t, two.lease) ||
			two.lease.Fence(t.Context()) == nil {
			t.Errorf("one worked %d times, two %d", one.calls.Load(), two.calls.Load())
		}
		one.stop() // releases the lease
		testbed.Settle(5 * time.Second)
		if two.calls.Load() != 1 || !leads(e.t, two.lease) {
			t.Errorf("five seconds later two has worked %d times", two.calls.Load())
		}
		e.change(3)
		if two.calls.Load() != 2 {
			t.Errorf("two has worked %d times", two.calls.Load())
		}
	})
}

// A leader that cannot renew ends its work, and sends no requests, before another one leads.
func TestLoss(t *testing.T) {
	bubble(t, func(e *election) {
		var cause error
		late := make(chan error, 1)
		one := e.start("one", func(ctx context.Context, c *client.Client, g *testbed.Gateway) error {
			if g.Spec.Size != 2 {
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			err := countUp(context.WithoutCancel(ctx), c, g)
			select {
			case late <- err:
			default:
			}
			return ctx.Err()
		})
		defer one.stop()
		two := e.start("two", countUp)
		defer two.stop()
		e.change(2)
		blocked := e.server.On(apiserver.Match{Resource: "leases", Func: func(r apiserver.Request) bool {
			return r.Verb == "update" && bytes.Contains(r.Body, []byte("one"))
		}}, apiserver.Drop())
		testbed.Settle(40 * time.Second)
		blocked.Off()
		if !errors.Is(cause, lease.ErrLost) {
			t.Errorf("the cause is %v", cause)
		}
		if err := <-late; !errors.Is(err, client.ErrFenced) || !errors.Is(err, lease.ErrLost) {
			t.Errorf("a write after the loss: %v", err)
		}
		testbed.Settle(40 * time.Second)
		if leads(e.t, one.lease) == leads(e.t, two.lease) {
			t.Errorf("one leads: %t, two leads: %t", leads(e.t, one.lease), leads(e.t, two.lease))
		}
		if n := testbed.Stored(e.server, client.Key{Namespace: "a", Name: "web"}).Status.Count; n == 0 {
			t.Error("no candidate has worked since")
		}
	})
}

// Work that continues after its process was stopped holds the lease.
func TestTheLeaseIsHeldUntilTheWorkHasEnded(t *testing.T) {
	bubble(t, func(e *election) {
		one := e.start("one", func(ctx context.Context, c *client.Client, g *testbed.Gateway) error {
			<-ctx.Done()
			<-time.After(8 * time.Second)
			return countUp(context.WithoutCancel(ctx), c, g) // allowed, since it holds the lease
		})
		two := e.start("two", func(context.Context, *client.Client, *testbed.Gateway) error { return nil })
		defer two.stop()
		go one.stop()
		testbed.Settle(7 * time.Second)
		if two.calls.Load() != 0 {
			t.Error("two works while one still works")
		}
		testbed.Settle(10 * time.Second)
		if n := testbed.Stored(e.server, client.Key{Namespace: "a", Name: "web"}).Status.Count; n != 1 ||
			two.calls.Load() == 0 {
			t.Errorf("count is %d, two has worked %d times", n, two.calls.Load())
		}
		one.stop()
	})
}

// Every write of a leader carries the resource version that it was computed from.
func TestWritesCarryTheirVersion(t *testing.T) {
	bubble(t, func(e *election) {
		one := e.start("one", func(ctx context.Context, c *client.Client, g *testbed.Gateway) error {
			own := testbed.New("a", "web")
			own.Spec.Size = 7
			base := g.DeepCopyObject().(*testbed.Gateway)
			g.Labels = map[string]string{"l": "x"}
			return errors.Join(c.Apply(ctx, own, client.Force()), c.Patch(ctx, g, client.MergeFrom(base)))
		})
		defer one.stop()
		n := 0
		for _, r := range e.server.Log().Select(apiserver.Match{Verb: "patch", Resource: "gateways"}) {
			n++
			if !bytes.Contains(r.Body, []byte(`"resourceVersion"`)) {
				t.Errorf("a write without a version: %s", r.Body)
			}
		}
		if n < 2 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s := testbed.Server(t, apiserver.Options{})
	defer s.Close()
	for _, o := range []lease.Options{
		{},
		{Name: "x"},
		{Namespace: "x"},
		{Namespace: "a", Name: "x", Duration: time.Second, Renew: time.Minute},
	} {
		if _, err := lease.New(s.Config(), o); err == nil {
			t.Errorf("%s is accepted", fmt.Sprint(o))
		}
	}
	l, err := lease.New(s.Config(), lease.Options{Namespace: "a", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Errorf("a run with a canceled context: %v", err)
	}
	if _, _, err := l.Lead(t.Context()); !errors.Is(err, lease.ErrNotLeading) {
		t.Errorf("after the run: %v", err)
	}
}
