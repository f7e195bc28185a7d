package pending_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// writes returns the pending writes of one store of ConfigMaps without a watch. It has ConfigMap a with uid 1 and
// version 10.
func writes(t *testing.T) (*pending.Writes, *store.Store, *[]string) {
	t.Helper()
	st := store.New(store.Options{
		Resource: configMaps, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Scheme: scheme.Scheme, Namespaced: true,
	})
	t.Cleanup(st.Close)
	st.Sink("")
	if _, err := st.Put(source.JSON, object("a", "1", "10", "")); err != nil {
		t.Fatal(err)
	}
	var changed []string
	return &pending.Writes{
		Stores: func(r schema.GroupVersionResource) []*cache.Store {
			if r != configMaps {
				return nil
			}
			return []*cache.Store{st}
		},
		Changed: func(_ *cache.Store, key cache.Key) { changed = append(changed, key.Name) },
		Timeout: time.Second, Log: slog.New(slog.DiscardHandler),
	}, st, &changed
}

func object(name, uid, version, more string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":%q,"uid":%q,`+
		`"resourceVersion":%q%s}}`, name, uid, version, more)
}

func target(name string) pending.Target {
	return pending.Target{Op: "update", Resource: configMaps, Key: cache.Key{Namespace: "n", Name: name}}
}

// When the end of a write returns, the store has the response.
func TestWrite(t *testing.T) {
	t.Parallel()
	deleting := `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	for _, tc := range []struct {
		reason  string
		name    string
		end     func(context.Context, *pending.Write)
		want    string // uid and version in the store
		changed []string
		doubted bool
	}{
		{
			"an answer", "a", func(ctx context.Context,
				w *pending.Write,
			) {
				w.Answered(ctx, answer(200, object("a", "1", "11", "")))
			},
			"1 11",
			[]string{"a"},
			false,
		},
		{
			"an answer with a generated name", "",
			func(ctx context.Context, w *pending.Write) { w.Answered(ctx, answer(201, object("b", "2", "11", ""))) },
			"2 11",
			[]string{"b"},
			false,
		},
		{
			"an answer to the removal of the last finalizer", "a",
			func(ctx context.Context, w *pending.Write) {
				w.Answered(ctx, answer(200, object("a", "1", "11", deleting)))
			},
			"",
			[]string{"a"},
			false,
		},
		{
			"an answer that keeps a finalizer", "a",
			func(ctx context.Context, w *pending.Write) {
				w.Answered(ctx, answer(200, object("a", "1", "11", deleting+`,"finalizers":["f"]`)))
			},
			"1 11",
			[]string{"a"},
			false,
		},
		{
			"a deleted object", "a",
			func(ctx context.Context, w *pending.Write) { w.Deleted(ctx, answer(200, object("a", "1", "11", ""))) },
			"",
			[]string{"a"},
			false,
		},
		{
			"an absent object", "a", func(ctx context.Context, w *pending.Write) { w.Absent(ctx) },
			"",
			[]string{"a"},
			false,
		},
		{
			"a refused write", "a", func(_ context.Context, w *pending.Write) { w.Refused() },
			"1 10", nil, false,
		},
		{
			"a lost answer, and the store cannot ask", "a", func(ctx context.Context, w *pending.Write) { w.Lost(ctx) },
			"1 10",
			[]string{"a"},
			true,
		},
		{
			"an answer that cannot be decoded, and the store cannot ask", "a",
			func(ctx context.Context, w *pending.Write) { w.Answered(ctx, pending.Unknown(200)) },
			"1 10",
			[]string{"a"},
			true,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ws, st, changed := writes(t)
				w := ws.Begin(store.WriteContext{}, target(tc.name))
				tc.end(t.Context(), w)
				got, name := "", max(tc.name, w.Key.Name)
				key := cache.Key{Namespace: "n", Name: name}
				if r, ok := st.Get(key); ok {
					got = string(r.UID()) + " " + r.Version()
				}
				if got != tc.want {
					t.Errorf("the store has %q, want %q", got, tc.want)
				}
				if diff := cmp.Diff(tc.changed, *changed); diff != "" {
					t.Errorf("changed (-want +got):\n%s", diff)
				}
				if st.Overdue(key) != tc.doubted {
					t.Errorf("reads ask the server: %v", !tc.doubted)
				}
			})
		})
	}
}

// A dry run, or a write of a resource without stores, changes no store.
func TestWriteWithoutStores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ws, st, _ := writes(t)
		pods := ws.Begin(store.WriteContext{}, pending.Target{Resource: corev1.SchemeGroupVersion.WithResource("pods")})
		for _, w := range []*pending.Write{ws.DryRun(), pods} {
			if w.Watched() {
				t.Error("a write without stores has a store")
			}
			w.Answered(t.Context(), answer(http.StatusOK, object("a", "1", "11", "")))
		}
		if r, ok := st.Get(cache.Key{Namespace: "n", Name: "a"}); !ok || r.Version() != "10" {
			t.Errorf("the store has changed: %v", r)
		}
	})
}

func TestSelected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ws, st, _ := writes(t)
		if _, err := st.Put(source.JSON, object("b", "2", "11", `,"labels":{"x":"y"}`)); err != nil {
			t.Fatal(err)
		}
		want := pending.Objects{"2": {Namespace: "n", Name: "b"}}
		if diff := cmp.Diff(want, ws.Selected(configMaps, "n", labels.SelectorFromSet(labels.Set{"x": "y"}))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := ws.Selected(configMaps, "other", labels.Everything()); got != nil {
			t.Errorf("another namespace has %v", got)
		}
	})
}

func answer(code int, body []byte) *pending.Answer { return pending.Read(code, body, &source.Header{}) }
