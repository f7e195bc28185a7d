package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestSharedStores uses stores that the caller owns and runs.
func TestSharedStores(t *testing.T) {
	t.Parallel()
	stores, err := store.NewCache(store.CacheOptions{Config: env.Config(t)})
	peer.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- stores.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		peer.Must(t, <-ended)
	})
	namespace := env.Namespace(t)
	p := peer.With(controllerruntime.Options{Stores: stores})
	one := p.Open(t, env.Config(t), namespace, cache.Options{})
	two := p.Open(t, env.Config(t), namespace, cache.Options{})
	for _, w := range []*peer.World{one, two} {
		w.Start()
		w.Informer(&corev1.ConfigMap{})
	}
	if controllerruntime.Stores(one.Cache) != stores || len(stores.Stores(schema.GroupVersionResource{})) != 1 {
		t.Errorf("there are %d stores", len(stores.Stores(schema.GroupVersionResource{})))
	}
	cm := one.ConfigMap("a", "v", "1")
	peer.Must(t, one.Client.Create(one.Ctx, cm))
	if !two.Has("a") {
		t.Error("the other cache does not show the write")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := start(t, peer.With(controllerruntime.Options{Registry: registry}), cache.Options{})
	w.Informer(&corev1.ConfigMap{})
	names := func() (out []string) {
		families, err := registry.Gather()
		peer.Must(t, err)
		for _, f := range families {
			out = append(out, f.GetName())
		}
		return out
	}
	if !slices.ContainsFunc(names(), func(name string) bool { return strings.HasPrefix(name, "fairlead_store_") }) {
		t.Errorf("the metrics are %v", names())
	}
	w.Stop()
	if left := names(); len(left) > 0 {
		t.Errorf("after the end there are %v", left)
	}
}

// A second cache with the same metrics registry is refused with the reason.
func TestMeasuredTwice(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	opt := controllerruntime.Options{Registry: registry}
	start(t, peer.With(opt), cache.Options{})
	second, err := opt.NewCache(env.Config(t), cache.Options{})
	peer.Must(t, err)
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another cache") {
		t.Errorf("the error is %v", err)
	}
}

// Own writes call handlers, unless they are filtered.
func TestFilterOwnWrites(t *testing.T) {
	t.Parallel()
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprint(filtered), func(t *testing.T) {
			t.Parallel()
			w := start(t, peer.With(controllerruntime.Options{FilterOwnWrites: filtered}), cache.Options{})
			e := peer.NewEvents()
			_, err := w.Informer(&corev1.ConfigMap{}).AddEventHandler(e)
			peer.Must(t, err)
			cm := w.ConfigMap("a", "v", "1")
			peer.Must(t, w.Client.Create(w.Ctx, cm))
			cm.Data["v"] = "2"
			peer.Must(t, w.Client.Update(w.Ctx, cm))
			w.Create(w.ConfigMap("foreign", "v", "1"))
			if !filtered {
				w.Want(e, "add a 1")
				w.Want(e, "update a 1 to a 2")
			}
			w.Want(e, "add foreign 1")
		})
	}
}

// Dropped fields appear nowhere, and other fields are unchanged.
func TestDrop(t *testing.T) {
	t.Parallel()
	w := start(t, peer.With(controllerruntime.Options{
		Drop:              map[schema.GroupKind][]string{{Kind: "ConfigMap"}: {"data"}},
		DropManagedFields: []schema.GroupKind{{Kind: "Secret"}},
	}), cache.Options{})
	cm := w.ConfigMap("a", "v", "1")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a"},
		Data:       map[string][]byte{"v": []byte("1")},
	}
	w.Create(cm, secret)
	key := client.ObjectKeyFromObject(cm)
	peer.Must(t, w.Client.Get(w.Ctx, key, cm))
	peer.Must(t, w.Client.Get(w.Ctx, key, secret))
	if len(cm.Data) > 0 || len(cm.ManagedFields) == 0 {
		t.Errorf("the config map is %v", cm)
	}
	only := metadataOf(&metav1.PartialObjectMetadata{})
	peer.Must(t, w.Client.Get(w.Ctx, key, only))
	if len(only.GetManagedFields()) == 0 {
		t.Errorf("the metadata are %v", only)
	}
	if len(secret.Data) == 0 || len(secret.ManagedFields) > 0 {
		t.Errorf("the secret is %v", secret)
	}
	cm.Labels = map[string]string{"a": "b"}
	peer.Must(t, w.Client.Patch(w.Ctx, cm, merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	peer.Must(t, w.Client.Get(w.Ctx, key, cm))
	if len(cm.Data) > 0 || cm.Labels["a"] != "b" {
		t.Errorf("after an own write the config map is %v", cm)
	}
}

// An object whose fields were dropped cannot be updated, so that the fields are not lost.
func TestDroppedIsNotLost(t *testing.T) {
	t.Parallel()
	w := start(t, peer.With(controllerruntime.Options{
		Drop:              map[schema.GroupKind][]string{{}: {"data", "metadata.annotations[example.com/large]"}},
		DropManagedFields: []schema.GroupKind{{Kind: "Secret"}},
	}), cache.Options{})
	cm := w.ConfigMap("a", "v", "1")
	cm.Annotations = map[string]string{"example.com/large": "x", "small": "y"}
	w.Create(cm, w.ConfigMap("empty"))
	refused := func(reason string, want []string, err error) {
		t.Helper()
		dropped := (*controllerruntime.DroppedError)(nil)
		if !errors.As(err, &dropped) || !slices.Equal(dropped.Paths, want) {
			t.Errorf("%s: the error is %v", reason, err)
		}
	}
	all := []string{"data", "metadata.annotations[example.com/large]"}
	var cached corev1.ConfigMap
	key := client.ObjectKeyFromObject(cm)
	peer.Must(t, w.Client.Get(w.Ctx, key, &cached))
	refused("update", all, w.Client.Update(w.Ctx, &cached))
	untypedMap := untyped(&unstructured.Unstructured{})
	peer.Must(t, w.Client.Get(w.Ctx, key, untypedMap))
	refused("update, unstructured", all, w.Client.Update(w.Ctx, untypedMap))
	cached.Data = map[string]string{"v": "mine"}
	refused("update with a part of the dropped fields", all[1:], w.Client.Update(w.Ctx, &cached))

	cm.Data["v"] = "2" // it was not read from the cache
	peer.Must(t, w.Client.Update(w.Ctx, cm))
	var empty corev1.ConfigMap
	peer.Must(t, w.Client.Get(w.Ctx, client.ObjectKeyFromObject(w.ConfigMap("empty")), &empty))
	peer.Must(t, w.Client.Update(w.Ctx, &empty)) // nothing of it was dropped
	peer.Must(t, w.Client.Update(w.Ctx, w.ConfigMap("a", "v", "3")))

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a"}}
	w.Create(secret)
	peer.Must(t, w.Client.Get(w.Ctx, key, secret))
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	refused("apply", []string{"metadata.managedFields"},
		w.Client.Patch(w.Ctx, secret, client.Apply, client.FieldOwner("test"))) //nolint:staticcheck // as operators do
}
