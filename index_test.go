package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

func nodeOf(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }

// putPod stores a pod of a node.
func putPod(t *testing.T, s *apiserver.Server, namespace, name, node string) {
	t.Helper()
	if _, err := s.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node},
	}); err != nil {
		t.Fatal(err)
	}
}

// podsOf returns the keys of the pods that an index lists, sorted.
func podsOf(ctx context.Context, c *client.Client, opts ...client.ReadOption) ([]string, error) {
	var keys []string
	for p, err := range client.List[corev1.Pod](ctx, c, opts...) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, client.KeyOf(p).String())
	}
	slices.Sort(keys)
	return keys, nil
}

// TestIndexField: the first call of a reconciler finds all objects by an index. This holds even if only the index
// watches their kind and the list is slow.
func TestIndexField(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		more    func(rt *fairlead.Runtime)
		watches int
	}{
		{"nothing else watches the kind", func(*fairlead.Runtime) {}, 1},
		{"a source watches it, too", func(rt *fairlead.Runtime) {
			observe.Source[corev1.Pod](rt, "pods")
			observe.Known[corev1.Pod](rt, "pods")
		}, 1},
		{"a source watches some objects", func(rt *fairlead.Runtime) {
			observe.Source[corev1.Pod](rt, "pods", cache.Namespaces("a"))
			observe.Known[corev1.Pod](rt, "pods")
		}, 2},
		{"a source watches the metadata", func(rt *fairlead.Runtime) {
			observe.Source[corev1.Pod](rt, "pods")
			observe.Known[metav1.PartialObjectMetadata](rt, "pods")
		}, 1},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				put(t, s, "x")
				putPod(t, s, "a", "one", "n1")
				putPod(t, s, "b", "two", "n1")
				putPod(t, s, "b", "three", "n2")
				s.On(apiserver.Match{Resource: "pods"}, apiserver.Delay(10*time.Second))
				rt := fairlead.New(s.Config())
				fairlead.IndexField(rt, "node", nodeOf)
				var d diary
				reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
					func(ctx context.Context, _ *corev1.ConfigMap) (reconcile.Result, error) {
						keys, err := podsOf(ctx, rt.Client(), client.Index("node", "n1"))
						d.add(fmt.Sprint(keys, err))
						return reconcile.Done, nil
					}))
				tc.more(rt)
				r := run(rt)
				time.Sleep(time.Minute) // no watch ends before that
				if diff := cmp.Diff([]string{"[a/one b/two] <nil>"}, slices.Compact(d.all())); diff != "" {
					t.Error(diff) // the object may be reconciled again, as MaxInterval allows
				}
				if n := len(s.Watches(apiserver.Match{Resource: "pods"})); n != tc.watches {
					t.Errorf("pods are watched %d times, want %d", n, tc.watches)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if n := s.Log().Count(apiserver.Match{Verb: "get", Resource: "pods"}); n > 0 {
					t.Errorf("%d requests for single pods", n)
				}
			})
		})
	}
}

// TestIndexFieldSeesOwnWrites: a list by a declared index includes a write before its event, and follows changes.
func TestIndexFieldSeesOwnWrites(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		fairlead.IndexField(rt, "node", nodeOf)
		r := run(rt)
		synctest.Wait()
		held := s.HoldEvents(apiserver.Match{})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}, Spec: corev1.PodSpec{NodeName: "n1"}}
		if err := rt.Client().Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if keys, err := podsOf(t.Context(), rt.Client(), client.Index("node", "n1")); len(keys) != 1 || err != nil {
			t.Errorf("after the write: %v, %v", keys, err)
		}
		held.Release()
		putPod(t, s, "a", "one", "n2")
		synctest.Wait()
		if keys, err := podsOf(t.Context(), rt.Client(), client.Index("node", "n1")); len(keys) != 0 || err != nil {
			t.Errorf("after the change of another writer: %v, %v", keys, err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestIndexFieldInNamespaces: in a program that WithSource restricts, a list of all namespaces covers those of the
// program. A namespace that the program does not watch is an error.
func TestIndexFieldInNamespaces(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for _, namespace := range []string{"a", "b", "c"} {
			putPod(t, s, namespace, "one", "n1")
		}
		rt := fairlead.New(s.Config(), fairlead.WithSource(cache.Namespaces("b", "a")))
		fairlead.IndexField(rt, "node", nodeOf)
		observe.Source[corev1.ConfigMap](rt, Maps, cache.Namespaces("a"))
		known := observe.Known[corev1.ConfigMap](rt, Maps)
		r := run(rt)
		<-known.Synced()
		synctest.Wait()
		for _, tc := range []struct {
			reason string
			opts   []client.ReadOption
			want   string
			err    error
		}{
			{"the program's namespaces", []client.ReadOption{client.Index("node", "n1")}, "a/one b/one", nil},
			{"one of them", []client.ReadOption{client.Index("node", "n1"), client.InNamespace("b")}, "b/one", nil},
			{
				"another namespace",
				[]client.ReadOption{client.Index("node", "n1"), client.InNamespace("c")},
				"", client.ErrNotWatched,
			},
			{
				"a built-in index",
				[]client.ReadOption{client.Index(cache.IndexNamespace, "b")},
				"b/one", nil,
			},
			{"no index: a request to the server", nil, "a/one b/one c/one", nil},
		} {
			keys, err := podsOf(t.Context(), rt.Client(), tc.opts...)
			if got := strings.Join(keys, " "); got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: got %q, %v; want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
		}
		var list corev1.ConfigMapList
		if err := rt.Client().List(t.Context(), &list, client.Index(cache.IndexNamespace, "a")); !errors.Is(err,
			client.ErrNotWatched) {
			t.Errorf("a source of fewer namespaces than the program's covers all of them: %v", err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestIndexFieldInEveryReplica: a program that serves also has its indexes in ready replicas that do not lead.
func TestIndexFieldInEveryReplica(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		putPod(t, s, "a", "one", "n1")
		s.On(apiserver.Match{Resource: "pods"}, apiserver.Delay(10*time.Second))
		replica := func() *fairlead.Runtime {
			rt := fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "operator"))
			fairlead.IndexField(rt, "node", nodeOf)
			rt.AddAlways("api", func(ctx context.Context) error { <-ctx.Done(); return nil })
			return rt
		}
		first := run(replica())
		time.Sleep(time.Hour)
		second := run(replica())
		time.Sleep(5 * time.Second)
		readiness(t, second.Runtime, "before the list", 503, "pods")
		time.Sleep(time.Hour)
		readiness(t, second.Runtime, "of the other", 200, "standby")
		for _, r := range []*running{second, first} {
			if keys, err := podsOf(t.Context(), r.Client(), client.Index("node", "n1")); len(keys) != 1 || err != nil {
				t.Errorf("listed %v, %v", keys, err)
			}
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestIndexFieldOfAbsentKind: an index of a kind that is not served blocks nothing. It works once the kind is served.
func TestIndexFieldOfAbsentKind(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var pods apiserver.Resource
		for _, r := range apiserver.DefaultResources() {
			if r.Kind == "Pod" {
				pods = r
			}
		}
		if !s.Withdraw(pods.GVR()) {
			t.Fatal("pods are not served")
		}
		rt := fairlead.New(s.Config())
		fairlead.IndexField(rt, "node", nodeOf)
		var d diary
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
				d.add("reconciled")
				return reconcile.Done, nil
			}))
		r := run(rt)
		time.Sleep(time.Minute)
		if len(d.all()) == 0 {
			t.Error("nothing is reconciled")
		}
		s.Register(pods)
		putPod(t, s, "a", "one", "n1")
		time.Sleep(time.Minute)
		if keys, err := podsOf(t.Context(), rt.Client(), client.Index("node", "n1")); len(keys) != 1 || err != nil {
			t.Errorf("when it is served: %v, %v", keys, err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestIndexFieldMistakes: Run reports every mistake before any request, with the line of the declaration.
func TestIndexFieldMistakes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		other := rt.Join("other", s.Config())
		fairlead.IndexField(rt, "node", nodeOf)
		fairlead.IndexField(rt, "node", nodeOf)
		fairlead.IndexField(other, "node", nodeOf)
		fairlead.IndexField(rt, "node", func(*corev1.Secret) []string { return nil }) // of another kind
		fairlead.IndexField(rt, "", nodeOf)
		fairlead.IndexField[corev1.Pod](rt, "nothing", nil)
		fairlead.IndexField(rt, cache.IndexOwner, nodeOf)
		fairlead.IndexField(rt, "unknown", func(*unknown) []string { return nil })
		fairlead.IndexField(rt, "no type", func(*unstructured.Unstructured) []string { return nil })
		fairlead.IndexField(rt, "no selector", nodeOf, cache.Labels("a b"))
		err := rt.Run(t.Context())
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{
			`cannot declare index "node": Pod has an index of that name, declared at `,
			`cannot declare index "": the name is empty`,
			`cannot declare index "nothing": the function is nil`,
			`cannot declare index "owner": every store has an index of that name`,
			`cannot declare index "unknown": `,
			`cannot declare index "no type": `,
			`cannot declare index "no selector": `,
		} {
			if strings.Count(err.Error(), want) != 1 {
				t.Errorf("want %q once in the error:\n%v", want, err)
			}
		}
		if n := strings.Count(err.Error(), "index_test.go:"); n != 8 {
			t.Errorf("the error names %d places, want one for each mistake, and two for the name declared twice:\n%v", n, err)
		}
		if n := len(s.Log().Select(apiserver.Match{})); n > 0 {
			t.Errorf("%d requests were made", n)
		}
	})
}

// TestIndexFieldAfterRun: a late declaration has no effect, and Run returns it, even if this process never leads.
func TestIndexFieldAfterRun(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		first := run(fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "operator")))
		time.Sleep(time.Minute)
		second := run(fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "operator")))
		time.Sleep(time.Minute)
		for _, r := range []*running{second, first} {
			fairlead.IndexField(r.Runtime, "late", nodeOf)
			err := r.end()
			const want = `cannot declare index "late": the runtime has been run already`
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "index_test.go:") {
				t.Errorf("error %v", err)
			}
		}
	})
}

// TestIndexFieldRights: a declared index needs to list and watch its kind.
func TestIndexFieldRights(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		fairlead.IndexField(rt.Join("other", s.Config()), "node", nodeOf)
		if all := rt.Rights(); len(all) > 0 {
			t.Errorf("the first cluster needs %v", all)
		}
		fairlead.IndexField(rt, "node", nodeOf)
		want := []rights.Right{rights.Of(corev1.SchemeGroupVersion.WithKind("Pod"), "list", "watch")}
		if diff := cmp.Diff(want, rt.Rights()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestIndexFieldOnAnyHost: a host of a test, which is not a runtime, has the index and reports mistakes when it runs.
func TestIndexFieldOnAnyHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testbed.Server(t, apiserver.Options{Resources: apiserver.DefaultResources()})
		defer s.Close()
		putPod(t, s, "a", "one", "n1")
		h := testbed.NewHost(t, s.Config(), testbed.Mapper(apiserver.DefaultResources()))
		fairlead.IndexField(h, "node", nodeOf)
		fairlead.IndexField(h, "", nodeOf)
		h.Start(t.Context())
		synctest.Wait()
		if keys, err := podsOf(t.Context(), h.Client(), client.Index("node", "n1")); len(keys) != 1 || err != nil {
			t.Errorf("listed %v, %v", keys, err)
		}
		if err := h.Stop(); err == nil || !strings.Contains(err.Error(), `cannot declare index "": the name is empty`) {
			t.Errorf("error %v", err)
		}
	})
}
