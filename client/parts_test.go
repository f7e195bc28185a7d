package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

var configMapKind = &kind{
	gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), gvr: corev1.SchemeGroupVersion.WithResource("configmaps"),
	namespaced: true,
}

// filledStore returns a store without a watch. It has ConfigMap n/a with uid 1 and version 10.
func filledStore(t *testing.T) *store.Store {
	t.Helper()
	st := store.New(store.Options{
		Resource: configMapKind.gvr, Kind: configMapKind.gvk, Scheme: scheme.Scheme, Namespaced: true,
	})
	t.Cleanup(st.Close)
	st.Sink("")
	const object = `{"apiVersion":"v1","kind":"ConfigMap",` +
		`"metadata":{"namespace":"n","name":"a","uid":"1","resourceVersion":"10"}}`
	if _, err := st.Put(source.JSON, []byte(object)); err != nil {
		t.Fatal(err)
	}
	return st
}

// A mapping is requested once for each kind, and errors are not remembered.
func TestKinds(t *testing.T) {
	t.Parallel()
	mapper := &countingMapper{RESTMapper: meta.NewDefaultRESTMapper(nil)}
	ks := &kinds{scheme: scheme.Scheme, mapper: mapper}
	if _, err := ks.of(&corev1.ConfigMap{}); !meta.IsNoMatchError(err) {
		t.Errorf("a kind without a resource: %v", err)
	}
	mapper.RESTMapper.(*meta.DefaultRESTMapper).Add(configMapKind.gvk, meta.RESTScopeNamespace)
	var got []*kind
	for range 2 {
		k, err := ks.of(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		of, err := ks.ofList(&corev1.ConfigMapList{})
		if err != nil {
			t.Fatal(err)
		}
		typed, err := kindFor[corev1.ConfigMap](ks)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k, of, typed)
	}
	for _, k := range got {
		if k != got[0] || k.gvr != configMapKind.gvr || !k.namespaced {
			t.Errorf("got %+v and %+v", got[0], k)
		}
	}
	if mapper.calls != 2 {
		t.Errorf("%d mappings are requested, want one that fails and one", mapper.calls)
	}
	for _, tc := range []struct {
		kinds *kinds
		obj   Object
		want  error
	}{
		{nil, nil, ErrNotMade},
		{ks, nil, ErrNil},
		{ks, (*corev1.ConfigMap)(nil), ErrNil},
	} {
		if _, err := tc.kinds.of(tc.obj); !errors.Is(err, tc.want) {
			t.Errorf("%v: %v, want %v", tc.obj, err, tc.want)
		}
	}
}

type countingMapper struct {
	meta.RESTMapper
	calls int
}

func (m *countingMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.calls++
	return m.RESTMapper.RESTMapping(gk, versions...)
}

// Reads use the stores of a program before those of a cache.
func TestStores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := filledStore(t)
		s := newStores(nil, []*cache.Store{st})
		if s.empty() || len(s.all()) != 1 || len(s.of(configMapKind)) != 1 || len(s.written(configMapKind.gvr)) != 1 {
			t.Error("the store is missing")
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		if none := newStores(nil, nil); !none.empty() || len(none.all()) != 0 || len(s.written(pods)) != 0 {
			t.Error("there are other stores")
		}
		if r, from, err := s.lookup(configMapKind, Key{Namespace: "n", Name: "a"}, false); err != nil || !from || r == nil {
			t.Errorf("an object: %v, %v, %v", r, from, err)
		}
		// The store has not listed the namespace, so it does not prove absence.
		if r, from, err := s.lookup(configMapKind, Key{Namespace: "n", Name: "b"}, false); err != nil || from || r != nil {
			t.Errorf("an unknown object: %v, %v, %v", r, from, err)
		}
		if _, _, err := s.lookup(configMapKind, Key{Name: "a"}, false); !errors.Is(err, errNoName) {
			t.Errorf("without a namespace: %v", err)
		}
	})
}

// A write does not rely on a cached state that is older than one that the caller has seen.
func TestCachedObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := filledStore(t)
		s := newStores(nil, []*cache.Store{st})
		for _, tc := range []struct {
			reason, uid, version string
			trusted              bool
		}{
			{"the caller has seen nothing", "", "", true},
			{"the same version", "1", "10", true},
			{"an older version", "1", "9", true},
			{"a newer version", "1", "11", false},
			{"another incarnation", "2", "", false},
			{"an opaque version", "1", "x", false},
		} {
			c := cachedObject{stores: &s, k: configMapKind, key: Key{Namespace: "n", Name: "a"}}
			seen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: tc.version}}
			seen.UID = types.UID(tc.uid)
			c.seen[1] = seen
			if got := c.whole() != nil; got != tc.trusted {
				t.Errorf("%s: trusted is %v", tc.reason, got)
			}
			if c.record(false) == nil {
				t.Errorf("%s: the record is missing", tc.reason)
			}
		}
	})
}

// A request needs the permission of the client and of the context.
func TestPermission(t *testing.T) {
	t.Parallel()
	errOuter, errInner, errEnd := errors.New("outer"), errors.New("inner"), errors.New("the end")
	refuse := func(err error) binding.Binding { return binding.Binding{Fence: func() error { return err }} }
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errEnd)
	for _, tc := range []struct {
		reason string
		client binding.Binding
		ctx    context.Context
		want   []error
		not    error
	}{
		{"no binding", binding.Binding{}, t.Context(), nil, ErrFenced},
		{"the client", refuse(errInner), t.Context(), []error{ErrFenced, errInner}, nil},
		{"the context", binding.Binding{}, binding.With(t.Context(), refuse(errOuter)), []error{ErrFenced, errOuter}, nil},
		{"both", refuse(errInner), binding.With(t.Context(), refuse(errOuter)), []error{ErrFenced, errOuter}, errInner},
		{"an ended context", binding.Binding{}, ended, []error{errEnd}, ErrFenced},
	} {
		p := permission{tc.client}
		err := p.fence(tc.ctx)
		if (err != nil) != (tc.want != nil) || tc.not != nil && errors.Is(err, tc.not) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		for _, want := range tc.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", tc.reason, err, want)
			}
		}
		// Each try of a write asks again.
		if again := p.forWrite(tc.ctx, call.Policy{}).Fence(); !errors.Is(again, err) && again.Error() != err.Error() {
			t.Errorf("%s: a try of a write gets %v", tc.reason, again)
		}
	}
}

// Each store with waits has one subscription, and a store without waits has none.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := filledStore(t)
		ws := &waits{}
		add := func(name string) func() { return ws.add(st, Key{Namespace: "n", Name: name}, flow.Waker{}) }
		subscriptions := func() int { return st.Stats().Subscribers }
		removeA, removeB := add("a"), add("b")
		if n := subscriptions(); n != 1 {
			t.Errorf("two waits have %d subscriptions", n)
		}
		removeA()
		removeA() // a second call has no effect
		if n := subscriptions(); n != 1 {
			t.Errorf("one wait has %d subscriptions", n)
		}
		removeB()
		ws.wake(st, Key{Namespace: "n", Name: "b"})
		if n := subscriptions(); n != 0 {
			t.Errorf("no wait has %d subscriptions", n)
		}
		remove := add("a")
		ws.close()
		if n := subscriptions(); n != 0 {
			t.Errorf("after close there are %d subscriptions", n)
		}
		remove()
	})
}

// The memory of applies is bounded, and keeps the latest apply of an object.
func TestApplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := filledStore(t)
		r, ok := st.Get(Key{Namespace: "n", Name: "a"})
		if !ok {
			t.Fatal("the object is missing")
		}
		want := map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "a"}}
		answer := &call.Answer{Raw: []byte(`{"metadata":{"uid":"1"}}`)}
		var a applied
		a.init(2)
		this, _, err := memo(applyKey{kind: configMapKind, key: Key{Namespace: "n", Name: "a"}, owner: "me"}, want)
		if err != nil {
			t.Fatal(err)
		}
		if a.holds(this, r, want) {
			t.Error("an apply that was not made is remembered")
		}
		a.add(this, answer)
		if !a.holds(this, r, want) {
			t.Error("an apply is not remembered")
		}
		more := map[string]any{"kind": "ConfigMap", "data": map[string]any{"k": "v"}}
		if a.holds(this, r, more) {
			t.Error("the object lacks a field of the apply")
		}
		replaced := &call.Answer{Raw: []byte(`{"metadata":{"uid":"2"}}`)}
		a.add(this, replaced)
		if a.holds(this, r, want) {
			t.Error("an apply of another incarnation counts")
		}
		for _, name := range []string{"b", "c", "d"} {
			this.at.key.Name = name
			a.add(this, answer)
		}
		if len(a.memo) != 2 {
			t.Errorf("%d applies are remembered", len(a.memo))
		}
	})
}

// A client that New has not made fails without a panic.
func TestNilParts(t *testing.T) {
	t.Parallel()
	for _, c := range []*Client{nil, {}} {
		errs := []error{
			c.reader().get(t.Context(), Key{}, nil), c.reader().live(t.Context(), Key{}, nil),
			c.reader().list(t.Context(), nil, nil), c.reader().waitForCache(t.Context(), nil),
			c.writer().create(t.Context(), "", nil, nil), c.writer().delete(t.Context(), "", nil, nil),
			c.writer().deleteCollection(t.Context(), nil, Selection{}, nil),
		}
		for i, err := range errs {
			if !errors.Is(err, ErrNotMade) || apierrors.IsNotFound(err) {
				t.Errorf("%d: %v", i, err)
			}
		}
		c.Close()
	}
}

// TestRelisting checks that a store drops objects that the server lacks, also those that only the response names. It
// adds the remaining objects.
func TestRelisting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		left := &unstructured.Unstructured{}
		left.SetGroupVersionKind(configMapKind.gvk)
		left.SetNamespace("n")
		left.SetName("left")
		if _, err := server.Put(left); err != nil {
			t.Fatal(err)
		}
		calls, err := call.New(call.Options{Config: server.Config()})
		if err != nil {
			t.Fatal(err)
		}
		defer calls.Close()
		st := filledStore(t)
		var changed []string
		r := relisting{
			k: configMapKind, namespace: "n", stores: []*cache.Store{st}, calls: calls,
			changed: func(_ *cache.Store, k Key) { changed = append(changed, k.Name) }, log: slog.New(slog.DiscardHandler),
		}
		const answer = `{"kind":"ConfigMapList","items":[{"metadata":{"namespace":"n","name":"named","uid":"2",` +
			`"resourceVersion":"9"}}]}`
		if err := r.run(t.Context(), []byte(answer)); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"a": false, "named": false, "left": true} {
			if _, ok := st.Get(Key{Namespace: "n", Name: name}); ok != want {
				t.Errorf("the store shows %s: %t", name, ok)
			}
		}
		if slices.Sort(changed); !slices.Equal(changed, []string{"a", "named"}) {
			t.Errorf("changes are %q", changed)
		}
		late := `{"apiVersion":"v1","kind":"ConfigMap",` +
			`"metadata":{"namespace":"n","name":"named","uid":"2","resourceVersion":"8"}}`
		if _, err := st.Put(source.JSON, []byte(late)); err != nil {
			t.Fatal(err)
		}
		if _, ok := st.Get(Key{Namespace: "n", Name: "named"}); ok {
			t.Error("a late event brings back an object that the response has named")
		}
		if err := r.run(t.Context(), []byte("{")); err == nil {
			t.Error("a malformed answer is accepted")
		}
	})
}

// TestHeaderOfAnswer checks which responses to a Replace need not be decoded.
func TestHeaderOfAnswer(t *testing.T) {
	t.Parallel()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		UID: "1", ResourceVersion: "10", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	for _, tc := range []struct {
		reason       string
		uid, version string
		want         bool
	}{
		{"the same incarnation", "1", "11", true},
		{"another incarnation", "2", "11", false},
		{"no version", "1", "", false},
	} {
		h := &source.Header{UID: []byte(tc.uid), ResourceVersion: []byte(tc.version), Generation: 3}
		if got := isHeaderOf(h, obj); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
	setHeader(obj, &source.Header{UID: []byte("1"), ResourceVersion: []byte("11"), Generation: 3})
	if obj.ResourceVersion != "11" || obj.Generation != 3 || obj.ManagedFields != nil {
		t.Errorf("the object has %+v", obj.ObjectMeta)
	}
}

// TestDeletedIncarnation checks which incarnation a delete names, and when an earlier try has certainly deleted it.
func TestDeletedIncarnation(t *testing.T) {
	t.Parallel()
	r, _ := filledStore(t).Get(Key{Namespace: "n", Name: "a"})
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "2"}}
	if incarnation(r, obj) != "1" || incarnation(nil, obj) != "2" {
		t.Errorf("with a record %q, without %q", incarnation(r, obj), incarnation(nil, obj))
	}
	absent := apierrors.NewNotFound(configMapKind.gvr.GroupResource(), "a")
	for _, tc := range []struct {
		reason string
		uid    types.UID
		err    error
		want   bool
	}{
		{"the object still exists", "2", nil, false},
		{"a new object has the name", "3", nil, true},
		{"the object is absent", "", absent, true},
		{"the server does not answer", "3", errors.New("no answer"), false},
	} {
		if got := replaced(&metav1.ObjectMeta{UID: tc.uid}, tc.err, "2"); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}
