package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
	}
	if len(data) > 0 {
		cm.Data = map[string]string{"for": data[0]}
	}
	return cm
}

// forData maps a config map to the gateway that its data names.
func forData(cm *corev1.ConfigMap) []reconcile.Key {
	if cm.Data["for"] == "panic" {
		panic("in a map function")
	}
	if cm.Data["for"] == "" {
		return nil
	}
	return []reconcile.Key{{Namespace: cm.Namespace, Name: cm.Data["for"]}}
}

func (b *bench) names(from int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, c := range b.calls[from:] {
		names = append(names, c.key.Name)
	}
	slices.Sort(names)
	return names
}

func TestWatches(t *testing.T) {
	bubble(t, func(b *bench) {
		var log logbook
		b.controller(nil, reconcile.Watches(forData), log.option())
		b.put("one")
		b.put("two")
		testbed.Put(t, b.server, configMap("cm", "one"))
		b.start()
		b.wantCalls(2, "what the first lists show leads to one reconciliation each")
		step := func(reason string, change func(), want ...string) {
			t.Helper()
			n := b.count()
			change()
			b.settle()
			if got := b.names(n); !slices.Equal(got, want) {
				t.Errorf("%s: %v were reconciled, want %v", reason, got, want)
			}
		}
		step("a change", func() {
			testbed.Change(t, b.server, testbed.ConfigMaps, reconcile.Key{Namespace: "a", Name: "cm"}, label("x"))
		}, "one")
		step("both the one that is not referred to any more and the new one",
			func() { testbed.Put(t, b.server, configMap("cm", "two")) }, "one", "two")
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Source != "ConfigMap" || got[0].Key.Name != "cm" {
			t.Errorf("the reasons are %v", got)
		}
		step("a deletion uses the last known state", func() { _ = b.server.Remove(testbed.ConfigMaps, "a", "cm") }, "two")
		step("one that nobody has heard of", func() { testbed.Put(t, b.server, configMap("cm", "nobody")) })
		step("a map function that panics concerns the one event",
			func() { testbed.Put(t, b.server, configMap("bad", "panic")) })
		step("and the others go on", func() { testbed.Put(t, b.server, configMap("good", "one")) }, "one")
		if s := log.String(); !strings.Contains(s, "key=a/bad") {
			t.Errorf("the panic is not reported:\n%s", s)
		}
	})
}

func TestOwns(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, _ int, g *gateway) (reconcile.Result, error) {
			for i := range 3 { // N own writes of a secondary
				cm := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "of-" + g.Name},
					Data:       map[string]string{"n": string(rune('a' + i))},
				}
				if err := reconcile.Own(b.client(), g, cm); err != nil {
					return reconcile.Retry(err)
				}
				if err := b.client().Apply(ctx, cm); err != nil {
					return reconcile.Retry(err)
				}
				back, err := client.Get[corev1.ConfigMap](ctx, b.client(), client.KeyOf(cm))
				if err != nil || back.Data["n"] != cm.Data["n"] {
					t.Errorf("the next read shows %v, %v", back, err)
				}
			}
			return reconcile.Done, nil
		}, reconcile.Owns[corev1.ConfigMap](reconcile.From(cache.Namespaces("a"))))
		b.put("web")
		b.start()
		testbed.Settle(60e9)
		b.wantCalls(1, "own writes of what it owns are echoes")
		made := reconcile.Key{Namespace: "a", Name: "of-web"}
		testbed.Change(t, b.server, testbed.ConfigMaps, made, label("x"))
		b.settle()
		b.wantCalls(2, "somebody else has changed it")
		if err := b.server.Remove(testbed.ConfigMaps, "a", "of-web"); err != nil {
			t.Fatal(err)
		}
		b.settle()
		b.wantCalls(3, "somebody else has deleted it")
		testbed.Put(t, b.server, configMap("stranger"))
		b.settle()
		b.wantCalls(3, "it owns another one not")
	})
}

func TestPredicates(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(nil, reconcile.Primary(
			reconcile.If(func(g *gateway) bool { return g.Labels["l"] != "off" }),
			reconcile.IfSpecChanged(),
			reconcile.IfChanged(func(old, now *gateway) bool { return now.Spec.Size != 13 }),
		))
		b.put("web")
		b.put("out", func(g *gateway) { g.Labels = map[string]string{"l": "off"} })
		b.start()
		b.wantCalls(1, "one of the two")
		b.change(func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(3), "status", "count")
		})
		b.settle()
		b.wantCalls(1, "the status has changed only")
		b.change(size(13))
		b.settle()
		b.wantCalls(1, "the function says no")
		b.change(label("x"))
		b.settle()
		b.wantCalls(1, "the size is still 13")
		b.change(size(14))
		b.settle()
		b.wantCalls(2, "the spec has changed")
		b.change(label("off"))
		b.settle()
		c.Trigger(web, "test")
		b.settle()
		b.wantCalls(2, "it is not among them any more")
		b.change(label("on"))
		b.settle()
		b.wantCalls(3, "it is again")
	})
}

func TestUnstructured(t *testing.T) {
	bubble(t, func(b *bench) {
		calls := 0
		reconcile.New[unstructured.Unstructured](b.host, "widgets",
			reconcile.Func[unstructured.Unstructured](
				func(ctx context.Context, u *unstructured.Unstructured) (reconcile.Result, error) {
					calls++
					return reconcile.Done, client.Modify(ctx, b.client(), u, func(u *unstructured.Unstructured) error {
						u.SetLabels(map[string]string{"seen": "true"})
						return nil
					})
				},
			), reconcile.Primary(reconcile.Kind(apiserver.Widgets().GVK())),
			reconcile.Owns[metav1.PartialObjectMetadata](
				reconcile.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}),
			))
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(apiserver.Widgets().GVK())
		u.SetNamespace("a")
		u.SetName("w")
		w := testbed.Put(t, b.server, u)
		b.start()
		if got, _ := b.server.Object(apiserver.Widgets().GVR(), "a", "w"); calls != 1 || got.GetLabels()["seen"] != "true" {
			t.Errorf("%d calls, labels %v", calls, got.GetLabels())
		}
		cm := configMap("cm")
		cm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w, apiserver.Widgets().GVK())}
		testbed.Put(t, b.server, cm)
		b.settle()
		if calls != 2 {
			t.Errorf("%d calls after a config map of the object was created", calls)
		}
	})
}

// An object may later name another config map. From then on that one is followed, by a selector of the server or by a
// function.
func TestFollowAChangedReference(t *testing.T) {
	for how, opts := range map[string]func(ref string) []reconcile.WatchOption{
		"a function": func(ref string) []reconcile.WatchOption {
			return []reconcile.WatchOption{reconcile.If(func(cm *corev1.ConfigMap) bool { return cm.Name == ref })}
		},
		"a field": func(ref string) []reconcile.WatchOption {
			return []reconcile.WatchOption{reconcile.From(cache.Namespaces("a"), cache.Fields("metadata.name="+ref))}
		},
		"a namespace": func(ref string) []reconcile.WatchOption {
			return []reconcile.WatchOption{reconcile.From(cache.Namespaces(ref))}
		},
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var c *reconcile.Controller
				c = b.controller(func(_ context.Context, _ int, g *gateway) (reconcile.Result, error) {
					return reconcile.Done, reconcile.Follow[corev1.ConfigMap](c, client.KeyOf(g), "ref", opts(g.Spec.Ref)...)
				})
				named := func(ref string) *corev1.ConfigMap {
					cm := configMap(ref)
					if cm.Namespace = "a"; how == "a namespace" {
						cm.Namespace = ref
					}
					return cm
				}
				b.put("web", func(g *gateway) { g.Spec.Ref = "one" })
				b.start()
				b.wantCalls(1, "start")
				testbed.Put(t, b.server, named("one"))
				b.settle()
				b.wantCalls(2, "what it names has come")
				b.change(func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "two", "spec", "ref") })
				b.settle()
				b.wantCalls(3, "it names another one")
				testbed.Put(t, b.server, named("two"))
				b.settle()
				b.wantCalls(4, "that has come")
				one := client.KeyOf(named("one"))
				testbed.Change(t, b.server, testbed.ConfigMaps, one, label("x"))
				b.settle()
				calls := b.count() // a filter function also notices that the object does not match any more
				if calls > 5 || how != "a function" && calls > 4 {
					t.Errorf("%d calls after a change of the former config map", calls)
				}
				testbed.Change(t, b.server, testbed.ConfigMaps, one, label("y"))
				b.settle()
				b.wantCalls(calls, "what it names no more has changed again")
				testbed.Change(t, b.server, testbed.ConfigMaps, client.KeyOf(named("two")), label("x"))
				b.settle()
				b.wantCalls(calls+1, "what it names has changed")
				testbed.Settle(60e9)
				if n := b.server.Log().Open(apiserver.Match{Verb: "watch", Resource: "configmaps"}); n != 1 {
					t.Errorf("%d watches, want one", n)
				}
			})
		})
	}
}

func TestFollow(t *testing.T) {
	bubble(t, func(b *bench) {
		var c *reconcile.Controller
		c = b.controller(func(_ context.Context, _ int, g *gateway) (reconcile.Result, error) {
			return reconcile.Done, reconcile.Follow[corev1.ConfigMap](c, client.KeyOf(g), "ref",
				reconcile.From(cache.Namespaces("b")),
				reconcile.If(func(cm *corev1.ConfigMap) bool { return cm.Name == g.Spec.Ref }))
		})
		if err := reconcile.Follow[corev1.ConfigMap](c, web, "early"); err == nil {
			t.Error("a source was added before the start")
		}
		b.put("web", func(g *gateway) { g.Spec.Ref = "cm" })
		other := func(name string) *corev1.ConfigMap { cm := configMap(name); cm.Namespace = "b"; return cm }
		b.start()
		b.wantCalls(1, "start")
		testbed.Put(t, b.server, other("cm"))
		testbed.Put(t, b.server, other("unrelated"))
		b.settle()
		b.wantCalls(2, "what it follows has come")
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Source != "ref" || got[0].Key.Namespace != "b" {
			t.Errorf("the reasons are %v", got)
		}
		c.Unfollow(web, "ref")
		testbed.Change(t, b.server, testbed.ConfigMaps, reconcile.Key{Namespace: "b", Name: "cm"}, label("x"))
		b.settle()
		b.wantCalls(2, "it follows no more")
		b.change(size(2))
		b.settle()
		b.wantCalls(3, "it follows again")
		if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		testbed.Settle(60e9)
		if n := b.server.Log().Open(apiserver.Match{Verb: "watch", Resource: "configmaps"}); n != 0 {
			t.Errorf("%d watches of a deleted object are left", n)
		}
	})
}
