package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// podRequest returns a request that needs no mapper.
func podRequest(change func(*Request)) Request {
	r := Request{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: podResource, Namespaced: true}
	change(&r)
	return r
}

func newPlans(opt CacheOptions) *planner {
	opt.Scheme = scheme.Scheme
	p := newPlanner(&opt, nil)
	return &p
}

// TestPlannerAlone: requests for the same objects have equal keys, and others do not.
func TestPlannerAlone(t *testing.T) {
	t.Parallel()
	h, other := source.NewSharding(shard.Layout{}), source.NewSharding(shard.Layout{})
	transform := func(o any) (any, error) { return o, nil }
	with := func(options ...source.Option) func(*Request) { return func(r *Request) { r.Options = options } }
	own := func(r *Request) { r.Content.Transform = transform }
	labels := source.Labels("a=b")
	for reason, c := range map[string]struct {
		opt  CacheOptions
		a, b func(*Request)
		same bool
	}{
		"namespaces in another order": {
			CacheOptions{}, with(source.Namespaces("a", "b")), with(source.Namespaces("b", "a", "b")), true,
		},
		"all namespaces":   {CacheOptions{}, with(), with(source.Namespaces("a", "")), true},
		"other namespaces": {CacheOptions{}, with(source.Namespaces("a")), with(source.Namespaces("b")), false},
		"of a cluster, which has no namespaces": {
			CacheOptions{Source: []source.Option{source.Namespaces("a")}},
			func(r *Request) { r.Namespaced = false },
			func(r *Request) { r.Namespaced, r.Options = false, []source.Option{source.Namespaces("a", "")} }, true,
		},
		"another selector":     {CacheOptions{}, with(), with(labels), false},
		"the selector of all":  {CacheOptions{Source: []source.Option{labels}}, with(), with(labels), true},
		"one sharding":         {CacheOptions{}, with(source.ShardWith(h)), with(source.ShardWith(h)), true},
		"two shardings":        {CacheOptions{}, with(source.ShardWith(h)), with(source.ShardWith(other)), false},
		"a transform for each": {CacheOptions{}, own, own, false},
		"the transform of the kind": {
			CacheOptions{Contents: map[schema.GroupKind]Content{{}: {Transform: transform}}}, with(), with(), true,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			p := newPlans(c.opt)
			a, err := p.plan(podRequest(c.a))
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.plan(podRequest(c.b))
			if err != nil {
				t.Fatal(err)
			}
			if (a.key == b.key) != c.same {
				t.Errorf("keys %+v and %+v", a.key, b.key)
			}
		})
	}
	nameless := podRequest(func(r *Request) { r.Content.Drop = []string{"metadata.name"} })
	if _, err := newPlans(CacheOptions{}).plan(nameless); err == nil {
		t.Error("a field that cannot be dropped is accepted")
	}
	ofCluster := podRequest(func(r *Request) {
		r.Namespaced, r.Options = false, []source.Option{source.Namespaces("a")}
	})
	if _, err := newPlans(CacheOptions{}).plan(ofCluster); err == nil {
		t.Error("a namespace of a kind that has none is accepted")
	}
}

// TestPlansOfMetadata: a request for metadata uses a store of whole objects that exists or is announced.
func TestPlansOfMetadata(t *testing.T) {
	t.Parallel()
	none := func(*plan) (cacheKey, bool) { return cacheKey{}, false }
	has := func(cacheKey) bool { return false }
	metadata := podRequest(func(r *Request) { r.Content.Metadata = true })
	p := newPlans(CacheOptions{})
	of := func() *plan {
		t.Helper()
		out, err := p.plan(metadata)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if k := of().entryKey(none, has); !k.metadata || !k.json {
		t.Errorf("alone: %+v", k)
	}
	exists := cacheKey{resource: podResource, json: true}
	if k := of().entryKey(func(*plan) (cacheKey, bool) { return exists, true }, has); k != exists {
		t.Errorf("beside a store of whole objects: %+v", k)
	}
	p.expect(podRequest(func(r *Request) { r.Unstructured = true }))
	if k := of().entryKey(none, has); k.metadata || !k.json {
		t.Errorf("before an announced store of JSON: %+v", k)
	}
	whole, err := p.plan(podRequest(func(*Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	if k := whole.entryKey(none, has); k.json {
		t.Errorf("a kind with protobuf: %+v", k)
	}
	if k := whole.entryKey(none, func(k cacheKey) bool { return k.json }); !k.json {
		t.Errorf("beside a store of JSON: %+v", k)
	}
}

// watches counts the watches that a catalog starts and stops.
type watches struct{ started, stopped int }

func (w *watches) start(*cacheEntry) context.CancelFunc {
	w.started++
	return func() { w.stopped++ }
}

// TestCatalogAlone: equal plans share a store, which is removed some time after its last user.
func TestCatalogAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c catalog
		var w watches
		c.init(time.Minute)
		p := newPlans(CacheOptions{})
		create := func(key cacheKey, of *plan) (*cacheEntry, error) {
			s := New(Options{Resource: of.req.Resource, Namespaced: true})
			t.Cleanup(s.Close)
			return &cacheEntry{store: s}, nil
		}
		acquire := func(namespaces ...string) *cacheEntry {
			t.Helper()
			in := source.Namespaces(namespaces...)
			of, err := p.plan(podRequest(func(r *Request) { r.Options = []source.Option{in} }))
			if err != nil {
				t.Fatal(err)
			}
			e, err := c.acquire(of, create)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		a := acquire("a")
		if !c.begin(w.start) || c.begin(w.start) || w.started != 1 {
			t.Errorf("%d watches at the start", w.started)
		}
		b := acquire("b")
		if acquire("a") != a || w.started != 2 {
			t.Errorf("%d watches of two sets of namespaces", w.started)
		}
		if got := c.index.all()[podResource]; !slices.Equal(got, []*Store{a.store, b.store}) {
			t.Errorf("found %d stores", len(got))
		}

		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		c.release(a)
		pass(time.Hour)
		if w.stopped != 0 {
			t.Error("a store in use is removed")
		}
		c.release(a)
		pass(time.Minute - 1)
		if acquire("a") != a {
			t.Error("a store is removed too early")
		}
		c.release(a)
		pass(2 * time.Minute)
		if w.stopped != 1 || len(c.index.all()[podResource]) != 1 {
			t.Errorf("%d watches have ended, found %d stores", w.stopped, len(c.index.all()[podResource]))
		}
		if acquire("a") == a {
			t.Error("a removed store is found")
		}

		never, released := func() bool { return false }, func() bool { return true }
		if changed, err := c.rename(b, "b", never); changed || err != nil {
			t.Errorf("the same namespaces: %v, %v", changed, err)
		}
		if changed, err := c.rename(b, "a", never); !changed || err != nil || b.key.moved == 0 {
			t.Errorf("namespaces of another store: %v, %v, %+v", changed, err, b.key)
		}
		for reason, err := range map[string]error{
			"a handle that was released": second(c.rename(b, "c", released)),
			"a removed store":            second(c.rename(a, "c", never)),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", reason, err)
			}
		}
		c.retire(b)
		c.end()
		if w.stopped != 2 {
			t.Errorf("%d watches have ended", w.stopped)
		}
		if _, err := c.acquire(&plan{scheme: scheme.Scheme}, create); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	})
}

func second(_ bool, err error) error { return err }
