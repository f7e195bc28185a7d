package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// childOf returns the child of a gateway, which does not exist yet.
func (b *bench) childOf(g *gateway) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "child"}}
	if err := reconcile.Own(b.client(), g, cm); err != nil {
		b.t.Error(err)
	}
	return cm
}

// slowAnswer delays a response after the server has executed the request.
func slowAnswer(d time.Duration) apiserver.Fault {
	return apiserver.After(func(context.Context, apiserver.Request) { <-time.After(d) })
}

var child = reconcile.Key{Namespace: "a", Name: "child"}

// TestOwnDeletes counts reconciliations after a child was deleted by its reconciler or by another client.
func TestOwnDeletes(t *testing.T) {
	for _, tc := range []struct {
		reason string
		kept   bool // the child has a finalizer
		first  func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error
		then   func(b *bench) // after the first reconciliation
		want   int
	}{
		{
			reason: "an own delete of a child is an echo",
			first:  func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error { return b.client().Delete(ctx, cm) },
			want:   1,
		},
		{
			reason: "an own delete whose event arrives before its answer",
			first: func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error {
				b.server.On(apiserver.Match{Verb: "delete", Times: 1}, slowAnswer(time.Second))
				return b.client().Delete(ctx, cm)
			},
			want: 1,
		},
		{
			reason: "an own delete and an own creation",
			first: func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error {
				if err := b.client().Delete(ctx, cm); err != nil {
					return err
				}
				return b.client().Create(ctx, b.childOf(b.last().obj))
			},
			want: 1,
		},
		{
			reason: "a child that the same reconciliation has created",
			first: func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error {
				if err := b.client().Delete(ctx, cm); err != nil {
					return err
				}
				again := b.childOf(b.last().obj)
				if err := b.client().Create(ctx, again); err != nil {
					return err
				}
				return b.client().Delete(ctx, again)
			},
			want: 1,
		},
		{
			reason: "another client deletes first",
			first: func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error {
				if err := b.server.Remove(testbed.ConfigMaps, "a", "child"); err != nil {
					return err
				}
				if err := b.client().Delete(ctx, cm); !apierrors.IsNotFound(err) {
					return fmt.Errorf("the delete returned %w", err)
				}
				return nil
			},
			want: 2,
		},
		{
			reason: "another client changes the child before the own delete",
			first: func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error {
				testbed.Change(b.t, b.server, testbed.ConfigMaps, child, label("foreign"))
				return b.client().Delete(ctx, cm)
			},
			want: 2,
		},
		{
			reason: "another client creates the child again",
			first:  func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error { return b.client().Delete(ctx, cm) },
			then: func(b *bench) {
				again := b.childOf(b.last().obj)
				again.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
				testbed.Put(b.t, b.server, again)
			},
			want: 2,
		},
		{
			reason: "another context",
			first: func(_ context.Context, b *bench, cm *corev1.ConfigMap) error {
				return b.client().Delete(context.Background(), cm)
			},
			want: 2,
		},
		{
			reason: "a child with a finalizer of another client: its deletion begins and completes",
			kept:   true,
			first:  func(ctx context.Context, b *bench, cm *corev1.ConfigMap) error { return b.client().Delete(ctx, cm) },
			then: func(b *bench) {
				testbed.Change(b.t, b.server, testbed.ConfigMaps, child, func(u *unstructured.Unstructured) {
					u.SetFinalizers(nil)
				})
			},
			want: 3,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.put("web")
				b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
					if n > 1 {
						return reconcile.Done, nil
					}
					cm, err := client.Get[corev1.ConfigMap](ctx, b.client(), child)
					if err != nil {
						return reconcile.Retry(err)
					}
					return reconcile.Retry(tc.first(ctx, b, cm))
				}, reconcile.Owns[corev1.ConfigMap]())
				g := testbed.New("a", "web")
				g.UID = testbed.Stored(b.server, web).UID
				cm := b.childOf(g)
				cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
				if tc.kept {
					cm.Finalizers = []string{"example.com/other"}
				}
				testbed.Put(t, b.server, cm)
				b.start()
				if tc.then != nil {
					tc.then(b)
					b.settle()
				}
				b.wantCalls(tc.want, tc.reason)
			})
		})
	}
}

// TestNoForeignChangeOfAChildIsSwallowed makes random changes to a child and faults of the watch. The reconciler has
// seen the child's final state. It saw it when the last call began, in its last own write, or as NotFound from a
// delete.
func TestNoForeignChangeOfAChildIsSwallowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		foreign := steps(rt, "foreign", 10, "change", "change", "delete", "create", "hold", "release", "drop", "compact")
		var own [][]step // by call
		for i := range 5 {
			own = append(own, steps(rt, fmt.Sprint("own ", i, " "), 5, "create", "change", "delete", "delete", "slow"))
		}
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = swallowedOfChild(t, foreign, own) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func swallowedOfChild(t *testing.T, foreign []step, own [][]step) string {
	b := &bench{t: t, ctx: t.Context(), server: testbed.Server(t, apiserver.Options{})}
	defer b.server.Close()
	b.host = b.process()
	defer func() {
		if err := b.host.Stop(); err != nil {
			t.Errorf("the host failed: %v", err)
		}
	}()
	state := func() string { // the state that other clients may change
		u, err := b.server.Object(testbed.ConfigMaps, child.Namespace, child.Name)
		if err != nil {
			return "absent"
		}
		return fmt.Sprint(u.GetUID(), u.GetLabels())
	}
	var seen, left atomic.Value // the state at the start of the last reconciliation, and after the last own write
	made := func(err error) {
		if err == nil {
			left.Store(state())
		}
	}
	b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
		seen.Store(state())
		if n > len(own) {
			return reconcile.Done, nil
		}
		for _, s := range own[n-1] {
			<-time.After(s.after)
			cm := b.childOf(g)
			switch s.kind {
			case "create":
				made(b.client().Create(ctx, cm)) // the child may exist
			case "change":
				_ = client.Modify(ctx, b.client(), cm, func(cm *corev1.ConfigMap) error {
					metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "own", fmt.Sprint(n, time.Now().UnixNano()))
					return nil
				})
			case "delete":
				err := b.client().Delete(ctx, cm)
				if made(err); apierrors.IsNotFound(err) { // others have deleted the child, and the response has reported it
					left.Store("absent")
				}
			case "slow":
				b.server.On(apiserver.Match{Verb: "delete", Times: 1}, slowAnswer(3*time.Millisecond))
			}
		}
		return reconcile.Done, nil
	}, reconcile.Owns[corev1.ConfigMap]())
	b.put("web")
	owner := testbed.Stored(b.server, web)
	put := func(i int) {
		cm := b.childOf(owner)
		cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		cm.Labels = map[string]string{"l": fmt.Sprint(i)}
		testbed.Put(t, b.server, cm)
	}
	b.host.Start(b.ctx)
	var holds []*apiserver.Hold
	release := func() {
		for _, h := range holds {
			h.Release()
		}
		holds = nil
	}
	for i, s := range foreign {
		<-time.After(s.after)
		switch s.kind {
		case "hold":
			holds = append(holds, b.server.HoldEvents(apiserver.Match{Resource: "configmaps"}))
		case "release":
			release()
		case "drop":
			b.server.DropConnections()
		case "compact":
			b.server.Compact(0)
		case "delete":
			_ = b.server.Remove(testbed.ConfigMaps, "a", "child") // the child may be absent
		case "create", "change":
			put(i)
		}
	}
	release()
	testbed.Settle(30 * time.Minute)
	synctest.Wait()
	if n := b.count(); n > 2*len(foreign)+5*len(own)+5 {
		return fmt.Sprintf("%d reconciliations", n)
	}
	if now := state(); seen.Load() != now && left.Load() != now {
		return fmt.Sprintf("the last of %d reconciliations began with %v, and others have left %s",
			b.count(), seen.Load(), now)
	}
	return ""
}
