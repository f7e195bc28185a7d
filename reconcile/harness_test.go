package reconcile_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type gateway = testbed.Gateway

var web = reconcile.Key{Namespace: "a", Name: "web"}

// bench is a server and one process, in a bubble.
type bench struct {
	t      *testing.T
	ctx    context.Context
	server *apiserver.Server
	host   *testbed.Host

	closers []func()

	mu    sync.Mutex
	calls []call // in the order of their starts
}

// call is one reconciliation as the reconciler saw it.
type call struct {
	key     reconcile.Key
	info    reconcile.Info
	obj     *gateway
	at      time.Duration // since the start
	cleanup bool
}

// bubble runs a test in a bubble of synctest.
func bubble(t *testing.T, fn func(b *bench)) {
	t.Helper()
	t.Parallel()
	inBubble(t, fn)
}

// inBubble is bubble for tests of several bubbles, one after the other.
func inBubble(t *testing.T, fn func(b *bench)) {
	t.Helper()
	bubbleOf(t, func(b *bench) {
		defer func() {
			if err := b.host.Stop(); err != nil {
				t.Errorf("the host failed: %v", err)
			}
		}()
		defer func() {
			for _, fn := range b.closers {
				fn()
			}
		}()
		fn(b)
	})
}

// bubbleOf is bubble for tests whose host they stop themselves, perhaps with an error.
func bubbleOf(t *testing.T, fn func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, ctx: t.Context(), server: testbed.Server(t, apiserver.Options{})}
		defer b.server.Close()
		b.host = b.process()
		fn(b)
	})
}

func (b *bench) process() *testbed.Host {
	return testbed.NewHost(b.t, b.server.Config(), testbed.Mapper(testbed.Resources()))
}

// start runs the host until it has settled.
func (b *bench) start() {
	b.host.Start(b.ctx)
	b.settle()
}

// settle waits until the host is idle, for a few seconds at most.
func (b *bench) settle() { testbed.Settle(3 * time.Second) }

func (b *bench) client() *client.Client { return b.host.Client() }

func (b *bench) put(name string, change ...func(*gateway)) *unstructured.Unstructured {
	b.t.Helper()
	g := testbed.New("a", name)
	for _, fn := range change {
		fn(g)
	}
	return testbed.Put(b.t, b.server, g)
}

// change changes the stored gateway without the client.
func (b *bench) change(fn func(u *unstructured.Unstructured)) {
	b.t.Helper()
	testbed.Change(b.t, b.server, testbed.Gateways, web, fn)
}

func size(n int64) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, n, "spec", "size") }
}

func label(value string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"l": value}) }
}

// note records a call. The reconcilers of the tests begin with it.
func (b *bench) note(ctx context.Context, obj *gateway) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call{
		key: client.KeyOf(obj), info: reconcile.InfoFrom(ctx), obj: obj.DeepCopyObject().(*gateway), at: time.Since(epoch),
	})
	return len(b.calls)
}

// epoch is the start time of every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

func (b *bench) last() call {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == 0 {
		b.t.Fatal("nothing was reconciled")
	}
	return b.calls[len(b.calls)-1]
}

// wantCalls checks the number of reconciliations so far.
func (b *bench) wantCalls(n int, reason string) {
	b.t.Helper()
	if got := b.count(); got != n {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, c := range b.calls {
			b.t.Logf("%d at %v: %s rv %s gen %d, because of %v", i+1, c.at, c.key, c.obj.ResourceVersion, c.obj.Generation,
				c.info.Reasons)
		}
		b.t.Fatalf("%s: %d reconciliations, want %d", reason, got, n)
	}
}

// controller declares a controller whose reconciler records the call and then calls fn, if it is not nil.
func (b *bench) controller(
	fn func(ctx context.Context, n int, g *gateway) (reconcile.Result, error), opts ...reconcile.Option,
) *reconcile.Controller {
	return reconcile.New[gateway](b.host, "gateways",
		reconcile.Func[gateway](func(ctx context.Context, g *gateway) (reconcile.Result, error) {
			n := b.note(ctx, g)
			if fn == nil {
				return reconcile.Done, nil
			}
			return fn(ctx, n, g)
		}), append([]reconcile.Option{reconcile.MaxInterval(-1)}, opts...)...)
}

// countUp increments the count in the status.
func (b *bench) countUp(ctx context.Context, g *gateway) error {
	return client.ModifyStatus(ctx, b.client(), g, func(g *gateway) error { g.Status.Count++; return nil })
}
