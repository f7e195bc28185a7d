package e2e_test

import (
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

	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
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

// Reads from the cache return the objects of the server, in each representation.
func TestGet(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := start(t, p, cache.Options{})
		cm := w.ConfigMap("a", "v", "1")
		cm.Labels = map[string]string{"app": "web"}
		w.Create(cm)
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
			peer.Must(t, w.Live.Get(w.Ctx, key, want))
			w.Eventually("it is in the cache, "+tc.reason, func() bool { return w.Client.Get(w.Ctx, key, got) == nil })
			want.GetObjectKind().SetGroupVersionKind(kind) // the cache sets the kind, and a live read does not always
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: the cache has another object than the server (-server +cache):\n%s", tc.reason, diff)
			}
			if len(got.GetManagedFields()) == 0 {
				t.Errorf("%s: managedFields are not kept", tc.reason)
			}
			got.SetLabels(map[string]string{"mine": "changed"})
			peer.Must(t, w.Client.Get(w.Ctx, key, got))
			if got.GetLabels()["app"] != "web" {
				t.Errorf("%s: the cache has returned its own object", tc.reason)
			}
			if err := w.Client.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "b"},
				tc.make()); !apierrors.IsNotFound(err) {
				t.Errorf("%s: a missing object is %v", tc.reason, err)
			}
		}
		if err := w.Client.Get(w.Ctx, client.ObjectKey{Namespace: "elsewhere", Name: "a"}, cm); err == nil ||
			apierrors.IsNotFound(err) {
			t.Errorf("a read of a namespace that is not watched: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := open(t, p, cache.Options{})
		byValue := func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["v"]} }
		peer.Must(t, w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "v", byValue))
		w.Start()
		for _, cm := range []*corev1.ConfigMap{
			w.ConfigMap("a", "v", "x"), w.ConfigMap("b", "v", "y"), w.ConfigMap("c", "v", "x"),
		} {
			cm.Labels = map[string]string{"name": cm.Name}
			w.Create(cm)
		}
		w.Eventually("all are in the cache", func() bool { return len(w.Names()) == 3 })
		peer.Must(t, w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "late", byValue))
		if err := w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "late", byValue); err == nil {
			t.Error("an index was added twice")
		}
		of, err := labels.Parse("name in (a,b)")
		peer.Must(t, err)
		for _, tc := range []struct {
			reason string
			opts   []client.ListOption
			want   []string
		}{
			{"of the namespace", []client.ListOption{client.InNamespace(w.Namespace)}, []string{"a", "b", "c"}},
			{"by labels", []client.ListOption{client.MatchingLabelsSelector{Selector: of}}, []string{"a", "b"}},
			{"by a field", []client.ListOption{client.MatchingFields{"v": "x"}}, []string{"a", "c"}},
			{"by a field, in the namespace", []client.ListOption{
				client.MatchingFields{"v": "y"}, client.InNamespace(w.Namespace),
			}, []string{"b"}},
			{"by an index that was added later", []client.ListOption{client.MatchingFields{"late": "x"}}, []string{"a", "c"}},
			{"by two fields", []client.ListOption{client.MatchingFields{"v": "x", "late": "x"}}, []string{"a", "c"}},
			{"by a value that no object has", []client.ListOption{client.MatchingFields{"v": "z"}}, []string{}},
		} {
			if diff := cmp.Diff(tc.want, w.Names(tc.opts...)); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		}
		if got := w.Names(client.Limit(2)); len(got) != 2 {
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
			if err := w.Cache.List(w.Ctx, &corev1.ConfigMapList{}, tc.opt); err == nil ||
				!strings.Contains(err.Error(), tc.says) {
				t.Errorf("the list failed with %v, and not because of %q", err, tc.says)
			}
		}
	})
}

func TestMissesStartInformers(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := open(t, p, cache.Options{})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a"}}
		w.Create(secret)
		key := client.ObjectKeyFromObject(secret)
		if err := w.Cache.Get(w.Ctx, key, &corev1.Service{}); !isNotStarted(err) {
			t.Errorf("a read before the start is %v", err)
		}
		w.Start()
		peer.Must(t, w.Cache.Get(w.Ctx, key, &corev1.Secret{}))

		in := w.Informer(secret)
		peer.Must(t, w.Cache.RemoveInformer(w.Ctx, secret))
		w.Eventually("the informer has stopped", in.IsStopped)
		if _, err := in.AddEventHandler(peer.NewEvents()); err == nil {
			t.Error("a handler was added to an informer that has stopped")
		}
		again := w.Informer(secret)
		if again.IsStopped() || !again.HasSynced() {
			t.Error("the successor of a removed informer has not started")
		}
		peer.Must(t, w.Cache.Get(w.Ctx, key, &corev1.Secret{}))
		w.Stop()
		if !again.IsStopped() {
			t.Error("an informer runs after the cache has stopped")
		}
	})
}

func isNotStarted(err error) bool {
	_, ok := err.(*cache.ErrCacheNotStarted)
	return ok
}

func TestReadsFailWithoutAnInformer(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := start(t, p, cache.Options{ReaderFailOnMissingInformer: true})
		err := w.Cache.List(w.Ctx, &corev1.SecretList{})
		if _, ok := err.(*cache.ErrResourceNotCached); !ok {
			t.Errorf("a list of a kind that is not watched: %v", err)
		}
	})
}

// TestByObject sets selectors of a kind, and sharing where no copies are wanted.
func TestByObject(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		namespace, yes := env.Namespace(t), true
		w := p.Open(t, env.Config(t), namespace, cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{
					namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})},
				},
				UnsafeDisableDeepCopy: &yes,
			},
			&corev1.Secret{}: {Field: fields.ParseSelectorOrDie("metadata.name=a,metadata.namespace=" + namespace)},
		}})
		w.Start()
		in, out := w.ConfigMap("in"), w.ConfigMap("out")
		in.Labels = map[string]string{"app": "web"}
		w.Create(in, out)
		for _, name := range []string{"a", "b"} {
			w.Create(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Data:       map[string][]byte{"x": []byte("y")},
			})
		}
		w.Eventually("it is in the cache", func() bool { return len(w.Names()) == 1 })
		var a, b corev1.ConfigMap
		peer.Must(t, w.Cache.Get(w.Ctx, client.ObjectKeyFromObject(in), &a))
		peer.Must(t, w.Cache.Get(w.Ctx, client.ObjectKeyFromObject(in), &b))
		a.Labels["shared"] = "yes"
		if b.Labels["shared"] != "yes" {
			t.Error("without deep copies two readers were given two objects")
		}
		var secrets corev1.SecretList
		w.Eventually("the secret exists", func() bool {
			peer.Must(t, w.Cache.List(w.Ctx, &secrets))
			return len(secrets.Items) == 1 && secrets.Items[0].Name == "a"
		})
	})
}
