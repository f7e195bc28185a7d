package reconcile_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// dying sets the deletion timestamp, as a delete does for an object with finalizers.
func dying(u *unstructured.Unstructured) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
}

// The next process undoes the steps that had begun, and no others.
func TestAnObjectIsDeletedWhileTheOperatorIsDown(t *testing.T) {
	t.Parallel()
	finalized := func(g *gateway) { g.Finalizers = []string{finalizer} }
	for _, test := range []struct {
		reason string
		up     func(b *bench, s *script) // nil: no process has seen the object
		down   func(u *unstructured.Unstructured)
		want   []string
	}{
		{reason: "no step has begun"},
		{reason: "parked before c", up: func(*bench, *script) {}, want: []string{"undo-a"}},
		{
			reason: "completed", up: func(b *bench, s *script) { s.hold.Set(); b.settle() },
			want: []string{"undo-c", "undo-a"},
		},
		{
			reason: "killed in c, after the step at which it had parked",
			up: func(b *bench, s *script) {
				s.fail = func(step string) error {
					if step == "c" { // from here on no request arrives
						b.server.On(apiserver.Match{Verb: "patch"}, apiserver.Drop())
					}
					return nil
				}
				s.hold.Set()
			},
			want: []string{"undo-c", "undo-a"},
		},
		{
			reason: "completed, and parked before c again",
			up: func(b *bench, s *script) {
				s.hold.Set()
				b.settle()
				s.hold.Clear()
				b.change(size(2))
				b.settle()
			},
			want: []string{"undo-c", "undo-a"},
		},
		{
			reason: "the position is lost, and an allocation shows that a step has begun", up: func(*bench, *script) {},
			down: func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "status")
				_ = unstructured.SetNestedField(u.Object, map[string]any{"ip": map[string]any{"key": "k"}}, "status", "allocated")
			},
			want: []string{"undo-c", "undo-a"},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				b.put("web", finalized)
				if test.up != nil {
					_, e := b.flows(&s, true, reconcile.Finalizer(finalizer))
					b.start()
					test.up(b, &s)
					b.settle()
					b.restart(e)
				}
				b.server.ClearFaults()
				s.mu.Lock()
				s.ran, s.fail = nil, nil
				s.mu.Unlock()
				b.change(dying)
				if test.down != nil {
					b.change(test.down)
				}
				_, e := b.flows(&s, true, reconcile.Finalizer(finalizer))
				defer e.Close(context.Background())
				b.start()
				s.want(t, test.reason, test.want...)
				if test.down == nil && b.stored() != nil {
					t.Errorf("the finalizers are still %v", b.stored().Finalizers)
				}
			})
		})
	}
}

// A process whose cache lacks the position of another process reads it from the server.
func TestUndoBehindTheCache(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		b.put("web", func(g *gateway) { g.Finalizers = []string{finalizer} })
		b.change(dying)
		b.server.On(apiserver.Match{Verb: "get", Resource: "gateways", Name: "web", Times: 1},
			apiserver.Before(func(context.Context, apiserver.Request) {
				b.server.HoldEvents(apiserver.Match{Verb: "watch", Resource: "gateways"})
				testbed.Change(t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(u.Object, map[string]any{"flow": "up", "step": "wait", "generation": int64(1)},
						"status", "flow")
				})
			}))
		_, e := b.flows(&s, true, reconcile.Finalizer(finalizer))
		defer e.Close(context.Background())
		b.start()
		s.want(t, "it was parked before c", "undo-a")
	})
}
