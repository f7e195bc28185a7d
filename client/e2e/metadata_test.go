package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// tap records the responses of the server as they come over the wire.
type tap struct {
	next http.RoundTripper

	mu    sync.Mutex
	bytes bytes.Buffer
	types map[string]bool
	first url.Values // the parameters of the first list or watch
	lists int
}

func (x *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.next.RoundTrip(r)
	if err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		x.types[media] = true
		if r.URL.Query().Get("watch") == "" {
			x.lists++
		}
		if x.first == nil {
			x.first = r.URL.Query()
		}
		resp.Body = &tappedBody{resp.Body, x}
	}
	return resp, err
}

func (x *tap) WrappedRoundTripper() http.RoundTripper { return x.next }

type tappedBody struct {
	io.ReadCloser
	x *tap
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	b.x.bytes.Write(p[:n])
	return n, err
}

// came returns the number and types of the received bytes, and whether they contain a text.
func (x *tap) came(text string) (n int, types []string, found bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes.Len(), slices.Sorted(maps.Keys(x.types)), bytes.Contains(x.bytes.Bytes(), []byte(text))
}

// asked returns the number of list requests.
func (x *tap) asked() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lists
}

// tapped returns a cache whose responses are recorded, and a client of it.
func (b *bench) tapped(dir string, opts ...source.Option) (*store.Cache, *client.Client, *tap, context.CancelFunc) {
	b.t.Helper()
	x := &tap{types: map[string]bool{}}
	watched := rest.CopyConfig(env.Config(b.t))
	watched.Wrap(func(next http.RoundTripper) http.RoundTripper { x.next = next; return x })
	mapper, err := discover.NewMapper(env.Config(b.t), nil, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	cache, c, end := b.running(store.CacheOptions{
		Config: watched, Scheme: scheme.Scheme, Mapper: mapper, Dir: dir,
		Source: append(opts, source.Namespaces(b.namespace)),
	})
	return cache, c, x, end
}

// running returns a cache that runs until the test ends or end is called, and a client of it.
func (b *bench) running(o store.CacheOptions) (*store.Cache, *client.Client, context.CancelFunc) {
	b.t.Helper()
	cache, err := store.NewCache(o)
	if err != nil {
		b.t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(running) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(end)
	c, err := client.New(client.Options{Config: env.Config(b.t), Mapper: o.Mapper, Scheme: o.Scheme, Cache: cache})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return cache, c, end
}

func (b *bench) open(cache *store.Cache, req store.Request) *store.Handle {
	b.t.Helper()
	h, err := cache.Open(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(h.Release)
	select {
	case <-h.Synced():
	case <-b.ctx.Done():
		b.t.Fatalf("%s is not listed: %v", req.Kind, h.Statuses())
	}
	return h
}

// schemaless returns the definition of a kind that preserves all fields.
func schemaless(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	singular, keep := strings.ToLower(kind.Kind), true
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: singular + "s", Singular: singular, Kind: kind.Kind, ListKind: kind.Kind + "List",
	}
	all := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: all},
			}},
		},
	}
}

const hidden = "correct-horse-battery-staple"

// hiding creates an object whose content is large and must not be received.
func (b *bench) hiding(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	content := strings.Repeat(hidden, 2000)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"content": content}}}
	if kind == secrets {
		u.Object = map[string]any{"stringData": map[string]any{"content": content}}
	}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(b.namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"app": "vault"})
	return u
}

// A store of metadata receives and stores metadata alone, with each kind of request. The test uses a built-in kind and
// a custom one, whose metadata is protobuf, too.
func TestMetadataOfSecrets(t *testing.T) {
	t.Parallel()
	const few = 40_000 // bytes; each object has 56,000
	vaults := schema.GroupVersionKind{Group: "test.fairlead.io", Version: "v1", Kind: "Vault"}
	env.InstallCRDs(t, clustertest.CRDObjects(schemaless(vaults)))
	for name, tc := range map[string]struct {
		kind schema.GroupVersionKind
		opts []source.Option
	}{
		"watch list":           {secrets, nil},
		"pages":                {secrets, []source.Option{source.NoWatchList(), source.PageSize(2)}},
		"custom resources":     {vaults, nil},
		"custom, by pages":     {vaults, []source.Option{source.NoWatchList(), source.PageSize(2)}},
		"one label":            {secrets, []source.Option{source.Labels("app=vault")}},
		"JSON is of no effect": {secrets, []source.Option{source.WithEncoding(source.JSON)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var all []*unstructured.Unstructured
			for i := range 5 {
				u := b.hiding(tc.kind, fmt.Sprint("o", i))
				b.within("create", soon, func(ctx context.Context) error { return b.other.Create(ctx, u) })
				all = append(all, u)
			}
			dir := t.TempDir()
			cache, own, x, end := b.tapped(dir, tc.opts...)
			request := store.Request{Kind: tc.kind, Content: store.Content{Metadata: true}}
			h := b.open(cache, request)
			check := func(step string) {
				t.Helper()
				b.within(step, soon, h.Barrier)
				n, types, found := x.came(hidden[:20])
				if found || n > few || !slices.Equal(types, []string{"application/vnd.kubernetes.protobuf"}) {
					t.Errorf("%s: %d bytes of types %v arrived, with content: %v", step, n, types, found)
				}
				for r := range h.Snapshot().All() {
					if bytes.Contains(r.Raw(), []byte(hidden[:20])) || bytes.Contains(r.Raw(), []byte("managedFields")) {
						t.Errorf("%s: %s is stored as %q", step, r.Key(), r.Raw())
					}
				}
			}
			check("list")
			if h.Len() != 5 || !h.Options().Content.Metadata {
				t.Fatalf("the store has %d objects, and %+v", h.Len(), h.Options().Content)
			}
			key := client.KeyOf(all[0])
			m, err := store.Metadata(h.Store).Get(key)
			if err != nil || m.GroupVersionKind() != tc.kind || m.Labels["app"] != "vault" || m.UID != all[0].GetUID() {
				t.Errorf("got %+v, %v", m, err)
			}
			if _, err := store.Of[corev1.Secret](h.Store).Get(key); !errors.Is(err, store.ErrMetadataOnly) {
				t.Errorf("read as a Secret: %v", err)
			}
			if _, err := store.Unstructured(h.Store).Get(key); !errors.Is(err, store.ErrMetadataOnly) {
				t.Errorf("read unstructured: %v", err)
			}

			// Foreign and own writes, whose responses contain the whole object.
			foreign := all[1].DeepCopy()
			foreign.SetAnnotations(map[string]string{"seen": "yes"})
			b.within("foreign write", soon, func(ctx context.Context) error { return b.other.Update(ctx, foreign) })
			mine := all[2].DeepCopy()
			mine.SetAnnotations(map[string]string{"mine": "yes"})
			b.within("own write", soon, func(ctx context.Context) error { return own.Update(ctx, mine) })
			if m, err = store.Metadata(h.Store).Get(client.KeyOf(mine)); err != nil || m.Annotations["mine"] != "yes" ||
				m.ResourceVersion != mine.GetResourceVersion() {
				t.Errorf("own write is not seen: %+v, %v", m, err)
			}
			fresh := b.hiding(tc.kind, "fresh")
			b.within("own create", soon, func(ctx context.Context) error { return own.Create(ctx, fresh) })
			b.within("own delete", soon, func(ctx context.Context) error { return own.Delete(ctx, all[3]) })
			if _, ok := h.Get(client.KeyOf(fresh)); !ok || h.Len() != 5 {
				t.Errorf("%d objects after a create and a delete, fresh among them: %v", h.Len(), ok)
			}
			check("writes")
			if m, err = store.Metadata(h.Store).Get(client.KeyOf(foreign)); err != nil || m.Annotations["seen"] != "yes" {
				t.Errorf("foreign write is not seen: %+v, %v", m, err)
			}

			// The client reads metadata from the store, and objects from the server.
			meta := &metav1.PartialObjectMetadata{}
			meta.SetGroupVersionKind(tc.kind)
			b.within("get metadata", soon, func(ctx context.Context) error { return own.Get(ctx, key, meta) })
			whole := b.hiding(tc.kind, "")
			b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, key, whole) })
			text, err := whole.MarshalJSON()
			if meta.UID != whole.GetUID() || meta.GroupVersionKind() != tc.kind || err != nil || len(text) < 50_000 {
				t.Errorf("metadata %+v of an object of %d bytes, %v", meta, len(text), err)
			}

			// A restart resumes from the saved metadata.
			h.Release()
			end()
			cache, _, x, _ = b.tapped(dir, tc.opts...)
			h = b.open(cache, request)
			check("restart")
			if first := x.first.Encode(); h.Len() != 5 || !strings.Contains(first, "watch=true") ||
				strings.Contains(first, "sendInitial") {
				t.Errorf("%d objects after a restart that began with %s", h.Len(), first)
			}
		})
	}
}

// A request for metadata shares the store of a request for whole objects. A later request for whole objects has its own
// store. Both show own writes.
func TestMetadataBesideWholeObjects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cache, own, _, _ := b.tapped("")
	metadata := store.Request{Kind: secrets, Content: store.Content{Metadata: true}}
	first := b.open(cache, metadata)
	whole := b.open(cache, store.Request{Kind: secrets})
	if first.Store == whole.Store {
		t.Fatal("whole objects come from a store of metadata")
	}
	if again := b.open(cache, metadata); again.Store != whole.Store {
		t.Error("metadata is watched beside whole objects")
	}
	u := b.hiding(secrets, "a")
	b.within("own create", soon, func(ctx context.Context) error { return own.Create(ctx, u) })
	for _, h := range []*store.Handle{first, whole} {
		r, ok := h.Get(client.KeyOf(u))
		if !ok || r.Version() != u.GetResourceVersion() {
			t.Fatalf("%+v: own write is not seen", h.Options().Content)
		}
		if found := len(r.Raw()) > 50_000; found != (h == whole) {
			t.Errorf("%+v: %d bytes are stored", h.Options().Content, len(r.Raw()))
		}
	}
	var s corev1.Secret
	b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, client.KeyOf(u), &s) })
	if len(s.Data["content"]) < 50_000 {
		t.Errorf("got %d bytes", len(s.Data["content"]))
	}
	b.within("own delete", soon, func(ctx context.Context) error { return own.Delete(ctx, u) })
	for _, h := range []*store.Handle{first, whole} {
		if _, ok := h.Get(client.KeyOf(u)); ok {
			t.Errorf("%+v: own delete is not seen", h.Options().Content)
		}
		b.within("barrier", soon, h.Barrier)
		if h.Len() != 0 {
			t.Errorf("%+v: %d objects are left", h.Options().Content, h.Len())
		}
	}
}
