package controllerruntime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var kind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func metadataOf(o *metav1.PartialObjectMetadata) client.Object {
	o.SetGroupVersionKind(kind)
	return o
}

func untyped(o *unstructured.Unstructured) client.Object {
	o.SetGroupVersionKind(kind)
	return o
}

// What is read from the cache is what the server has, in each representation.
func TestGet(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.start(t, cache.Options{})
		cm := w.configMap("a", "v", "1")
		cm.Labels = map[string]string{"app": "web"}
		w.create(cm)
		key := client.ObjectKeyFromObject(cm)
		for _, tc := range []struct {
			reason string
			make   func() client.Object
		}{
			{"typed", func() client.Object { return &corev1.ConfigMap{} }},
			{"unstructured", func() client.Object { return untyped(&unstructured.Unstructured{}) }},
			{"metadata", func() client.Object { return metadataOf(&metav1.PartialObjectMetadata{}) }},
		} {
			want, got := tc.make(), tc.make()
			must(t, w.live.Get(w.ctx, key, want))
			w.eventually("it is in the cache, "+tc.reason, func() bool { return w.client.Get(w.ctx, key, got) == nil })
			want.GetObjectKind().SetGroupVersionKind(kind) // which that of a cache does, and a live one does not always
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: the cache has another object than the server (-server +cache):\n%s", tc.reason, diff)
			}
			if len(got.GetManagedFields()) == 0 {
				t.Errorf("%s: managedFields are not kept", tc.reason)
			}
			got.SetLabels(map[string]string{"mine": "changed"})
			must(t, w.client.Get(w.ctx, key, got))
			if got.GetLabels()["app"] != "web" {
				t.Errorf("%s: the cache has handed out its own object", tc.reason)
			}
			if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "b"},
				tc.make()); !apierrors.IsNotFound(err) {
				t.Errorf("%s: what is not there is %v", tc.reason, err)
			}
		}
		if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: "elsewhere", Name: "a"}, cm); err == nil ||
			apierrors.IsNotFound(err) {
			t.Errorf("a namespace that is not watched is %v", err)
		}
	})
}

// names returns what a list has, in order.
func (w *world) names(opts ...client.ListOption) []string {
	w.t.Helper()
	var out corev1.ConfigMapList
	must(w.t, w.cache.List(w.ctx, &out, opts...))
	names := []string{}
	for _, cm := range out.Items {
		names = append(names, cm.Name)
	}
	slices.Sort(names)
	return names
}

func TestList(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.open(t, cache.Options{})
		byValue := func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["v"]} }
		must(t, w.cache.IndexField(w.ctx, &corev1.ConfigMap{}, "v", byValue))
		w.start()
		for _, cm := range []*corev1.ConfigMap{
			w.configMap("a", "v", "x"), w.configMap("b", "v", "y"), w.configMap("c", "v", "x"),
		} {
			cm.Labels = map[string]string{"name": cm.Name}
			w.create(cm)
		}
		w.eventually("all are in the cache", func() bool { return len(w.names()) == 3 })
		must(t, w.cache.IndexField(w.ctx, &corev1.ConfigMap{}, "late", byValue))
		if err := w.cache.IndexField(w.ctx, &corev1.ConfigMap{}, "late", byValue); err == nil {
			t.Error("an index was added twice")
		}
		of, err := labels.Parse("name in (a,b)")
		must(t, err)
		for _, tc := range []struct {
			reason string
			opts   []client.ListOption
			want   []string
		}{
			{"of the namespace", []client.ListOption{client.InNamespace(w.namespace)}, []string{"a", "b", "c"}},
			{"by labels", []client.ListOption{client.MatchingLabelsSelector{Selector: of}}, []string{"a", "b"}},
			{"by a field", []client.ListOption{client.MatchingFields{"v": "x"}}, []string{"a", "c"}},
			{"by a field, in the namespace", []client.ListOption{
				client.MatchingFields{"v": "y"}, client.InNamespace(w.namespace),
			}, []string{"b"}},
			{"by an index that came later", []client.ListOption{client.MatchingFields{"late": "x"}}, []string{"a", "c"}},
			{"by two fields", []client.ListOption{client.MatchingFields{"v": "x", "late": "x"}}, []string{"a", "c"}},
			{"by a value that no object has", []client.ListOption{client.MatchingFields{"v": "z"}}, []string{}},
		} {
			if diff := cmp.Diff(tc.want, w.names(tc.opts...)); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		}
		if got := w.names(client.Limit(2)); len(got) != 2 {
			t.Errorf("a list with a limit of 2 has %v", got)
		}
		for _, tc := range []struct {
			opt  client.ListOption
			says string
		}{
			{client.Continue("x"), "continue list option is not supported"},
			{client.MatchingFields{"unknown": "x"}, "Index with name field:unknown does not exist"},
			{client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("v", "x")}, "non-exact field matches"},
			{client.InNamespace("elsewhere"), "unknown namespace"},
		} {
			if err := w.cache.List(w.ctx, &corev1.ConfigMapList{}, tc.opt); err == nil ||
				!strings.Contains(err.Error(), tc.says) {
				t.Errorf("the list failed with %v, and not because of %q", err, tc.says)
			}
		}
	})
}

func TestMissesStartInformers(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.open(t, cache.Options{})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"}}
		w.create(secret)
		key := client.ObjectKeyFromObject(secret)
		if err := w.cache.Get(w.ctx, key, &corev1.Service{}); !isNotStarted(err) {
			t.Errorf("a read before the start is %v", err)
		}
		w.start()
		must(t, w.cache.Get(w.ctx, key, &corev1.Secret{}))

		in := w.informer(secret)
		must(t, w.cache.RemoveInformer(w.ctx, secret))
		w.eventually("the informer has stopped", in.IsStopped)
		if _, err := in.AddEventHandler(newEvents()); err == nil {
			t.Error("a handler was added to an informer that has stopped")
		}
		again := w.informer(secret)
		if again.IsStopped() || !again.HasSynced() {
			t.Error("the informer that follows one that was removed has not begun")
		}
		must(t, w.cache.Get(w.ctx, key, &corev1.Secret{}))
		w.stop()
		if !again.IsStopped() {
			t.Error("an informer goes on after the cache")
		}
	})
}

func isNotStarted(err error) bool {
	_, ok := err.(*cache.ErrCacheNotStarted)
	return ok
}

func TestReadersMayBeToldThatThereIsNoInformer(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.start(t, cache.Options{ReaderFailOnMissingInformer: true})
		err := w.cache.List(w.ctx, &corev1.SecretList{})
		if _, ok := err.(*cache.ErrResourceNotCached); !ok {
			t.Errorf("a list of what is not watched is %v", err)
		}
	})
}

// Selectors of a kind, and what is shared where no copies are wanted.
func TestByObject(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		namespace, yes := env.Namespace(t), true
		w := p.openAt(t, env.Config(t), namespace, cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{
					namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})},
				},
				UnsafeDisableDeepCopy: &yes,
			},
			&corev1.Secret{}: {Field: fields.ParseSelectorOrDie("metadata.name=a,metadata.namespace=" + namespace)},
		}})
		w.start()
		in, out := w.configMap("in"), w.configMap("out")
		in.Labels = map[string]string{"app": "web"}
		w.create(in, out)
		for _, name := range []string{"a", "b"} {
			w.create(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Data:       map[string][]byte{"x": []byte("y")},
			})
		}
		w.eventually("it is in the cache", func() bool { return len(w.names()) == 1 })
		var a, b corev1.ConfigMap
		must(t, w.cache.Get(w.ctx, client.ObjectKeyFromObject(in), &a))
		must(t, w.cache.Get(w.ctx, client.ObjectKeyFromObject(in), &b))
		a.Labels["shared"] = "yes"
		if b.Labels["shared"] != "yes" {
			t.Error("without deep copies two readers were given two objects")
		}
		var secrets corev1.SecretList
		w.eventually("the secret is there", func() bool {
			must(t, w.cache.List(w.ctx, &secrets))
			return len(secrets.Items) == 1 && secrets.Items[0].Name == "a"
		})
	})
}
