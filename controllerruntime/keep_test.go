package controllerruntime_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
)

var secrets = schema.GroupKind{Kind: "Secret"}

type keep = map[schema.GroupKind]func(namespace, name string, labels map[string]string) bool

func isKubeconfig(_, name string, _ map[string]string) bool {
	return strings.HasSuffix(name, "-kubeconfig")
}

// TestKeep keeps the data of only some Secrets, for readers and in memory. The other Secrets can only be patched.
func TestKeep(t *testing.T) {
	t.Parallel()
	server, dir := serve(t), t.TempDir()
	w := peer.With(controllerruntime.Options{
		Drop: map[schema.GroupKind][]string{secrets: {"data"}}, Keep: keep{secrets: isKubeconfig}, Dir: dir,
	}).Open(t, server.Config(), "default", cache.Options{})
	for _, name := range []string{"one-kubeconfig", "token"} {
		w.Create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Data:       map[string][]byte{"value": []byte("hunter2")},
		})
	}
	w.Start()
	w.Informer(&corev1.Secret{})
	for name, want := range map[string]string{"one-kubeconfig": "hunter2", "token": ""} {
		var got corev1.Secret
		peer.Must(t, w.Client.Get(w.Ctx, client.ObjectKey{Namespace: "default", Name: name}, &got))
		if string(got.Data["value"]) != want {
			t.Errorf("%s has %q, want %q", name, got.Data["value"], want)
		}
		got.Labels = map[string]string{"a": "b"}
		err := w.Client.Update(w.Ctx, &got)
		if _, refused := errors.AsType[*controllerruntime.DroppedError](err); refused != (want == "") || err != nil &&
			!refused {
			t.Errorf("update of %s: %v", name, err)
		}
	}
	raw := 0
	for _, st := range controllerruntime.Stores(w.Cache).Stores(schema.GroupVersionResource{}) {
		for r := range st.Snapshot().All() {
			raw += bytes.Count(r.Raw(), []byte("hunter2")) + bytes.Count(r.Raw(), []byte("aHVudGVyMg"))
		}
	}
	if raw != 1 {
		t.Errorf("%d secret values are in memory, want 1", raw)
	}
	w.Stop()
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) > 0 {
		t.Errorf("saved are %v, %v", files, err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// TestKeepOfAllKinds: the function of the zero kind applies to kinds without their own. Keep without Drop is refused.
func TestKeepOfAllKinds(t *testing.T) {
	t.Parallel()
	server := serve(t)
	all := schema.GroupKind{}
	w := peer.With(controllerruntime.Options{
		Drop: map[schema.GroupKind][]string{all: {"data"}},
		Keep: keep{all: func(string, string, map[string]string) bool { return true }, secrets: isKubeconfig},
	}).Open(t, server.Config(), "default", cache.Options{})
	w.Create(w.ConfigMap("a", "v", "1"), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string][]byte{"v": []byte("1")},
	})
	w.Start()
	var cm corev1.ConfigMap
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: "default", Name: "a"}
	peer.Must(t, w.Client.Get(w.Ctx, key, &cm))
	peer.Must(t, w.Client.Get(w.Ctx, key, &secret))
	if len(cm.Data) != 1 || len(secret.Data) != 0 {
		t.Errorf("read %v and %v", cm.Data, secret.Data)
	}
	for _, o := range []controllerruntime.Options{
		{Keep: keep{secrets: isKubeconfig}},
		{Keep: keep{all: isKubeconfig}},
		{Keep: keep{secrets: isKubeconfig}, Drop: map[schema.GroupKind][]string{{Kind: "ConfigMap"}: {"data"}}},
	} {
		if _, err := o.NewCache(server.Config(), cache.Options{}); err == nil ||
			!strings.Contains(err.Error(), "options have Keep, and Drop names no fields") {
			t.Errorf("error %v", err)
		}
	}
}

// TestTransformOfSecrets: a transform of Secrets is logged once for a cache, unless Drop names fields of Secrets.
func TestTransformOfSecrets(t *testing.T) {
	server := serve(t)
	same := func(o any) (any, error) { return o, nil }
	anywhere := map[string]cache.Config{"a": {Transform: same}}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for _, tc := range []struct {
		reason string
		drop   map[schema.GroupKind][]string
		opts   cache.Options
		want   int64
	}{
		{"of secrets", nil, cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Transform: toolscache.TransformFunc(same)},
		}}, 1},
		{"of secrets in a namespace", nil, cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: anywhere},
		}}, 1},
		{"with Drop", map[schema.GroupKind][]string{secrets: {"data"}}, cache.Options{
			ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Transform: same}},
		}, 0},
		{"of another kind, of metadata and of all", nil, cache.Options{
			DefaultTransform: same,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Transform: same}, metadata: {Transform: same}, &corev1.Secret{}: {},
			},
		}, 0},
	} {
		before := transformed.Load()
		w := peer.With(controllerruntime.Options{Drop: tc.drop}).Open(t, server.Config(), "a", tc.opts)
		w.Start()
		w.Informer(&corev1.Secret{})
		if n := transformed.Load() - before; n != tc.want {
			t.Errorf("%s: %d warnings, want %d", tc.reason, n, tc.want)
		}
		w.Stop()
	}
}
