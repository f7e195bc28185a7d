package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Two stores that are moved to the same namespaces remain two stores. A request for namespaces that a store has left
// opens a new one.
func TestSetNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		for _, ns := range []string{"a", "b", "c"} {
			if _, err := server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(kind, meta.RESTScopeNamespace)
		cache, err := store.NewCache(store.CacheOptions{
			Config: server.Config(), Scheme: scheme.Scheme, Mapper: mapper, Linger: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- cache.Run(ctx) }()
		open := func(namespaces ...string) *store.Handle {
			t.Helper()
			h, err := cache.Acquire(kind, source.Namespaces(namespaces...))
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		move := func(h *store.Handle, namespaces ...string) {
			t.Helper()
			if err := h.SetNamespaces(namespaces...); err != nil {
				t.Fatal(err)
			}
		}
		holds := func(h *store.Handle, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for r := range h.Snapshot().All() {
				got = append(got, r.Namespace())
			}
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			for _, st := range h.Statuses() {
				if st.Phase != source.Watching {
					t.Errorf("%q is %s", st.Namespace, st.Phase)
				}
			}
		}
		one, two := open("a", "b"), open("b", "a", "b")
		if one.Store != two.Store {
			t.Error("the same namespaces in another order make another store")
		}
		three := open("c")
		move(one, "c")
		holds(one, "c")
		holds(two, "c")
		holds(three, "c")
		four := open("b", "a")
		if four.Store == one.Store {
			t.Error("a moved store is found at its old namespaces")
		}
		holds(four, "a", "b")
		move(three)
		holds(three, "a", "b", "c")
		for _, h := range []*store.Handle{one, two, three, four} {
			h.Release()
		}
		synctest.Wait()
		if n := server.Log().Open(apiserver.Match{}); n != 0 {
			t.Errorf("%d open requests", n)
		}
		if err := one.SetNamespaces("z"); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after the release: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A namespace that comes back never shows an older state than before, even if a lagging replica answers its first list.
// After a rollback of history it shows the older state once, with an epoch.
func TestANamespaceComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		put := func(value string) uint64 {
			t.Helper()
			_, err := server.Put(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Labels: map[string]string{"v": value}},
			})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return server.Revision()
		}
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(kind, meta.RESTScopeNamespace)
		cache, err := store.NewCache(store.CacheOptions{
			Config: server.Config(), Scheme: scheme.Scheme, Mapper: mapper, Linger: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- cache.Run(ctx) }()
		behind := put("old")
		h, err := cache.Acquire(kind, source.Namespaces("a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		given := h.Subscribe(store.SubscribeOptions{})
		defer given.Close()
		seen := func() (values []string, epochs int) {
			for events := given.Take(100); len(events) > 0; events = given.Take(100) {
				for _, e := range events {
					switch e.Type {
					case store.Added, store.Modified:
						values = append(values, e.Object.Labels().Get("v"))
					case store.Epoch:
						epochs++
					}
				}
			}
			return values, epochs
		}
		leave := func() {
			if err := h.SetNamespaces("b"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			_, _ = seen()
		}
		// comesBack checks the events of a subscriber when the namespace comes back.
		comesBack := func(what string, want []string, epochs int) {
			t.Helper()
			if err := h.SetNamespaces("a", "b"); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
			synctest.Wait()
			values, n := seen()
			if d := cmp.Diff(want, values); d != "" || n != epochs {
				t.Errorf("%s: %d epochs, want %d; %s", what, n, epochs, d)
			}
		}
		put("new")
		leave()
		server.On(apiserver.Match{Namespace: "a", Times: 1}, apiserver.Lagging(behind))
		comesBack("from a replica that lags", []string{"new"}, 0)

		leave()
		if err := server.Rollback(behind); err != nil {
			t.Fatal(err)
		}
		comesBack("after a rollback", []string{"old"}, 2) // one of each namespace
		leave()
		comesBack("again", []string{"old"}, 0)

		h.Release()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
