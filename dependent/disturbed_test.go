package dependent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

var names = []string{"g0", "g1", "g2", "g3"}

// theirs is a foreign ConfigMap that has the name of a child of g3.
const theirs = "g3-second"

// family declares a graph with a node of each sort.
func family() *dependent.Graph[gateway] {
	g := dependent.For[gateway]()
	first := dependent.Add(g, "first", func(_ context.Context, gw *gateway) (*corev1.ConfigMap, error) {
		return configMap(gw.Name+"-first", map[string]string{"size": fmt.Sprint(gw.Spec.Size)}), nil
	}, dependent.Ready(isOpen))
	dependent.Add(g, "second", func(ctx context.Context, gw *gateway) (*corev1.ConfigMap, error) {
		return configMap(gw.Name+"-second", map[string]string{"first": first.Child(ctx).Data["size"]}), nil
	}, dependent.After(first))
	dependent.AddSet(g, "workers", func(_ context.Context, gw *gateway) (all []*corev1.ConfigMap, err error) {
		for i := range gw.Spec.Size {
			all = append(all, configMap(fmt.Sprintf("%s-worker-%d", gw.Name, i), nil))
		}
		return all, nil
	})
	dependent.Add(g, "large", func(_ context.Context, gw *gateway) (*corev1.ConfigMap, error) {
		return configMap(gw.Name+"-large", map[string]string{"a": "1", "b": "2"}), nil
	}, dependent.If(large))
	dependent.Add(g, "there", func(_ context.Context, gw *gateway) (*corev1.ConfigMap, error) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: gw.Name + "-there"}}, nil
	}, dependent.Elsewhere())
	return g
}

// wanted returns the desired ConfigMaps of a gateway, by name.
func wanted(gw *gateway) map[string]map[string]string {
	size := fmt.Sprint(gw.Spec.Size)
	all := map[string]map[string]string{"a/" + gw.Name + "-first": {"size": size}, "b/" + gw.Name + "-there": nil}
	if second := gw.Name + "-second"; second != theirs {
		all["a/"+second] = map[string]string{"first": size}
	}
	for i := range gw.Spec.Size {
		all[fmt.Sprintf("a/%s-worker-%d", gw.Name, i)] = nil
	}
	if large(gw) {
		all["a/"+gw.Name+"-large"] = map[string]string{"a": "1", "b": "2"}
	}
	return all
}

// life is a server, one process after the other, and other writers.
type life struct {
	*bench
	seed uint64
	rnd  *rand.Rand

	mu   sync.Mutex
	sent int
	calm bool
	dead bool
}

// TestDisturbed loses requests and answers, lets other writers change everything, and kills processes. At the end the
// children are as desired, no request is sent, and foreign objects were never written.
func TestDisturbed(t *testing.T) {
	seed.Play(t, 6, func(t *testing.T, s uint64) {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{t: t, server: testbed.Server(t, apiserver.Options{Resources: testbed.Resources()})}
			defer b.server.Close()
			defer b.stop()
			l := &life{bench: b, seed: s, rnd: seed.Rand(s)}
			l.play()
		})
	})
}

func (l *life) play() {
	testbed.Put(l.t, l.server, foreign(theirs, nil))
	for _, name := range names {
		testbed.Put(l.t, l.server, testbed.New("a", name))
	}
	l.process()
	for range 40 {
		l.step()
		l.collect()
		<-time.After(time.Duration(l.rnd.IntN(5000)) * time.Millisecond)
		if l.rnd.IntN(8) == 0 {
			<-time.After(time.Duration(l.rnd.IntN(120)) * time.Second)
		}
	}
	l.quiet()
	for _, name := range names {
		if testbed.Stored(l.server, client.Key{Namespace: "a", Name: name}) == nil {
			testbed.Put(l.t, l.server, testbed.New("a", name))
		}
	}
	<-time.After(time.Hour)
	l.collect()
	<-time.After(time.Hour)
	for _, name := range names {
		l.open(name + "-first")
	}
	<-time.After(time.Hour)
	l.settle()
	l.check()

	l.requests()
	for _, name := range names {
		l.c.Trigger(client.Key{Namespace: "a", Name: name}, "test")
	}
	l.settle()
	l.want("an idle process sends nothing")
	l.end()
}

// process starts a process; the previous one is dead from now on.
func (l *life) process() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.stop()
	l.mu.Lock()
	l.dead = false
	l.mu.Unlock()
	cfg := disturb.Config(l.server.Config(), l.roundTrip)
	l.host = testbed.NewHostWith(l.t, cfg, testbed.Mapper(testbed.Resources()), call.Policy{
		Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond, Budget: &call.Budget{PerSecond: 1000},
	})
	l.engine = newEngine()
	l.c = family().Engine(l.engine).Status(func(gw *gateway, r *dependent.Report) { r.Into(&gw.Status.Conditions) }).
		Controller(l.host, "gateways", reconcile.MaxInterval(-1), reconcile.WithoutEvents())
	l.host.Start(l.t.Context())
}

func (l *life) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	_, child, isChild := strings.Cut(r.URL.Path, "/configmaps/")
	_, gw, isGateway := strings.Cut(r.URL.Path, "/gateways/")
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return nil, disturb.ErrLost
	}
	l.sent++
	nth := l.sent
	fault := disturb.Choose(l.seed, child, gw, nth)
	if l.calm || !isChild && !isGateway {
		fault = disturb.None
	}
	l.mu.Unlock()
	return fault.RoundTrip(r, next, func() {
		if isChild {
			l.touch(child, "touched", fmt.Sprint(nth))
		}
	})
}

func (l *life) quiet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calm = true
}

// touch sets a field of a ConfigMap as another writer would, if it exists.
func (l *life) touch(name, field, value string) {
	if u := l.object(testbed.ConfigMaps, name); u != nil {
		_ = unstructured.SetNestedField(u.Object, value, "data", field)
		_, _ = l.server.Put(u) // it may be deleted meanwhile
	}
}

func (l *life) open(name string) { l.touch(name, "open", "yes") }

// step is one action of another writer.
func (l *life) step() {
	name := names[l.rnd.IntN(len(names))]
	k := client.Key{Namespace: "a", Name: name}
	child := name + []string{"-first", "-second", "-worker-0", "-worker-1", "-large"}[l.rnd.IntN(5)]
	if child == theirs {
		child = "g3-first"
	}
	switch l.rnd.IntN(8) {
	case 0, 1:
		if gw := testbed.Stored(l.server, k); gw != nil {
			gw.TypeMeta = testbed.New("a", name).TypeMeta
			gw.Spec.Size = 1 + l.rnd.IntN(4)
			_, _ = l.server.Put(gw)
		}
	case 2:
		l.touch(child, []string{"size", "first", "a", "b", "free"}[l.rnd.IntN(5)], fmt.Sprint(l.rnd.IntN(3)))
	case 3:
		if l.object(testbed.ConfigMaps, child) != nil {
			_ = l.server.Delete(l.t.Context(), testbed.ConfigMaps, "a", child, metav1.DeleteOptions{})
		}
	case 4:
		l.open(name + "-first")
	case 5:
		l.process()
	case 6:
		if testbed.Stored(l.server, k) != nil {
			_ = l.server.Delete(l.t.Context(), testbed.Gateways, "a", name, metav1.DeleteOptions{})
		} else {
			testbed.Put(l.t, l.server, testbed.New("a", name))
		}
	case 7:
		// A mark of the operator is removed, as a restored backup may do.
		if u := l.object(testbed.ConfigMaps, name+"-first"); u != nil {
			u.SetAnnotations(nil)
			_, _ = l.server.Put(u)
		}
	}
}

// collect deletes the dependents of a deleted gateway, as the garbage collector does.
func (l *life) collect() {
	for _, u := range l.children() {
		owner := metav1.GetControllerOf(u)
		if owner == nil {
			continue
		}
		gw := testbed.Stored(l.server, client.Key{Namespace: "a", Name: owner.Name})
		if gw == nil || gw.UID != owner.UID {
			_ = l.server.Delete(l.t.Context(), testbed.ConfigMaps, u.GetNamespace(), u.GetName(), metav1.DeleteOptions{})
		}
	}
}

// children returns all ConfigMaps, by namespace and name.
func (l *life) children() map[string]*unstructured.Unstructured {
	all := map[string]*unstructured.Unstructured{}
	list, err := l.server.Objects(testbed.ConfigMaps)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, u := range list {
		all[u.GetNamespace()+"/"+u.GetName()] = u
	}
	return all
}

func (l *life) check() {
	l.t.Helper()
	have := l.children()
	for _, name := range names {
		gw := testbed.Stored(l.server, client.Key{Namespace: "a", Name: name})
		for child, data := range wanted(gw) {
			u := have[child]
			if u == nil {
				l.t.Errorf("%s is missing: %v", child, l.c.Failures())
				continue
			}
			got, _, _ := unstructured.NestedStringMap(u.Object, "data")
			for k, v := range data {
				if got[k] != v {
					l.t.Errorf("%s has %s=%s, want %s", child, k, got[k], v)
				}
			}
			delete(have, child)
		}
		ready := gw.Status.Conditions[slices.IndexFunc(gw.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "Ready"
		})]
		if want := name != "g3"; (ready.Status == metav1.ConditionTrue) != want {
			l.t.Errorf("%s says %+v", name, ready)
		}
	}
	l.alone(have)
}

// alone checks that only foreign objects are left, and that these were never written.
func (l *life) alone(have map[string]*unstructured.Unstructured) {
	l.t.Helper()
	if u := have["a/"+theirs]; u == nil || len(u.GetOwnerReferences()) > 0 || len(u.GetAnnotations()) > 0 {
		l.t.Errorf("a foreign object was written: %v", u)
	}
	delete(have, "a/"+theirs)
	for child := range have {
		l.t.Errorf("%s is left", child)
	}
}

// end deletes everything.
func (l *life) end() {
	begun := len(l.server.Log().Requests)
	for _, name := range names {
		l.delete(testbed.Gateways, name)
	}
	<-time.After(time.Hour)
	l.collect()
	l.settle()
	for _, name := range names {
		if testbed.Stored(l.server, client.Key{Namespace: "a", Name: name}) != nil {
			l.t.Errorf("%s is still there: %v", name, l.c.Failures())
		}
	}
	l.alone(l.children())
	first := map[string]int{}
	for i, r := range l.server.Log().Requests[begun:] {
		if r.Verb == "delete" {
			first[r.Name] = i
		}
	}
	for _, name := range names {
		if name+"-second" != theirs && first[name+"-second"] > first[name+"-first"] {
			l.t.Errorf("the children of %s were deleted in the wrong order", name)
		}
	}
}
