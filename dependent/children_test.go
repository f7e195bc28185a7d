package dependent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

func large(gw *gateway) bool { return gw.Spec.Size > 1 }

func TestIf(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		first := dependent.Add(g, "first", page, dependent.If(large))
		dependent.Add(g, "second", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("second", nil), nil
		}, dependent.After(first))
		b.run(g)
		if b.configMap("web-page") != nil || b.configMap("second") != nil {
			t.Error("an unwanted child or its successor was created")
		}
		if c := b.condition("Ready"); c.Status != "True" {
			t.Errorf("got %+v", c)
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 2 })
		if b.configMap("web-page") == nil || b.configMap("second") == nil {
			t.Fatal("a wanted child was not created")
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 1 })
		if b.configMap("web-page") != nil || b.configMap("second") != nil {
			t.Error("a child that is no longer wanted was not deleted")
		}
	})
}

// TestARenamedNode: the next version of an operator renames a node, and the child of another node.
func TestARenamedNode(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "before", page)
		dependent.Add(g, "stays", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("old-name", nil), nil
		})
		b.run(g)
		testbed.Put(b.t, b.server, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: "by-hand", OwnerReferences: b.configMap("old-name").OwnerReferences,
			},
		})
		next := dependent.For[gateway]()
		dependent.Add(next, "after", page)
		dependent.Add(next, "stays", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("new-name", nil), nil
		})
		b.run(next)
		if cm := b.configMap("web-page"); cm == nil || cm.Annotations[dependent.AnnotationNode] != "gateways/after" {
			t.Errorf("got %v", cm)
		}
		if b.configMap("old-name") != nil || b.configMap("new-name") == nil {
			t.Error("the child has not been renamed")
		}
		if b.configMap("by-hand") == nil {
			t.Error("a child that another part of the program owns was deleted")
		}
	})
}

func TestASet(t *testing.T) {
	bubble(t, func(b *bench) {
		var broken error
		g := dependent.For[gateway]()
		dependent.AddSet(g, "workers", func(_ context.Context, gw *gateway) (all []*corev1.ConfigMap, err error) {
			for i := range gw.Spec.Size {
				all = append(all, configMap(fmt.Sprintf("worker-%d", i), nil))
			}
			return all, broken
		})
		b.run(g)
		b.spec(func(gw *gateway) { gw.Spec.Size = 20 })
		count := func() (n int) {
			for i := range 30 {
				if b.configMap(fmt.Sprintf("worker-%d", i)) != nil {
					n++
				}
			}
			return n
		}
		if n := count(); n != 20 {
			t.Errorf("got %d workers", n)
		}
		patches := apiserver.Match{Verb: "patch", Resource: "configmaps"}
		if peak := b.server.Log().Peak(patches); peak > 8 {
			t.Errorf("%d were written at a time", peak)
		}
		broken = errors.New("broken")
		b.spec(func(gw *gateway) { gw.Spec.Size = 2 })
		if n := count(); n != 20 {
			t.Errorf("an error has deleted children: %d are left", n)
		}
		if c := b.condition("Dependents"); c.Status != "False" || !strings.Contains(c.Message, "broken") {
			t.Errorf("got %+v", c)
		}
		broken = nil
		b.spec(func(gw *gateway) { gw.Spec.Size = 3 })
		if n := count(); n != 3 {
			t.Errorf("got %d workers", n)
		}
	})
}

func TestAForeignObjectIsNotTaken(t *testing.T) {
	bubble(t, func(b *bench) {
		testbed.Put(b.t, b.server, foreign("web-page", nil))
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page)
		b.run(g)
		if cm := b.configMap("web-page"); cm.Data["size"] != "" || len(cm.OwnerReferences) > 0 {
			t.Fatalf("it was taken: %v", cm)
		}
		if c := b.condition("Ready"); c.Status != "False" || !strings.Contains(c.Message, "the object has another owner") {
			t.Errorf("got %+v", c)
		}
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, dependent.ErrForeign) {
			t.Errorf("got %v", f)
		}

		adopting := dependent.For[gateway]()
		dependent.Add(adopting, "page", page, dependent.Adopt())
		b.run(adopting)
		if cm := b.configMap("web-page"); cm.Data["size"] != "1" || cm.Data["theirs"] != "1" || len(cm.OwnerReferences) != 1 {
			t.Errorf("it was not adopted: %v", cm)
		}
	})
}

func TestChildrenOfOtherControllersAreNotAdopted(t *testing.T) {
	bubble(t, func(b *bench) {
		yes := true
		testbed.Put(b.t, b.server, foreign("web-page", []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: "other", UID: "other", Controller: &yes,
		}}))
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page, dependent.Adopt())
		b.run(g)
		if cm := b.configMap("web-page"); cm.Data["size"] != "" {
			t.Errorf("it was taken: %v", cm)
		}
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, dependent.ErrForeign) {
			t.Errorf("got %v", f)
		}
	})
}

func foreign(name string, owners []metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, OwnerReferences: owners},
		Data:       map[string]string{"theirs": "1"},
	}
}

// TestAForeignObjectInPlaceOfAChild deletes a child and creates a foreign object of its name. The cache does not know
// that object yet when the child is created again.
func TestAForeignObjectInPlaceOfAChild(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page)
		b.run(g)
		var once sync.Once
		b.server.On(apiserver.Match{Verb: "get", Resource: "configmaps", Func: func(apiserver.Request) bool {
			once.Do(func() { testbed.Put(b.t, b.server, foreign("web-page", nil)) })
			return false
		}})
		b.delete(testbed.ConfigMaps, "web-page")
		<-time.After(10 * time.Minute)
		if cm := b.configMap("web-page"); cm == nil || cm.Data["size"] != "" || len(cm.OwnerReferences) > 0 {
			t.Errorf("it was taken: %v", cm)
		}
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, dependent.ErrForeign) {
			t.Errorf("got %v", f)
		}
	})
}

// TestADeletedForeignObject deletes a foreign object with the name of a child. No event tells the controller of its
// end.
func TestADeletedForeignObject(t *testing.T) {
	bubble(t, func(b *bench) {
		old := foreign("web-page", nil)
		old.Finalizers = []string{"example.com/wait"}
		testbed.Put(b.t, b.server, old)
		b.delete(testbed.ConfigMaps, "web-page")
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page, dependent.Adopt())
		b.run(g)
		if cm := b.configMap("web-page"); cm == nil || cm.Data["size"] != "" {
			t.Fatalf("got %v", cm)
		}
		testbed.Change(b.t, b.server, testbed.ConfigMaps, client.Key{Namespace: "a", Name: "web-page"},
			func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
		// It may have been deleted already.
		_ = b.server.Delete(b.t.Context(), testbed.ConfigMaps, "a", "web-page", metav1.DeleteOptions{})
		<-time.After(10 * time.Minute)
		b.settle()
		if cm := b.configMap("web-page"); cm == nil || cm.Data["size"] != "1" {
			t.Errorf("it was not created after the deletion of the foreign object: %v", cm)
		}
	})
}

// TestContention makes another writer change a field back each time.
func TestContention(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page)
		b.run(g)
		b.requests()
		begun := time.Now()
		writes := 0
		for time.Since(begun) < 10*time.Minute {
			if b.configMap("web-page").Data["size"] == "1" {
				b.change("web-page", func(data map[string]string) { data["size"] = "theirs" })
			}
			b.settle()
			for _, r := range b.requests() {
				if r == "patch configmaps" {
					writes++
				}
			}
		}
		if writes > 15 || writes < 6 {
			t.Errorf("%d writes in ten minutes, want some, with back-off", writes)
		}
		if c := b.condition("Dependents"); c.Status != "False" ||
			!strings.Contains(c.Message, "another writer keeps changing") {
			t.Errorf("got %+v", c)
		}
		<-time.After(20 * time.Minute)
		if c := b.condition("Ready"); c.Status != "True" {
			t.Errorf("when the other one has stopped: got %+v", c)
		}
	})
}

func TestAnImmutableChange(t *testing.T) {
	for _, recreate := range []bool{false, true} {
		t.Run(fmt.Sprint(recreate), func(t *testing.T) {
			bubbleOf(t, immutable(), func(b *bench) {
				opts := []dependent.Option{}
				if recreate {
					opts = append(opts, dependent.Recreate())
				}
				g := dependent.For[gateway]()
				dependent.Add(g, "page", page, opts...)
				b.run(g)
				uid := b.configMap("web-page").UID
				b.spec(func(gw *gateway) { gw.Spec.Size = 2 })
				cm := b.configMap("web-page")
				switch {
				case recreate && (cm == nil || cm.UID == uid || cm.Data["size"] != "2"):
					t.Errorf("it was not replaced: %v", cm)
				case !recreate && (cm == nil || cm.UID != uid || cm.Data["size"] != "1"):
					t.Errorf("it was replaced: %v", cm)
				case !recreate:
					if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, dependent.ErrImmutable) {
						t.Errorf("got %v", f)
					}
				}
				b.spec(func(gw *gateway) { gw.Spec.Size = 9 })
				if b.configMap("web-page") == nil {
					t.Error("it was deleted although the API server refuses the new one")
				}
			})
		})
	}
}

// immutable returns resources whose ConfigMaps refuse changes of the size, and the size 9 in any case.
func immutable() []apiserver.Resource {
	size := func(u *unstructured.Unstructured) string {
		s, _, _ := unstructured.NestedString(u.Object, "data", "size")
		return s
	}
	all := testbed.Resources()
	for i := range all {
		if all[i].Resource != "configmaps" {
			continue
		}
		all[i].Validate = func(_ context.Context, obj, old *unstructured.Unstructured) error {
			if old != nil && size(old) != size(obj) {
				return errors.New("size is immutable")
			}
			if size(obj) == "9" {
				return errors.New("9 is not a size")
			}
			return nil
		}
	}
	return all
}

func TestElsewhere(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "there", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "there"}}, nil
		}, dependent.Elsewhere())
		dependent.Add(g, "nowhere", func(context.Context, *gateway) (*corev1.Namespace, error) {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-web"}}, nil
		}, dependent.Elsewhere())
		b.run(g)
		there := b.objectIn(testbed.ConfigMaps, "b", "there")
		ns := b.objectIn(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "of-web")
		if there == nil || ns == nil || there.GetLabels()["fairlead.io/owner"] == "" || len(there.GetOwnerReferences()) > 0 {
			t.Fatalf("got %v and %v", there, ns)
		}
		testbed.Change(b.t, b.server, testbed.ConfigMaps, client.Key{Namespace: "b", Name: "there"},
			func(u *unstructured.Unstructured) { u.SetLabels(nil) })
		b.settle()
		if there = b.objectIn(testbed.ConfigMaps, "b", "there"); there.GetLabels()["fairlead.io/owner"] == "" {
			t.Error("the label was not restored")
		}
		b.delete(testbed.Gateways, "web")
		if there = b.objectIn(testbed.ConfigMaps, "b", "there"); there != nil {
			t.Error("it is left")
		}
	})
}

// TestLabels: the stores hold only the children, one of which is in another namespace.
func TestLabels(t *testing.T) {
	bubble(t, func(b *bench) {
		testbed.Put(b.t, b.server, foreign("not-ours", nil))
		g := dependent.For[gateway]()
		mine := map[string]string{"app": "web"}
		dependent.Add(g, "page", func(ctx context.Context, gw *gateway) (*corev1.ConfigMap, error) {
			cm, err := page(ctx, gw)
			cm.Labels = mine
			return cm, err
		}, dependent.Labels("app=web"))
		dependent.Add(g, "there", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "there", Labels: mine}}, nil
		}, dependent.Labels("app=web"), dependent.Elsewhere(), dependent.If(large))
		dependent.Add(g, "unlabelled", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("unlabelled", nil), nil
		}, dependent.Labels("app=web"), dependent.If(func(gw *gateway) bool { return gw.Spec.Size > 5 }))
		b.run(g)
		if f := b.c.Failures(); len(f) > 0 || b.configMap("web-page") == nil {
			t.Fatalf("got %v", f)
		}
		b.change("web-page", func(data map[string]string) { data["size"] = "7" })
		if cm := b.configMap("web-page"); cm.Data["size"] != "1" {
			t.Errorf("got %v", cm.Data)
		}
		b.requests()
		b.c.Trigger(web, "test")
		b.settle()
		b.want("no request is needed")
		b.spec(func(gw *gateway) { gw.Spec.Size = 2 })
		if b.objectIn(testbed.ConfigMaps, "b", "there") == nil {
			t.Error("nothing is there")
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 1 })
		if b.objectIn(testbed.ConfigMaps, "b", "there") != nil {
			t.Error("it still exists")
		}
		for _, st := range b.host.Cache().Stores(testbed.ConfigMaps) {
			if st.Len() > 2 {
				t.Errorf("%d objects are held", st.Len())
			}
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 6 })
		if f := b.c.Failures(); len(f) != 1 || !strings.Contains(f[0].Err.Error(), unfit) {
			t.Errorf("got %v", f)
		}
	})
}

func TestNoForce(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page, dependent.NoForce())
		b.run(g)
		other := testbed.NewHost(b.t, b.server.Config(), testbed.Mapper(testbed.Resources()))
		mine := configMap("web-page", map[string]string{"size": "8"})
		mine.Namespace = "a"
		if err := other.Client().Apply(b.t.Context(), mine, client.Owner("other"), client.Force()); err != nil {
			t.Fatal(err)
		}
		other.Client().Close()
		b.settle()
		if cm := b.configMap("web-page"); cm.Data["size"] != "8" {
			t.Errorf("the field was changed back: %v", cm.Data)
		}
		if c := b.condition("Dependents"); c.Status != "False" || !strings.Contains(c.Message, "conflict") {
			t.Errorf("got %+v", c)
		}
	})
}

func TestATimeoutIsReported(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page, dependent.Ready(isOpen), dependent.Timeout(time.Minute))
		b.run(g)
		if c := b.condition("Ready"); c.Status != "Unknown" {
			t.Errorf("got %+v", c)
		}
		b.requests()
		<-time.After(2 * time.Minute)
		if c := b.condition("Ready"); c.Status != "False" || !strings.Contains(c.Message, "not ready in time") {
			t.Errorf("got %+v", c)
		}
		<-time.After(2 * time.Hour)
		b.want("one write reports it", "patch gateways/status")
		b.change("web-page", func(data map[string]string) { data["open"] = "yes" })
		if c := b.condition("Ready"); c.Status != "True" {
			t.Errorf("got %+v", c)
		}
	})
}

// unfit is the text of an error about an object that cannot be a child.
const unfit = "the object cannot be a child"

func TestBadDesires(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		desired func(context.Context, *gateway) (*corev1.ConfigMap, error)
		want    string
	}{
		{
			"nil", func(context.Context, *gateway) (*corev1.ConfigMap, error) { return nil, nil },
			"the function returned no object",
		},
		{"no name", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("", nil), nil
		}, unfit},
		{"another namespace", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "x"}}, nil
		}, unfit},
		{"another kind", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			cm := configMap("x", nil)
			cm.APIVersion, cm.Kind = "v1", "Secret"
			return cm, nil
		}, unfit},
		{"an object that was read from the cache", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			cm := configMap("x", nil)
			cm.ResourceVersion = "7"
			return cm, nil
		}, unfit},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				g := dependent.For[gateway]()
				dependent.Add(g, "page", tc.desired)
				dependent.Add(g, "other", page)
				b.run(g)
				if f := b.c.Failures(); len(f) != 1 || !strings.Contains(f[0].Err.Error(), tc.want) ||
					!strings.Contains(f[0].Err.Error(), "page") {
					t.Errorf("got %v", f)
				}
				if b.configMap("web-page") == nil {
					t.Error("the other child was not created")
				}
			})
		})
	}
}

func TestAPanicFailsOnlyItsNode(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "bad", func(context.Context, *gateway) (*corev1.ConfigMap, error) { panic("boom") })
		dependent.Add(g, "other", page)
		b.run(g)
		if f := b.c.Failures(); len(f) != 1 || !strings.Contains(f[0].Err.Error(), "boom") {
			t.Errorf("got %v", f)
		}
		if b.configMap("web-page") == nil {
			t.Error("the other child was not created")
		}
	})
}

func TestMistakesAreReported(t *testing.T) {
	other := dependent.For[gateway]()
	for _, tc := range []struct {
		reason  string
		declare func(g *dependent.Graph[gateway])
		want    string
	}{
		{"no node", func(*dependent.Graph[gateway]) {}, "no node"},
		{"two nodes with the same name", func(g *dependent.Graph[gateway]) {
			dependent.Add(g, "page", page)
			dependent.Add(g, "page", page)
		}, `two nodes have the name "page"`},
		{"a cycle", func(g *dependent.Graph[gateway]) {
			a := dependent.Add(g, "a", page)
			c := dependent.Add(g, "c", page, dependent.After(dependent.Add(g, "b", page, dependent.After(a))))
			a.After(c)
		}, "a, c, b"},
		{"a node of another graph", func(g *dependent.Graph[gateway]) {
			dependent.Add(g, "a", page, dependent.After(dependent.Add(other, "b", page)))
		}, "another graph"},
		{"a nil", func(g *dependent.Graph[gateway]) {
			dependent.Add[gateway, corev1.ConfigMap](g, "a", nil, dependent.After(nil), dependent.Ready[corev1.ConfigMap](nil),
				dependent.If[gateway](nil))
		}, "is nil"},
		{"a condition on another type", func(g *dependent.Graph[gateway]) {
			dependent.Add(g, "a", page, dependent.If(func(*corev1.Pod) bool { return true }))
		}, "takes v1.Pod"},
		{"a judgement of another type", func(g *dependent.Graph[gateway]) {
			dependent.Add(g, "a", page, dependent.Ready(func(*corev1.Pod) bool { return true }))
		}, "takes v1.Pod"},
		{"a generic child without a kind", func(g *dependent.Graph[gateway]) {
			dependent.Add(g, "a", func(context.Context, *gateway) (*unstructured.Unstructured, error) { return nil, nil })
		}, "needs its Kind"},
		{"a bad name", func(g *dependent.Graph[gateway]) { dependent.Add(g, "A b", page) }, `"A b"`},
		{"half an external", func(g *dependent.Graph[gateway]) {
			dependent.AddExternal(g, "a", dependent.External[gateway, string]{})
		}, "are required"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				g := dependent.For[gateway]()
				tc.declare(g)
				b.host = testbed.NewHost(b.t, b.server.Config(), testbed.Mapper(testbed.Resources()))
				b.engine = newEngine()
				g.Engine(b.engine).Controller(b.host, "gateways")
				b.host.Start(b.t.Context())
				b.settle()
				err := b.host.Stop()
				b.host = nil
				if cerr := b.engine.Close(context.Background()); cerr != nil {
					t.Error(cerr)
				}
				if err == nil || !strings.Contains(err.Error(), "invalid graph") || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v", err)
				}
				if n := len(b.server.Log().Requests); n > 0 {
					t.Errorf("%d requests were sent", n)
				}
			})
		})
	}
}
