package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// valve passes or blocks the bytes of watches.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // closed while the valve is open
}

func newValve() *valve {
	v := &valve{open: make(chan struct{})}
	close(v.open)
	return v
}

// shut blocks the watches until the returned function is called.
func (v *valve) shut() (open func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	closed := make(chan struct{})
	v.open = closed
	return sync.OnceFunc(func() { close(closed) })
}

func (v *valve) tap(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	res, err := next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		res.Body = &valved{ReadCloser: res.Body, v: v, ctx: r.Context()}
	}
	return res, err
}

type valved struct {
	io.ReadCloser
	v   *valve
	ctx context.Context
}

func (b *valved) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.v.mu.Lock()
	open := b.v.open
	b.v.mu.Unlock()
	select {
	case <-open:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// overlayBed is a real kube-apiserver and a cache of some kinds in one namespace, whose watches can be blocked. It also
// has a client configuration whose writes are overlaid on the cache.
type overlayBed struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	cache     *store.Cache
	config    *rest.Config
	live      dynamic.Interface
	watches   *valve
}

var (
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	podsOf      = corev1.SchemeGroupVersion.WithResource("pods")
	mapsOf      = corev1.SchemeGroupVersion.WithResource("configmaps")
)

func startOverlayBed(t *testing.T) *overlayBed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	cfg := env.Config(t)
	o := &overlayBed{t: t, ctx: ctx, namespace: env.Namespace(t), watches: newValve()}
	o.live = dynamic.NewForConfigOrDie(cfg)
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	mapper, err := discover.NewMapper(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	watching := disturb.Config(cfg, o.watches.tap)
	if o.cache, err = store.NewCache(store.CacheOptions{Config: watching, Mapper: mapper}); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _ = o.cache.Run(ctx) })
	o.config = rest.CopyConfig(cfg)
	o.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return client.Overlay(next, o.cache, client.OverlayOptions{Timeout: time.Minute})
	})
	return o
}

func (o *overlayBed) open(r store.Request) *store.Handle {
	o.t.Helper()
	h, err := o.cache.Open(r)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(h.Release)
	select {
	case <-h.Synced():
	case <-o.ctx.Done():
		o.t.Fatalf("%s is not synced: %+v", r.Kind, h.Statuses())
	}
	return h
}

// watch opens stores of config maps, pods and deployments of the namespace, for typed readers and for unstructured
// ones. Then it blocks their watches.
func (o *overlayBed) watch() {
	o.t.Helper()
	in := []source.Option{source.Namespaces(o.namespace)}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"),
	} {
		o.open(store.Request{Kind: kind, Options: in})
		o.open(store.Request{Kind: kind, Options: in, Unstructured: true})
	}
	o.t.Cleanup(o.watches.shut())
}

// check compares some objects in every store of a resource with the server.
func (o *overlayBed) check(gvr schema.GroupVersionResource, names ...string) (stale []string) {
	o.t.Helper()
	for _, name := range names {
		live, err := o.live.Resource(gvr).Namespace(o.namespace).Get(o.ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			o.t.Fatal(err)
		}
		want := "absent"
		if err == nil {
			want = live.GetResourceVersion()
		}
		key := store.Key{Namespace: o.namespace, Name: name}
		stores := o.cache.Stores(gvr)
		if len(stores) == 0 {
			o.t.Fatalf("there is no store of %s", gvr)
		}
		for _, st := range stores {
			have := "absent"
			if r, ok := st.Get(key); ok {
				have = r.Version()
				if want == have {
					o.reads(st, r, live)
				}
			}
			if have != want {
				stale = append(stale, fmt.Sprintf("%s %s: the store (%s) shows %s, the server has %s",
					gvr.Resource, name, st.Options().Scope, have, want))
			}
		}
	}
	return stale
}

// reads checks that typed and unstructured readers see the live object.
func (o *overlayBed) reads(st *store.Store, r *store.Record, live *unstructured.Unstructured) {
	o.t.Helper()
	shown := &unstructured.Unstructured{}
	if err := r.DecodeInto(shown); err != nil {
		o.t.Errorf("%s cannot be read: %v", r.Key(), err)
		return
	}
	typed, err := st.Options().Scheme.New(st.Options().Kind)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := r.DecodeInto(typed); err != nil {
		o.t.Errorf("%s cannot be read as %T: %v", r.Key(), typed, err)
	}
	for _, field := range []string{"data", "spec"} {
		if have, want := fmt.Sprint(shown.Object[field]), fmt.Sprint(live.Object[field]); have != want {
			o.t.Errorf("%s of %s is shown as %s, the server has %s", field, r.Key(), have, want)
		}
	}
}

// write is one write of a table, and the object that it changes.
type write struct {
	reason string
	of     schema.GroupVersionResource
	name   string
	do     func() error
	fails  bool
}

// play makes the writes one after the other, and checks the stores after each of them. No read may be stale.
func (o *overlayBed) play(writes []write) {
	o.t.Helper()
	staleReads := 0
	for _, w := range writes {
		if err := w.do(); (err != nil) != w.fails {
			o.t.Fatalf("%s: %v", w.reason, err)
		}
		for _, stale := range o.check(w.of, w.name) {
			staleReads++
			o.t.Errorf("%s: %s", w.reason, stale)
		}
	}
	o.t.Logf("%d of %d writes were followed by a stale read", staleReads, len(writes))
}

func (o *overlayBed) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// configMap returns a ConfigMap with pairs of keys and values.
func (o *overlayBed) configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}}
	if len(data) > 0 {
		cm.Data = map[string]string{}
	}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

func (o *overlayBed) deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: o.pod(name).Spec},
		},
	}
}

const finalizer = "test.fairlead.io/hold"

func mergePatch(text string) (types.PatchType, []byte) { return types.MergePatchType, []byte(text) }
