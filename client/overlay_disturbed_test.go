package client_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestDisturbedOverlay has clientsets of both encodings write at random. A third of their requests fails, watches stop
// and resume, and another client changes the same objects. A read from a store is never older than the last answered
// write. In the end the stores have what the server has.
func TestDisturbedOverlay(t *testing.T) {
	t.Parallel()
	seed.Play(t, 5, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { disturbedOverlay(t, seed) })
	})
}

// disturbedWriter writes a few objects that only another client of the test changes, too.
type disturbedWriter struct {
	c    *cluster
	seed uint64
	name string

	mu    sync.Mutex
	sent  int
	log   []string
	acked map[string]string // by object, the version of the last answered write; "gone" after a delete
}

func (w *disturbedWriter) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	w.mu.Lock()
	w.sent++
	fault := disturb.Choose(w.seed, w.name, w.sent)
	w.log = append(w.log, fmt.Sprintf("%s %s %s %s", w.name, r.Method, r.URL.Path, fault))
	w.mu.Unlock()
	return fault.RoundTrip(r, next, func() {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		_, _ = w.c.server.Change(configMaps, "a", name, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, fmt.Sprint(w.sent), "data", "foreign")
		})
	})
}

// client returns the clientset of the writer, whose requests are disturbed beneath the overlay.
func (w *disturbedWriter) client(media string) configMapsOf {
	return w.c.configMaps(func(cfg *rest.Config) {
		cfg.ContentType = media
		inner := disturb.Config(&rest.Config{}, w.roundTrip).WrapTransport
		outer := cfg.WrapTransport
		cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return outer(inner(next)) }
	})
}

func (w *disturbedWriter) run(t *testing.T, steps int, cms configMapsOf) {
	ctx, choose := w.c.ctx, seed.Rand(w.seed, w.name)
	merge := func(name, text string) (*corev1.ConfigMap, error) {
		return cms.Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	}
	for i := range steps {
		name := fmt.Sprint(w.name, "-", choose.IntN(3))
		obj := configMap(name, "n", fmt.Sprint(i))
		var got *corev1.ConfigMap
		var err error
		op := []string{"create", "update", "patch", "apply", "delete", "finalize", "clear"}[choose.IntN(7)]
		switch op {
		case "create":
			got, err = cms.Create(ctx, obj, metav1.CreateOptions{})
		case "update":
			got, err = cms.Update(ctx, obj, metav1.UpdateOptions{})
		case "patch":
			got, err = merge(name, fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
		case "apply":
			got, err = cms.Apply(ctx, corev1ac.ConfigMap(name, "a").WithData(obj.Data),
				metav1.ApplyOptions{FieldManager: w.name, Force: true})
		case "finalize":
			text := [...]string{`null`, `["test.fairlead.io/hold"]`}[choose.IntN(2)]
			got, err = merge(name, `{"metadata":{"finalizers":`+text+`}}`)
		case "delete":
			err = cms.Delete(ctx, name, metav1.DeleteOptions{})
			if err == nil || apierrors.IsNotFound(err) {
				w.deleted(name)
			}
		case "clear":
			only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
			err = cms.DeleteCollection(ctx, metav1.DeleteOptions{}, only)
			if err == nil {
				w.deleted(name)
			}
		}
		if err == nil && got != nil {
			w.acked[name] = got.ResourceVersion
			if got.DeletionTimestamp != nil && len(got.Finalizers) == 0 {
				w.deleted(name)
			}
		}
		for n := range w.acked {
			w.check(t, op, n)
		}
		if choose.IntN(5) == 0 {
			<-time.After(time.Duration(choose.IntN(300)) * time.Millisecond)
		}
	}
}

// deleted records an answered delete. The store must not show an older state than the server's present one.
func (w *disturbedWriter) deleted(name string) {
	w.acked[name] = "gone"
	if u, err := w.c.server.Object(configMaps, "a", name); err == nil {
		w.acked[name] = u.GetResourceVersion() // the object has finalizers, and no other client writes it now
	}
}

func (w *disturbedWriter) check(t *testing.T, op, name string) {
	for _, st := range w.c.cache.Lookup(configMaps) {
		r, ok := st.Get(key(name))
		acked := w.acked[name]
		have := 0
		if ok {
			have, _ = strconv.Atoi(r.Version())
		}
		want, _ := strconv.Atoi(acked)
		live, err := w.c.server.Object(configMaps, "a", name)
		switch {
		case ok && acked == "gone" && err != nil:
			t.Errorf("FAIRLEAD_SEED=%d: after a %s %s is shown at %s, but is deleted", w.seed, op, name, r.Version())
		case ok && have < want:
			t.Errorf("FAIRLEAD_SEED=%d: after a %s %s is shown at %d, want at least %d", w.seed, op, name, have, want)
		case !ok && acked != "gone" && err == nil && live.GetResourceVersion() == acked:
			t.Errorf("FAIRLEAD_SEED=%d: after a %s %s is not shown, want at least %d", w.seed, op, name, want)
		}
	}
}

func disturbedOverlay(t *testing.T, seed1 uint64) {
	c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
	defer c.close()
	h, err := c.cache.Open(store.Request{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Unstructured: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.stop = append(c.stop, h.Release)
	<-h.Synced()
	var writers, watch sync.WaitGroup
	stop := make(chan struct{})
	watch.Go(func() {
		pauses := seed.Rand(seed1, "watch")
		for {
			hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
			select {
			case <-time.After(time.Duration(pauses.IntN(500)) * time.Millisecond):
			case <-stop:
			}
			hold.Release()
			select {
			case <-time.After(time.Duration(pauses.IntN(100)) * time.Millisecond):
			case <-stop:
				return
			}
		}
	})
	var all []*disturbedWriter
	for i, name := range []string{"one", "two", "three"} {
		w := &disturbedWriter{c: c, seed: seed1, name: name, acked: map[string]string{}}
		all = append(all, w)
		cms := w.client([]string{"application/json", protobufMedia}[i%2])
		writers.Go(func() { w.run(t, 60, cms) })
	}
	writers.Wait()
	close(stop)
	watch.Wait()
	<-time.After(5 * time.Second)
	synctest.Wait()
	for _, st := range c.cache.Lookup(configMaps) {
		shown := map[string]string{}
		for r := range st.Snapshot().All() {
			shown[r.Name()] = r.Version()
		}
		objects, err := c.server.Objects(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range objects {
			if have, want := shown[u.GetName()], u.GetResourceVersion(); have != want {
				t.Errorf("FAIRLEAD_SEED=%d: %s is shown at %q, the server has %s", seed1, u.GetName(), have, want)
			}
			delete(shown, u.GetName())
		}
		if stats := st.OverlayStats(); len(shown) > 0 || stats.Entries > 0 {
			t.Errorf("FAIRLEAD_SEED=%d: at rest %v are shown but deleted, the overlay is %+v", seed1, shown, stats)
		}
	}
	if t.Failed() {
		for _, w := range all {
			t.Log(strings.Join(w.log, "\n"))
		}
	}
}
