package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// steps returns a function that makes a change and compares the names of the objects that were then reconciled.
func (b *bench) steps(t *testing.T) func(reason string, change func(), want ...string) {
	return func(reason string, change func(), want ...string) {
		t.Helper()
		n := b.count()
		change()
		b.settle()
		if got := b.names(n); !slices.Equal(got, want) {
			t.Errorf("%s: %v were reconciled, want %v", reason, got, want)
		}
	}
}

func TestOnly(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(nil, reconcile.MaxInterval(time.Hour), reconcile.Primary(reconcile.Only(reconcile.Added)),
			reconcile.Watches(forData, reconcile.Only(reconcile.Deleted, reconcile.Modified)))
		b.put("one")
		b.start()
		step := b.steps(t)
		b.wantCalls(0, "the object existed before")
		step("an added object", func() { b.put("two") }, "two")
		step("a change", func() {
			testbed.Change(t, b.server, testbed.Gateways, reconcile.Key{Namespace: "a", Name: "two"}, size(7))
		})
		step("an added related object", func() { testbed.Put(t, b.server, configMap("cm", "one")) })
		step("a modified one", func() { testbed.Put(t, b.server, configMap("cm", "two")) }, "one", "two")
		step("a deleted one", func() { _ = b.server.Remove(testbed.ConfigMaps, "a", "cm") }, "two")
		step("the beginning of a deletion", func() {
			u := b.put("three", func(g *gateway) { g.Finalizers = []string{"example.com/other"} })
			b.settle()
			if err := b.server.Delete(b.ctx, testbed.Gateways, "a", u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			b.settle()
			_ = b.server.Remove(testbed.Gateways, "a", "three")
		}, "three", "three")
		step("the interval", func() { time.Sleep(2 * time.Hour) }, "one", "one", "two", "two")
	})
}

func TestAnyOwner(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(nil, reconcile.Owns[corev1.ConfigMap](reconcile.AnyOwner()))
		one, two := b.put("one"), b.put("two")
		b.start()
		owner := func(u *unstructured.Unstructured) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}
		}
		step := b.steps(t)
		cm := configMap("cm")
		step("an object with two owners and none that controls it", func() {
			cm.OwnerReferences = []metav1.OwnerReference{owner(one), owner(two)}
			testbed.Put(t, b.server, cm)
		}, "one", "two")
		step("an owner of another kind", func() {
			other := owner(one)
			other.Kind = "Pod"
			cm.OwnerReferences = []metav1.OwnerReference{other}
			testbed.Put(t, b.server, cm)
		}, "one", "two") // the former owners
		step("no owner any more", func() { _ = b.server.Remove(testbed.ConfigMaps, "a", "cm") })
	})
}

// TestPriorityOfObjects has one worker, which is busy while objects of each priority become ready.
func TestPriorityOfObjects(t *testing.T) {
	bubble(t, func(b *bench) {
		open := make(chan struct{})
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				<-open
			}
			return reconcile.Done, nil
		}, reconcile.Workers(1), reconcile.Priority(func(g *gateway) int { return g.Spec.Size - 10 }))
		b.host.Start(b.ctx)
		b.put("busy")
		b.settle()
		for _, name := range []string{"late-1", "late-2", "plain-1", "plain-2", "urgent-1", "urgent-2"} {
			b.put(name, func(g *gateway) {
				g.Spec.Size = map[string]int{"late": 1, "plain": 10, "urgent": 99}[strings.Split(name, "-")[0]]
			})
			b.settle()
		}
		close(open)
		b.settle()
		var got []string
		for _, c := range b.calls {
			got = append(got, c.key.Name)
		}
		if want := []string{
			"busy", "urgent-1", "urgent-2", "plain-1", "plain-2", "late-1",
			"late-2",
		}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
}

func TestWithDelay(t *testing.T) {
	bubble(t, func(b *bench) {
		var asked []int
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n <= 3 {
				return reconcile.Retry(context.DeadlineExceeded)
			}
			return reconcile.Done, nil
		}, reconcile.WithDelay(func(k reconcile.Key, failures int) time.Duration {
			if k != web {
				t.Errorf("key %s", k)
			}
			asked = append(asked, failures)
			if failures == 2 {
				panic("no delay")
			}
			return time.Duration(failures+1) * 100 * time.Second
		}))
		b.put("web")
		b.start()
		time.Sleep(time.Hour)
		b.settle()
		var at []time.Duration
		for _, c := range b.calls {
			at = append(at, (c.at - b.calls[0].at).Round(time.Second))
		}
		if want := []time.Duration{0, 100 * time.Second, 300 * time.Second}; len(at) != 4 || !slices.Equal(at[:3], want) ||
			at[3] > at[2]+4*time.Second { // the back-off, since the function panics
			t.Errorf("attempts at %v, want %v and one more soon", at, want)
		}
		if !slices.Equal(asked, []int{0, 1, 2}) {
			t.Errorf("called for %v", asked)
		}
	})
}

func TestSetNamespaces(t *testing.T) {
	for _, when := range []string{"before the start", "while it runs"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := b.controller(nil, reconcile.Owns[corev1.ConfigMap](), reconcile.Watches(forData, reconcile.Named("map")))
				in := func(namespace, name string) *gateway {
					g := testbed.New(namespace, name)
					testbed.Put(t, b.server, g)
					return g
				}
				in("a", "one")
				in("b", "two")
				set := func(namespaces ...string) {
					if err := c.SetNamespaces(namespaces...); err != nil {
						t.Error(err)
					}
				}
				step := b.steps(t)
				if when == "before the start" {
					set("b")
					step("the start", func() { b.start() }, "two")
				} else {
					step("the start", func() { b.start() }, "one", "two")
					step("fewer, listed again", func() { set("b") }, "two")
				}
				step("an object elsewhere", func() { in("a", "three") })
				step("an object here", func() { in("b", "four") }, "four")
				step("more", func() { set("a", "b") }, "one", "three")
				step("all, listed again", func() { set() }, "four", "one", "three", "two")
				step("an object in another one", func() { in("c", "five") }, "five")
				if err := c.SetNamespaces("Not_One"); err == nil || !strings.Contains(err.Error(), `invalid namespace "Not_One"`) {
					t.Errorf("error %v", err)
				}
				if n := b.server.Log().Count(apiserver.Match{Verb: "watch", Resource: "configmaps"}); n == 0 {
					t.Error("config maps are not watched")
				}
			})
		})
	}
}

func TestAnyOwnerIsOfOwns(t *testing.T) {
	bubbleOf(t, func(b *bench) {
		reconcile.New[gateway](b.host, "x", noop,
			reconcile.Watches(forData, reconcile.AnyOwner(), reconcile.Only("Sometimes")))
		b.host.Start(b.ctx)
		b.settle()
		err := b.host.Stop()
		for _, want := range []string{"AnyOwner is an option of Owns", `not "Sometimes"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		b.host = b.process()
		b.host.Start(b.ctx)
		_ = b.host.Stop()
	})
}
