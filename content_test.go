package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

// Observers and the client see the content that the cache keeps of a kind. Other users of the kind share it.
func TestWithContent(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "db", Annotations: map[string]string{"a.b/note": "n", "b": "c"}},
			Data:       map[string][]byte{"password": []byte("hunter2")},
		}
		if _, err := s.Put(secret); err != nil {
			t.Fatal(err)
		}
		rt := fairlead.New(s.Config(),
			fairlead.WithContent(schema.GroupKind{Kind: "Secret"}, cache.Content{}),
			fairlead.WithContent(schema.GroupKind{Kind: "Secret"}, cache.Content{
				Drop: []string{"data", "metadata.annotations[a.b/note]"},
			}),
			fairlead.WithContent(schema.GroupKind{}, cache.Content{Transform: func(o any) (any, error) {
				o.(metav1.Object).SetAnnotations(map[string]string{"seen": "yes"})
				return o, nil
			}}))
		var mu sync.Mutex
		var shown []string
		show := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			shown = append(shown, what)
		}
		observe.Source[corev1.Secret](rt, "secrets")
		observe.On(rt, "secrets", func(_ context.Context, e observe.Event[corev1.Secret]) error {
			if e.Type == observe.Added {
				show(fmt.Sprint(e.Object().Data, e.Object().Annotations))
			}
			return nil
		})
		observe.Source[corev1.ConfigMap](rt, "maps")
		observe.On(rt, "maps", func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				show(fmt.Sprint(e.Object().Annotations))
			}
			return nil
		})
		r := run(rt)
		if err := rt.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got corev1.Secret
		if err := rt.Client().Get(t.Context(), client.KeyOf(secret), &got); err != nil || len(got.Data) > 0 {
			t.Errorf("the client shows %v, %v", got.Data, err)
		}
		got.Labels = map[string]string{"a": "b"}
		if err := rt.Client().Update(t.Context(), &got); !errors.Is(err, client.ErrPruned) {
			t.Errorf("update: error %v", err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(shown, "\n")
		if len(shown) != 2 || !strings.Contains(text, "map[] map[b:c]") || !strings.Contains(text, "map[seen:yes]") {
			t.Errorf("the page shows\n%s", text)
		}
	})
}

// TestWithContentAndKeep: an object that Keep names is complete and can be updated. Other objects lack the dropped
// fields.
func TestWithContentAndKeep(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for _, name := range []string{"one-kubeconfig", "db"} {
			if _, err := s.Put(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: map[string][]byte{"v": []byte("hunter2")},
			}); err != nil {
				t.Fatal(err)
			}
		}
		rt := fairlead.New(s.Config(), fairlead.WithContent(schema.GroupKind{Kind: "Secret"}, cache.Content{
			Drop: []string{"data"},
			Keep: func(_, name string, _ map[string]string) bool { return strings.HasSuffix(name, "-kubeconfig") },
		}))
		fairlead.IndexField(rt, "whole", func(s *corev1.Secret) []string { return []string{fmt.Sprint(len(s.Data) > 0)} })
		observe.Source[corev1.Secret](rt, "secrets")
		known := observe.Known[corev1.Secret](rt, "secrets")
		r := run(rt)
		<-known.Synced()
		for name, whole := range map[string]bool{"one-kubeconfig": true, "db": false} {
			var got corev1.Secret
			if err := rt.Client().Get(t.Context(), client.Key{Namespace: "a", Name: name}, &got); err != nil {
				t.Fatal(err)
			}
			if (len(got.Data) > 0) != whole {
				t.Errorf("%s has %v", name, got.Data)
			}
			for key := range known.Index("whole", fmt.Sprint(whole)) {
				if key.Name != name {
					t.Errorf("%s is in the index of %v", key, whole)
				}
			}
			got.Labels = map[string]string{"a": "b"}
			if err := rt.Client().Update(t.Context(), &got); errors.Is(err, client.ErrPruned) == whole {
				t.Errorf("update of %s: %v", name, err)
			}
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Run reports an invalid content when the program starts.
func TestWithMalformedContent(t *testing.T) {
	t.Parallel()
	malformed := cache.Content{Drop: []string{"spec..x"}}
	rt := fairlead.New(&rest.Config{Host: "http://127.0.0.1:1"},
		fairlead.WithContent(schema.GroupKind{Kind: "Pod"}, malformed))
	const want = `kind "Pod": cannot drop fields: malformed path "spec..x": a member has no name`
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}

// Secrets are watched for their labels, and their data is not kept in memory.
func ExampleWithContent() {
	cluster, err := apiserver.New(apiserver.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	if _, err := cluster.Put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "db", Labels: map[string]string{"app": "web"}},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	rt := fairlead.New(cluster.Config(), fairlead.WithContent(
		schema.GroupKind{Kind: "Secret"},
		cache.Content{Drop: []string{"data", "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"}},
	))
	observe.Source[corev1.Secret](rt, "secrets")
	observe.On(rt, "secrets", func(_ context.Context, e observe.Event[corev1.Secret]) error {
		if e.Type == observe.Added {
			fmt.Println(e.Key, e.Object().Labels, e.Object().Data)
			stop()
		}
		return nil
	})
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: team-a/db map[app:web] map[]
}
