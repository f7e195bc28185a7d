package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/store"
)

// with is the peer with options.
func with(o controllerruntime.Options) peer { return peer{"options", o.NewCache, o.NewClient} }

// Stores of somebody else are shared, and run by him.
func TestStoresOfSomebodyElse(t *testing.T) {
	t.Parallel()
	stores, err := store.NewCache(store.CacheOptions{Config: env.Config(t)})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- stores.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	namespace := env.Namespace(t)
	p := with(controllerruntime.Options{Stores: stores})
	one := p.openAt(t, env.Config(t), namespace, cache.Options{})
	two := p.openAt(t, env.Config(t), namespace, cache.Options{})
	for _, w := range []*world{one, two} {
		w.start()
		w.informer(&corev1.ConfigMap{})
	}
	if controllerruntime.Stores(one.cache) != stores || len(stores.Stores(schema.GroupVersionResource{})) != 1 {
		t.Errorf("there are %d stores", len(stores.Stores(schema.GroupVersionResource{})))
	}
	cm := one.configMap("a", "v", "1")
	must(t, one.client.Create(one.ctx, cm))
	if !two.has("a") {
		t.Error("the other cache does not show what was written")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := with(controllerruntime.Options{Registry: registry}).start(t, cache.Options{})
	w.informer(&corev1.ConfigMap{})
	names := func() (out []string) {
		families, err := registry.Gather()
		must(t, err)
		for _, f := range families {
			out = append(out, f.GetName())
		}
		return out
	}
	if !slices.ContainsFunc(names(), func(name string) bool { return strings.HasPrefix(name, "fairlead_store_") }) {
		t.Errorf("what is measured are %v", names())
	}
	w.stop()
	if left := names(); len(left) > 0 {
		t.Errorf("after the end there are %v", left)
	}
}

// A second cache that is to be measured by the same registry says what is wrong.
func TestMeasuredTwice(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	opt := controllerruntime.Options{Registry: registry}
	with(opt).start(t, cache.Options{})
	second, err := opt.NewCache(env.Config(t), cache.Options{})
	must(t, err)
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another cache") {
		t.Errorf("the error is %v", err)
	}
}

// How it is found out what an informer lists is counted as no failed request of the program.
func TestNoRequestHasFailed(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	must(t, err)
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := controllerruntime.NewCache(server.Config(), cache.Options{Mapper: mapper})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	if _, err := c.GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	families, err := metrics.Registry.Gather()
	must(t, err)
	host, err := url.Parse(server.URL())
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["host"] == host.Host && strings.Contains(labels["code"], "error") {
				t.Errorf("%s counts %v", f.GetName(), labels)
			}
		}
	}
	stop()
	must(t, <-ended)
}

// Own writes call handlers, unless they are filtered.
func TestFilterOwnWrites(t *testing.T) {
	t.Parallel()
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprint(filtered), func(t *testing.T) {
			t.Parallel()
			w := with(controllerruntime.Options{FilterOwnWrites: filtered}).start(t, cache.Options{})
			e := newEvents()
			_, err := w.informer(&corev1.ConfigMap{}).AddEventHandler(e)
			must(t, err)
			cm := w.configMap("a", "v", "1")
			must(t, w.client.Create(w.ctx, cm))
			cm.Data["v"] = "2"
			must(t, w.client.Update(w.ctx, cm))
			w.create(w.configMap("foreign", "v", "1"))
			if !filtered {
				w.want(e, "add a 1")
				w.want(e, "update a 1 to a 2")
			}
			w.want(e, "add foreign 1")
		})
	}
}

// What is dropped is nowhere; what is not is as ever.
func TestDrop(t *testing.T) {
	t.Parallel()
	w := with(controllerruntime.Options{
		Drop:              map[schema.GroupKind][]string{{Kind: "ConfigMap"}: {"data"}},
		DropManagedFields: []schema.GroupKind{{Kind: "Secret"}},
	}).start(t, cache.Options{})
	cm := w.configMap("a", "v", "1")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"},
		Data:       map[string][]byte{"v": []byte("1")},
	}
	w.create(cm, secret)
	key := client.ObjectKeyFromObject(cm)
	must(t, w.client.Get(w.ctx, key, cm))
	must(t, w.client.Get(w.ctx, key, secret))
	if len(cm.Data) > 0 || len(cm.ManagedFields) == 0 {
		t.Errorf("the config map is %v", cm)
	}
	only := metadataOf(&metav1.PartialObjectMetadata{})
	must(t, w.client.Get(w.ctx, key, only))
	if len(only.GetManagedFields()) == 0 {
		t.Errorf("the metadata are %v", only)
	}
	if len(secret.Data) == 0 || len(secret.ManagedFields) > 0 {
		t.Errorf("the secret is %v", secret)
	}
	cm.Labels = map[string]string{"a": "b"}
	must(t, w.client.Patch(w.ctx, cm, merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	must(t, w.client.Get(w.ctx, key, cm))
	if len(cm.Data) > 0 || cm.Labels["a"] != "b" {
		t.Errorf("after an own write the config map is %v", cm)
	}
}

// What the cache does not keep whole is not sent whole.
func TestDroppedIsNotLost(t *testing.T) {
	t.Parallel()
	w := with(controllerruntime.Options{
		Drop:              map[schema.GroupKind][]string{{}: {"data", "metadata.annotations[example.com/large]"}},
		DropManagedFields: []schema.GroupKind{{Kind: "Secret"}},
	}).start(t, cache.Options{})
	cm := w.configMap("a", "v", "1")
	cm.Annotations = map[string]string{"example.com/large": "x", "small": "y"}
	w.create(cm, w.configMap("empty"))
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
	must(t, w.client.Get(w.ctx, key, &cached))
	refused("update", all, w.client.Update(w.ctx, &cached))
	untypedMap := untyped(&unstructured.Unstructured{})
	must(t, w.client.Get(w.ctx, key, untypedMap))
	refused("update, unstructured", all, w.client.Update(w.ctx, untypedMap))
	cached.Data = map[string]string{"v": "mine"}
	refused("update that brings a part", all[1:], w.client.Update(w.ctx, &cached))

	cm.Data["v"] = "2" // which was not read from the cache
	must(t, w.client.Update(w.ctx, cm))
	var empty corev1.ConfigMap
	must(t, w.client.Get(w.ctx, client.ObjectKeyFromObject(w.configMap("empty")), &empty))
	must(t, w.client.Update(w.ctx, &empty)) // of which nothing was dropped
	must(t, w.client.Update(w.ctx, w.configMap("a", "v", "3")))

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"}}
	w.create(secret)
	must(t, w.client.Get(w.ctx, key, secret))
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	refused("apply", []string{"metadata.managedFields"},
		w.client.Patch(w.ctx, secret, client.Apply, client.FieldOwner("test"))) //nolint:staticcheck // it is what operators have
}

// A cache of many namespaces begins with one request for each, at once.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	must(t, err)
	t.Cleanup(server.Close)
	const n = 400
	namespaces := map[string]cache.Config{}
	for i := range n {
		namespaces[fmt.Sprintf("team-%d", i)] = cache.Config{}
	}
	gate := apiserver.NewGate() // who were throttled would wait for those that are held
	begins := apiserver.Match{Verb: "watch", Resource: "configmaps"}
	server.On(begins, apiserver.HoldRequest(gate))
	w := ours.openAt(t, server.Config(), "team-0", cache.Options{DefaultNamespaces: namespaces})
	_, err = w.cache.GetInformer(w.ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	must(t, err)
	go func() {
		if gate.Wait(w.ctx, n) != nil {
			t.Error("not all namespaces were asked for")
		}
		gate.Open()
	}()
	w.start()
}
