package apiserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestWatchesSeeEachWriteOnce lets writers race while watches come from different transports and encodings: versions
// only go up, each event follows from the state before, and at the end each fold is the state of the server.
func TestWatchesSeeEachWriteOnce(t *testing.T) {
	t.Parallel()
	for name, opts := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, opts)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			json := s.Config()
			json.ContentType, json.AcceptContentTypes = "application/json", "application/json"
			var watchers sync.WaitGroup
			folds := make([]map[string]string, 4)
			for i := range folds {
				cfg := s.Config()
				if i%2 == 0 {
					cfg = json
				}
				w, err := typedFor(t, cfg).CoreV1().ConfigMaps("a").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
				if err != nil {
					t.Fatal(err)
				}
				watchers.Go(func() {
					defer w.Stop()
					fold, last := map[string]string{}, 0
					for e := range w.ResultChan() {
						cm := e.Object.(*corev1.ConfigMap)
						var version int
						if _, err := fmt.Sscan(cm.ResourceVersion, &version); err != nil || version <= last {
							t.Errorf("version %s after %d", cm.ResourceVersion, last)
						}
						last = version
						if _, had := fold[cm.Name]; had == (e.Type == "ADDED") {
							t.Errorf("%s of %s, which was there: %t", e.Type, cm.Name, had)
						}
						if fold[cm.Name] = cm.ResourceVersion; e.Type == "DELETED" {
							delete(fold, cm.Name)
						}
						if cm.Name == "last" {
							break
						}
					}
					folds[i] = fold
				})
			}
			c := typed(t, s).CoreV1().ConfigMaps("a")
			var writers sync.WaitGroup
			for w := range 4 {
				writers.Go(func() {
					r := rand.New(rand.NewPCG(uint64(w), 1))
					for i := range 40 {
						name := fmt.Sprint("x", r.IntN(5))
						cm, err := c.Get(ctx, name, metav1.GetOptions{})
						switch {
						case apierrors.IsNotFound(err):
							_, err = c.Create(ctx, configMap(name, fmt.Sprint(w, i)), metav1.CreateOptions{})
						case err == nil && r.IntN(3) == 0:
							err = c.Delete(ctx, name, metav1.DeleteOptions{})
						case err == nil:
							cm.Data["k"] = fmt.Sprint(w, i)
							_, err = c.Update(ctx, cm, metav1.UpdateOptions{})
						}
						if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			put(t, s, "last", "1")
			watchers.Wait()
			objects, err := s.Objects(configMaps)
			if err != nil {
				t.Fatal(err)
			}
			for i, fold := range folds {
				if len(fold) != len(objects) {
					t.Errorf("watch %d has %d objects, the server %d", i, len(fold), len(objects))
				}
				for _, o := range objects {
					if fold[o.GetName()] != o.GetResourceVersion() {
						t.Errorf("watch %d has %s at %s, the server at %s", i, o.GetName(), fold[o.GetName()], o.GetResourceVersion())
					}
				}
			}
		})
	}
}

func TestPanicsOfUsersAreReported(t *testing.T) {
	t.Parallel()
	res := apiserver.Widgets()
	res.Validate = func(context.Context, *unstructured.Unstructured, *unstructured.Unstructured) error { panic("oh no") }
	s := start(t, apiserver.Options{Resources: []apiserver.Resource{res}})
	s.On(apiserver.Match{Verb: "list"}, apiserver.Before(func(context.Context, apiserver.Request) { panic("oh dear") }))
	c := dynamicFor(t, s)
	if _, err := c.Create(t.Context(), widget("w", nil), metav1.CreateOptions{}); !apierrors.IsInternalError(err) ||
		!strings.Contains(err.Error(), "oh no") {
		t.Errorf("create: %v", err)
	}
	if _, err := c.List(t.Context(), metav1.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("list: %v", err)
	}
	for i, want := range []string{"oh no", "oh dear"} {
		if got := s.Log().Requests[i].Panic; !strings.HasPrefix(got, want) {
			t.Errorf("the log says %q, want %q", got, want)
		}
	}
}

func TestWhatIsNotServed(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	for accept, want := range map[string]int{
		"application/json;as=Table;g=meta.k8s.io;v=v1":                  406,
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json": 200,
		"application/cbor": 406, "*/*": 200, "": 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+configMapPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := newRaw(t, s).c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("Accept %q: %d, want %d", accept, res.StatusCode, want)
		}
	}
	if _, err := s.Put(&corev1.Pod{}); err == nil {
		t.Error("an object without name was stored")
	}
	if err := s.Remove(pods, "a", "none"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if err := s.Poison(pods, "a", "none", nil); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if err := s.Preload(widgets.GroupResource().WithVersion("v9"), 1, nil); err == nil {
		t.Error("a version that is not served was loaded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitFor(ctx, func(apiserver.Log) bool { return false }); err == nil ||
		!strings.Contains(err.Error(), configMapPath) {
		t.Errorf("waiting in vain must show the last requests: %v", err)
	}
	if err := apiserver.NewGate().Wait(ctx, 1); err == nil {
		t.Error("nobody is at the gate")
	}
	s.Close()
	s.Close()
	if err := s.Up(); err == nil {
		t.Error("a closed server came up")
	}
}
