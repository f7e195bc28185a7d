package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// soon is far below a minute, the interval of bookmarks, and longer than any wait on a loaded machine.
const soon = 20 * time.Second

// wire counts requests, and can hold the events of watches.
type wire struct {
	next http.RoundTripper

	mu    sync.Mutex
	lists int
	held  chan struct{} // nil: not held
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	watch := r.URL.Query().Get("watch") == "true"
	if r.Method == http.MethodGet && !watch && r.URL.Query().Has("limit") {
		w.mu.Lock()
		w.lists++
		w.mu.Unlock()
	}
	resp, err := w.next.RoundTrip(r)
	if err == nil && watch {
		resp.Body = &heldBody{resp.Body, w, r.Context()}
	}
	return resp, err
}

// WrappedRoundTripper lets callers find and close connections.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.next }

type heldBody struct {
	io.ReadCloser
	w   *wire
	ctx context.Context
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.w.mu.Lock()
	held := b.w.held
	b.w.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.ctx.Done():
		}
	}
	return n, err
}

func (w *wire) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	w.held = held
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(held)
		w.held = nil
	})
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

// bench is a namespace with a cache whose wire the test controls, a client of it, and another client.
type bench struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	wire      *wire
	cache     *store.Cache
	own       *client.Client
	other     *client.Client
}

func setup(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, namespace: env.Namespace(t), wire: &wire{}}
	watched := rest.CopyConfig(env.Config(t))
	watched.Wrap(func(next http.RoundTripper) http.RoundTripper { b.wire.next = next; return b.wire })
	mapper, err := discover.NewMapper(env.Config(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.cache, err = store.NewCache(store.CacheOptions{
		Config: watched, Scheme: scheme.Scheme, Mapper: mapper,
	}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.cache.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	make := func(o client.Options) *client.Client {
		o.Config, o.Mapper = env.Config(t), mapper
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	b.own, b.other = make(client.Options{Cache: b.cache}), make(client.Options{FieldOwner: "other"})
	return b
}

func (b *bench) watch(kind schema.GroupVersionKind, opts ...source.Option) *store.Handle {
	b.t.Helper()
	h, err := b.cache.Open(store.Request{
		Kind: kind, Options: append(opts, source.Namespaces(b.namespace)),
		Unstructured: kind.Group != "",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(h.Release)
	select {
	case <-h.Synced():
	case <-b.ctx.Done():
		b.t.Fatalf("%s is not listed: %v", kind, h.Statuses())
	}
	return h
}

func (b *bench) within(reason string, d time.Duration, fn func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, d)
	defer cancel()
	if err := fn(ctx); err != nil || ctx.Err() != nil {
		b.t.Errorf("%s: %v, %v", reason, err, ctx.Err())
	}
}

func (b *bench) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: name}
}

func (b *bench) secret(name string, typ corev1.SecretType) *corev1.Secret {
	data := map[string][]byte{"username": []byte("u"), "password": []byte("p")}
	return &corev1.Secret{ObjectMeta: b.meta(name), Type: typ, Data: data}
}

func (b *bench) configMap(name, n string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: b.meta(name), Data: map[string]string{"n": n}}
}

var (
	secrets    = corev1.SchemeGroupVersion.WithKind("Secret")
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// Only the server can evaluate the selector of the watch, and no other change follows. A write is still made and read
// at once.
func TestWritesBesideASelectorOfTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.watch(secrets, source.Fields("type=Opaque"))
	in, out := b.secret("in", corev1.SecretTypeOpaque), b.secret("out", corev1.SecretTypeBasicAuth)
	for _, s := range []*corev1.Secret{in, out} {
		b.within("create "+s.Name, soon, func(ctx context.Context) error { return b.own.Create(ctx, s) })
		b.within("modify "+s.Name, soon, func(ctx context.Context) error {
			return client.Modify(ctx, b.own, s, func(s *corev1.Secret) error {
				s.Data["k"] = []byte("v")
				s.Finalizers = []string{"example.com/f"}
				return nil
			})
		})
		b.within("patch "+s.Name, soon, func(ctx context.Context) error {
			return b.own.Patch(ctx, s, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		})
		b.within("delete "+s.Name, soon, func(ctx context.Context) error { return b.own.Delete(ctx, s) })
		r, ok := h.Get(client.KeyOf(s))
		if ok != (s == in) || ok && !r.Deleting() {
			t.Errorf("%s: the store has %v", s.Name, r)
		}
		b.within("free "+s.Name, soon, func(ctx context.Context) error {
			return client.Modify(ctx, b.own, b.secret(s.Name, ""),
				func(s *corev1.Secret) error { s.Finalizers = nil; return nil })
		})
		if r, ok := h.Get(client.KeyOf(s)); ok {
			t.Errorf("%s: the store still has %v", s.Name, r)
		}
	}
	b.within("delete what is left", soon, func(ctx context.Context) error {
		if err := b.own.Create(ctx, b.secret("again", corev1.SecretTypeBasicAuth)); err != nil {
			return err
		}
		return b.own.DeleteCollection(ctx, &corev1.Secret{}, client.Selection{Namespace: b.namespace})
	})
}

// TestBarriersOnQuietWatches has a thousand barriers wait for a write of another client. They share lists, and none
// waits for the bookmark of its watch, which is sent once a minute.
func TestBarriersOnQuietWatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	installCRD(b)
	widgets := schema.GroupVersionKind{Group: "test.fairlead.io", Version: "v1", Kind: "Quiet"}
	for i := range 3 {
		w := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		w.SetGroupVersionKind(widgets)
		w.SetNamespace(b.namespace)
		w.SetName(fmt.Sprint("w", i))
		b.within("create", soon, func(ctx context.Context) error {
			err := b.other.Create(ctx, w)
			// established, but not served yet
			for ; apierrors.IsNotFound(err) && ctx.Err() == nil; err = b.other.Create(ctx, w) {
				<-time.After(50 * time.Millisecond)
			}
			return err
		})
	}
	stores := []*store.Handle{b.watch(configMaps), b.watch(secrets, source.Fields("type=Opaque")), b.watch(widgets)}
	for round := range 2 {
		account := &corev1.ServiceAccount{ObjectMeta: b.meta(fmt.Sprint("account", round))} // without a watch
		if err := b.other.Create(b.ctx, account); err != nil {
			t.Fatal(err)
		}
		for _, h := range stores {
			lists := b.wire.count()
			b.within("wait for version", soon, func(ctx context.Context) error {
				return h.WaitFor(ctx, account.ResourceVersion)
			})
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					b.within("barrier", soon, h.Barrier)
				})
			}
			wg.Wait()
			// A list serves the barriers that began before it, so those that begin during a list share the next one. On a busy
			// machine, the barriers begin over the time of many lists.
			if n := b.wire.count() - lists; n < 1 || n > 500 {
				t.Errorf("%s: %d lists for 1001 waits", h.Options().Resource.Resource, n)
			}
		}
		b.within("the cache as a whole", soon, func(ctx context.Context) error { return b.own.WaitForCache(ctx) })
	}
	made := b.configMap("made", "1")
	if err := b.other.Create(b.ctx, made); err != nil {
		t.Fatal(err)
	}
	b.within("what somebody has written", soon, func(ctx context.Context) error { return b.own.WaitForCache(ctx, made) })
	if _, err := client.Get[corev1.ConfigMap](b.ctx, b.own, client.KeyOf(made)); err != nil {
		t.Error(err)
	}
}

// The client does not rely on a cache that is older than the state that its caller has read.
func TestModifyBehindAnOldCache(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.watch(configMaps)
	for _, name := range []string{"changed", "replaced"} {
		if err := b.own.Create(b.ctx, b.configMap(name, "1")); err != nil {
			t.Fatal(err)
		}
	}
	b.within("the cache", soon, h.Barrier)
	release := b.wire.hold()
	defer release()
	if err := b.other.Delete(b.ctx, b.configMap("replaced", "")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "replaced"} {
		if err := b.other.Create(b.ctx, b.configMap(name, "2")); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Modify(b.ctx, b.other, b.configMap("changed", ""),
		func(cm *corev1.ConfigMap) error { cm.Data["n"] = "2"; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "replaced", "changed"} {
		cm := b.configMap(name, "")
		if err := b.own.Live().Get(b.ctx, client.KeyOf(cm), cm); err != nil {
			t.Fatal(err)
		}
		if err := client.Modify(b.ctx, b.own, cm, func(cm *corev1.ConfigMap) error {
			if cm.Data["n"] != "2" {
				t.Errorf("%s: the function gets %v", name, cm.Data)
			}
			cm.Data["n"] = "1"
			return nil
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := client.Get[corev1.ConfigMap](b.ctx, b.own, client.KeyOf(cm)); err != nil || got.Data["n"] != "1" ||
			got.UID != cm.UID {
			t.Errorf("a read of %s returns %v, %v", name, got, err)
		}
	}
	if err := client.Modify(b.ctx, b.own, b.configMap("none", ""),
		func(*corev1.ConfigMap) error { return nil }); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

func installCRD(b *bench) {
	b.t.Helper()
	c := apiextensions.NewForConfigOrDie(env.Config(b.t)).CustomResourceDefinitions()
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "quiets.test.fairlead.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.fairlead.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "quiets", Singular: "quiet", Kind: "Quiet", ListKind: "QuietList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
	if _, err := c.Create(b.ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		b.t.Fatal(err)
	}
	for {
		got, err := c.Get(b.ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, cond := range got.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.ctx.Done():
			b.t.Fatal("the CRD is not established")
		}
	}
}
