package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// watchAgain covers all namespaces and waits until they are listed.
func watchAgain(h *cache.Handle) error {
	if err := h.SetNamespaces(); err != nil {
		return err
	}
	<-time.After(time.Second) // in a bubble: when all other work is done
	return nil
}

// Each case is one sentence of the page's "Own echoes". It has the first call of the reconciler, other events, and the
// number of reconciliations.
func TestOwnEchoes(t *testing.T) {
	t.Parallel()
	noop := func(ctx context.Context, b *bench, g *gateway) error {
		return b.client().Status().Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(`{"status":{"count":7}}`)),
			client.Always())
	}
	for _, tc := range []struct {
		reason string
		first  func(ctx context.Context, b *bench, g *gateway) error // in the first reconciliation
		then   func(b *bench)                                        // when that has settled
		want   int
		more   int // this many further reconciliations are allowed
		check  func(t *testing.T, b *bench)
	}{
		{
			reason: "N own status writes lead to exactly one reconciliation",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				for range 5 {
					if err := b.countUp(ctx, g); err != nil {
						return err
					}
				}
				return nil
			},
			want: 1,
		},
		{
			reason: "an own write of labels and one of the spec are echoes, too",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				return client.Modify(ctx, b.client(), g,
					func(g *gateway) error { g.Labels = map[string]string{"own": "1"}; g.Spec.Size = 9; return nil })
			},
			want: 1,
		},
		{
			reason: "a foreign write between our read and our write is reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				b.change(size(2))
				return b.client().Status().Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(`{"status":{"count":1}}`)))
			},
			want:  2,
			more:  1, // the response contains both changes, so its event may not be a mere echo
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "a foreign write after ours and before our event is reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				defer hold.Release()
				if err := b.countUp(ctx, g); err != nil {
					return err
				}
				b.change(size(2))
				return nil
			},
			want:  2,
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "our write that changes nothing, right after a foreign change of the spec, hides no change",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				if err := noop(ctx, b, g); err != nil {
					return err
				}
				hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				defer hold.Release()
				b.change(size(2))
				return noop(ctx, b, g)
			},
			want:  2,
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "a list that shows both changes in one object is reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				defer hold.Release()
				if err := b.countUp(ctx, g); err != nil {
					return err
				}
				b.change(size(2))
				b.change(func(u *unstructured.Unstructured) {})
				b.server.Compact(0)
				b.server.DropConnections()
				return nil
			},
			want:  2,
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "a deletion that begins during our status patch is reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				if err := b.server.Delete(ctx, testbed.Gateways, "a", "web", metav1.DeleteOptions{}); err != nil {
					return err
				}
				return b.client().Status().Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(`{"status":{"count":1}}`)))
			},
			want: 2,
			more: 1,
			check: func(t *testing.T, b *bench) {
				if b.last().obj.DeletionTimestamp == nil {
					t.Error("the last reconciliation has not seen the deletion")
				}
			},
		},
		{
			reason: "a deletion and a creation inside of the window are reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				if err := b.countUp(ctx, g); err != nil {
					return err
				}
				if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
					return err
				}
				b.put("web")
				return nil
			},
			want: 2,
			check: func(t *testing.T, b *bench) {
				if was, is := b.calls[0].obj.UID, b.last().obj.UID; was == is {
					t.Errorf("the last reconciliation is of the old object, %s", is)
				}
			},
		},
		{
			reason: "a namespace that stops being watched after our write, and is watched again, is reconciled once more",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				defer hold.Release()
				if err := b.countUp(ctx, g); err != nil {
					return err
				}
				h := b.host.Watch(testbed.GroupVersion.WithKind("Gateway"))
				defer h.Release()
				if err := h.SetNamespaces("b"); err != nil {
					return err
				}
				return watchAgain(h)
			},
			want: 2,
			check: func(t *testing.T, b *bench) {
				if got := b.last().obj.Status.Count; got != 8 {
					t.Errorf("the last reconciliation saw count %d, want our own 8", got)
				}
			},
		},
		{
			reason: "a namespace that stops being watched while our write is in flight, and a foreign change before it is " +
				"watched again",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				gate := apiserver.NewGate()
				b.server.On(apiserver.Match{Verb: "patch", Subresource: "status", Times: 1}, apiserver.HoldRequest(gate))
				done := make(chan error)
				go func() { done <- b.countUp(ctx, g) }()
				if err := gate.Wait(ctx, 1); err != nil {
					return err
				}
				h := b.host.Watch(testbed.GroupVersion.WithKind("Gateway"))
				defer h.Release()
				if err := h.SetNamespaces("b"); err != nil {
					return err
				}
				gate.Open()
				if err := <-done; err != nil {
					return err
				}
				b.change(size(2))
				return watchAgain(h)
			},
			want: 2,
			check: func(t *testing.T, b *bench) {
				wantSize(t, b, 2)
				if got := b.last().obj.Status.Count; got != 8 {
					t.Errorf("the last reconciliation saw count %d, want our own 8", got)
				}
			},
		},
		{
			reason: "two parallel writes to one object are echoes",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				errs := make(chan error, 2)
				for _, name := range []string{"x", "y"} {
					go func() {
						own := g.DeepCopyObject().(*gateway)
						errs <- client.ModifyStatus(ctx, b.client(), own, func(g *gateway) error {
							if g.Status.Note == nil {
								g.Status.Note = map[string]string{}
							}
							g.Status.Note[name] = "1"
							return nil
						})
					}()
				}
				if err := <-errs; err != nil {
					return err
				}
				return <-errs
			},
			want: 1,
		},
		{
			reason: "eight parallel patches without a lock are echoes",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				errs := make(chan error, 8)
				for i := range cap(errs) {
					patch := fmt.Appendf(nil, `{"status":{"note":{"n%d":"1"}}}`, i)
					go func() {
						errs <- b.client().Status().Patch(ctx, g.DeepCopyObject().(*gateway),
							client.RawPatch(types.MergePatchType, patch))
					}()
				}
				var all []error
				for range cap(errs) {
					all = append(all, <-errs)
				}
				return errors.Join(all...)
			},
			want: 1,
		},
		{
			reason: "patches without a lock, one after the other from the same state, are echoes",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				for i := range 3 {
					patch := fmt.Appendf(nil, `{"status":{"note":{"n%d":"1"}}}`, i)
					err := b.client().Status().Patch(ctx, g.DeepCopyObject().(*gateway), client.RawPatch(types.MergePatchType, patch))
					if err != nil {
						return err
					}
				}
				return nil
			},
			want: 1,
		},
		{
			reason: "a foreign write among parallel patches is reconciled",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				errs := make(chan error, 8)
				for i := range cap(errs) {
					patch := fmt.Appendf(nil, `{"status":{"note":{"n%d":"1"}}}`, i)
					go func() {
						errs <- b.client().Status().Patch(ctx, g.DeepCopyObject().(*gateway),
							client.RawPatch(types.MergePatchType, patch))
					}()
				}
				b.change(size(2))
				var all []error
				for range cap(errs) {
					all = append(all, <-errs)
				}
				return errors.Join(all...)
			},
			want:  2,
			more:  1, // for responses that contain the foreign change
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "a write that fails releases the events that were held because of it",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				gate := apiserver.NewGate()
				b.server.On(apiserver.Match{Verb: "patch", Subresource: "status", Times: 1}, apiserver.HoldRequest(gate),
					apiserver.Answer(apiserver.Failure(422)))
				done := make(chan error)
				go func() { done <- b.countUp(ctx, g) }()
				if err := gate.Wait(ctx, 1); err != nil {
					return err
				}
				b.change(size(2))
				gate.Open()
				if err := <-done; err == nil {
					b.t.Error("the write succeeded")
				}
				return nil
			},
			want:  2,
			check: func(t *testing.T, b *bench) { wantSize(t, b, 2) },
		},
		{
			reason: "foreign changes on both sides of an own one are one reconciliation of the last state",
			first: func(ctx context.Context, b *bench, g *gateway) error {
				hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				defer hold.Release()
				b.change(label("before"))
				if err := b.countUp(ctx, g); err != nil {
					return err
				}
				b.change(label("after"))
				return nil
			},
			want: 2,
			check: func(t *testing.T, b *bench) {
				if got := b.last().obj.Labels["l"]; got != "after" {
					t.Errorf("the last reconciliation saw label %q", got)
				}
			},
		},
		{
			reason: "a write of another caller through the same client is foreign",
			first: func(_ context.Context, b *bench, g *gateway) error {
				return b.countUp(b.ctx, g)
			},
			want: 2,
		},
		{
			reason: "a foreign change after our writes have settled is reconciled",
			first:  func(ctx context.Context, b *bench, g *gateway) error { return b.countUp(ctx, g) },
			then:   func(b *bench) { b.change(label("x")) },
			want:   2,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
					if n == 1 {
						return reconcile.Done, tc.first(ctx, b, g)
					}
					return reconcile.Done, nil
				})
				b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/keep"}; g.Status.Count = 7 })
				b.start()
				if tc.then != nil {
					b.wantCalls(1, "before anything else happens")
					tc.then(b)
					b.settle()
				}
				testbed.Settle(60e9)
				b.wantCalls(min(max(tc.want, b.count()), tc.want+tc.more), tc.reason)
				if tc.check != nil {
					tc.check(t, b)
				}
			})
		})
	}
}

func wantSize(t *testing.T, b *bench, want int) {
	t.Helper()
	if got := b.last().obj.Spec.Size; got != want {
		t.Errorf("the last reconciliation saw size %d, want %d", got, want)
	}
}
