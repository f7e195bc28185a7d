package controllerruntime_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// state distinguishes versions of an object.
type state struct {
	uid     types.UID
	version string
	value   string
}

func stateOf(cm *corev1.ConfigMap) state { return state{cm.UID, cm.ResourceVersion, cm.Data["v"]} }

// fold is a handler that keeps the current states, and reports events that no informer may deliver.
type fold struct {
	mu       sync.Mutex
	t        *testing.T
	have     map[string]state
	inferred int
	calls    int
	slow     chan struct{} // if set, each call waits for it
}

func newFold(t *testing.T) *fold { return &fold{t: t, have: map[string]state{}} }

func (f *fold) enter() func() {
	if f.slow != nil {
		<-f.slow
	}
	f.mu.Lock()
	f.calls++
	return f.mu.Unlock
}

func (f *fold) OnAdd(obj any, _ bool) {
	defer f.enter()()
	cm := obj.(*corev1.ConfigMap)
	if had, there := f.have[cm.Name]; there {
		f.t.Errorf("%s was added, and exists as %v", cm.Name, had)
	}
	f.have[cm.Name] = stateOf(cm)
}

func (f *fold) OnUpdate(old, obj any) {
	defer f.enter()()
	prior, cm := old.(*corev1.ConfigMap), obj.(*corev1.ConfigMap)
	if had := f.have[cm.Name]; had != stateOf(prior) {
		f.t.Errorf("%s was updated from %v, and exists as %v", cm.Name, stateOf(prior), had)
	}
	if prior.UID != cm.UID {
		f.t.Errorf("%s was replaced by an update", cm.Name)
	}
	f.have[cm.Name] = stateOf(cm)
}

func (f *fold) OnDelete(obj any) {
	defer f.enter()()
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		f.inferred++
		obj = unknown.Obj
		if want := "default/" + obj.(*corev1.ConfigMap).Name; unknown.Key != want {
			f.t.Errorf("the key of an inferred deletion is %q, want %q", unknown.Key, want)
		}
	}
	name := obj.(*corev1.ConfigMap).Name
	if _, there := f.have[name]; !there {
		f.t.Errorf("%s was deleted, and does not exist", name)
	}
	delete(f.have, name)
}

// count returns the number of calls.
func (f *fold) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fold) states() map[string]state {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.have)
}

// faulty is a server, and a cache of the adapter that watches its config maps.
type faulty struct {
	*peer.World
	server *apiserver.Server
}

func startFaulty(t *testing.T, opts cache.Options) *faulty {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{Pipe: true})
	peer.Must(t, err)
	t.Cleanup(server.Close)
	f := &faulty{server: server}
	for i := range 20 {
		f.put(t, i, "1")
	}
	opts.DefaultNamespaces = map[string]cache.Config{"default": {}}
	f.World = peer.Ours.Open(t, server.Config(), "default", opts)
	f.Start()
	return f
}

func name(i int) string { return fmt.Sprintf("cm-%d", i) }

// put stores a config map without the client of the cache.
func (f *faulty) put(t *testing.T, i int, v string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name(i)}, Data: map[string]string{"v": v},
	}
	_, err := f.server.Put(cm)
	peer.Must(t, err)
}

// states returns the states that the server has.
func (f *faulty) states() map[string]state {
	f.T.Helper()
	objects, err := f.server.Objects(configMaps)
	peer.Must(f.T, err)
	out := map[string]state{}
	for _, o := range objects {
		v, _, err := unstructured.NestedString(o.Object, "data", "v")
		peer.Must(f.T, err)
		out[o.GetName()] = state{o.GetUID(), o.GetResourceVersion(), v}
	}
	return out
}

// settle waits until the handler and the readers of the cache agree with the server.
func (f *faulty) settle(h *fold) {
	f.T.Helper()
	limit := time.Now().Add(10 * time.Minute)
	for ; ; <-time.After(time.Second) {
		synctest.Wait()
		want, cached := f.states(), map[string]state{}
		var list corev1.ConfigMapList
		peer.Must(f.T, f.Cache.List(f.T.Context(), &list))
		for i := range list.Items {
			cached[list.Items[i].Name] = stateOf(&list.Items[i])
		}
		if maps.Equal(want, cached) && maps.Equal(want, h.states()) {
			return
		}
		if time.Now().After(limit) {
			f.T.Fatalf("the server has %v\nthe cache %v\nthe handler was given %v", want, cached, h.states())
		}
	}
}

// change updates some objects, deletes some, replaces one, and creates one.
func (f *faulty) change(t *testing.T) {
	t.Helper()
	for i := range 5 {
		f.put(t, i, "2")
	}
	for i := 5; i < 8; i++ {
		peer.Must(t, f.server.Remove(configMaps, "default", name(i)))
	}
	f.put(t, 5, "another")
	f.put(t, 30, "new")
}

// expire makes the server forget the versions that watches have seen.
func (f *faulty) expire(t *testing.T) {
	t.Helper()
	_, err := f.server.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "another"}})
	peer.Must(t, err)
	f.server.Compact(0)
}

// After each fault, the handlers and the cache agree with the server.
func TestFaults(t *testing.T) {
	watch, list := apiserver.Match{Verb: "watch", Resource: "configmaps"},
		apiserver.Match{Verb: "list", Resource: "configmaps"}
	for _, tc := range []struct {
		reason   string
		fault    func(t *testing.T, f *faulty) (repair func())
		inferred int // deletions that a list implies
	}{
		{"nothing", func(*testing.T, *faulty) func() { return func() {} }, 0},
		{"410: the history is gone", func(t *testing.T, f *faulty) func() {
			f.server.Down()
			return func() {
				f.server.Compact(0)
				f.server.Up()
			}
		}, 3},
		{"a silent watch", func(t *testing.T, f *faulty) func() {
			rule := f.server.On(watch, apiserver.Silent())
			f.server.DropConnections()
			return func() {
				<-time.After(3 * time.Minute)
				rule.Off()
			}
		}, 3},
		{"delayed events", func(t *testing.T, f *faulty) func() { return f.server.HoldEvents(watch).Release }, 0},
		{"a list that is empty", func(t *testing.T, f *faulty) func() {
			f.server.On(apiserver.Match{Verb: "list", Resource: "configmaps", Times: 1}, apiserver.EmptyList())
			f.server.On(apiserver.Match{Verb: "watch", Resource: "configmaps", Times: 1},
				apiserver.ErrorEvent(0, apiserver.Expired()))
			f.server.On(watch, apiserver.IgnoreWatchList())
			f.server.DropConnections()
			return func() {}
		}, 3},
		{"refused lists", func(t *testing.T, f *faulty) func() {
			rule := f.server.On(list, apiserver.Answer(apiserver.Failure(503)))
			begins := apiserver.Match{Verb: "watch", Func: func(r apiserver.Request) bool {
				return r.Query.Has("sendInitialEvents")
			}}
			begin := f.server.On(begins, apiserver.Answer(apiserver.Failure(503)))
			f.server.Down()
			f.expire(t)
			f.server.Up()
			return func() {
				<-time.After(time.Minute)
				rule.Off()
				begin.Off()
			}
		}, 3},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := startFaulty(t, cache.Options{})
				h := newFold(t)
				_, err := f.Informer(&corev1.ConfigMap{}).AddEventHandler(h)
				peer.Must(t, err)
				f.settle(h)
				repair := tc.fault(t, f)
				f.change(t)
				repair()
				f.settle(h)
				if h.inferred != tc.inferred {
					t.Errorf("%d deletions were delivered as inferred, want %d", h.inferred, tc.inferred)
				}
			})
		})
	}
}

// If the history of the server is rolled back, handlers get the reversal of later events.
func TestRollback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := startFaulty(t, cache.Options{})
		h := newFold(t)
		_, err := f.Informer(&corev1.ConfigMap{}).AddEventHandler(h)
		peer.Must(t, err)
		f.settle(h)
		restored := f.server.Revision()
		f.change(t)
		f.settle(h)
		peer.Must(t, f.server.Rollback(restored))
		f.settle(h)
	})
}

// A list without changes calls no handler.
func TestRelistOfUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := startFaulty(t, cache.Options{})
		h := newFold(t)
		_, err := f.Informer(&corev1.ConfigMap{}).AddEventHandler(h)
		peer.Must(t, err)
		f.settle(h)
		calls, lists := h.count(), f.lists()
		f.server.Down()
		f.expire(t)
		f.server.Up()
		<-time.After(time.Minute)
		synctest.Wait()
		if f.lists() == lists {
			t.Fatal("nothing was listed again")
		}
		if n := h.count() - calls; n != 0 {
			t.Errorf("a list without changes has called the handler %d times", n)
		}
	})
}

// lists counts lists, and watches that start with one. A list of a single object only reads the version.
func (f *faulty) lists() int {
	return f.server.Log().Count(apiserver.Match{Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Verb == "list" && r.Query.Get("limit") != "1" || r.Query.Get("sendInitialEvents") == "true"
	}})
}

// A slow handler gets the combined result of the events that it missed, and does not delay others.
func TestSlowHandlersGetFoldedStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := startFaulty(t, cache.Options{})
		slow, quick := newFold(t), newFold(t)
		slow.slow = make(chan struct{})
		in := f.Informer(&corev1.ConfigMap{})
		for _, h := range []*fold{slow, quick} {
			_, err := in.AddEventHandler(h)
			peer.Must(t, err)
		}
		f.settle(quick)
		const changes = 3000
		for i := range changes {
			f.put(t, i%20, fmt.Sprint(i))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		f.settle(quick)
		close(slow.slow)
		f.settle(slow)
		if n := quick.count(); n != 20+changes {
			t.Errorf("the fast handler was called %d times, want %d", n, 20+changes)
		}
		if n := slow.count(); n > changes/2 {
			t.Errorf("the blocked handler was called %d times", n)
		}
	})
}

// An idle handler has no goroutine. Only goroutines of the bubble count, so those of the runtime and of other packages
// do not.
func TestGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFaulty(t, cache.Options{})
		in := f.Informer(&corev1.ConfigMap{})
		handlers := []*fold{newFold(t)}
		for range 10 {
			handlers = append(handlers, newFold(t))
		}
		before := 0
		for i, h := range handlers {
			_, err := in.AddEventHandler(h)
			peer.Must(t, err)
			f.settle(h)
			if i == 0 {
				before = inBubble()
			}
		}
		if after := inBubble(); after > before || before == 0 {
			t.Errorf("with one handler there are %d goroutines, with ten more %d", before, after)
		}
	})
}

// inBubble returns the number of goroutines that belong to a bubble. No other test may have one at the same time.
func inBubble() int {
	synctest.Wait()
	stacks := make([]byte, 16<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("synctest bubble"))
}

// A saved cache continues from its files: it shows the saved objects, and sends no list.
func TestDir(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	peer.Must(t, err)
	t.Cleanup(server.Close)
	p := peer.With(controllerruntime.Options{Dir: t.TempDir()})
	f := &faulty{server: server}
	f.put(t, 1, "1")
	for run := range 2 {
		before := f.lists()
		w := p.Open(t, server.Config(), "default", cache.Options{})
		w.Start()
		if got := w.Names(); len(got) != 1 || got[0] != name(1) {
			t.Errorf("run %d: the cache has %v", run, got)
		}
		w.Stop()
		if lists := f.lists() - before; lists != 1-run {
			t.Errorf("run %d has listed %d times", run, lists)
		}
	}
}

// Resyncs deliver every object again to the handlers that want them.
func TestResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		period := time.Minute
		f := startFaulty(t, cache.Options{SyncPeriod: &period})
		never, h, quiet := time.Duration(0), newFold(t), newFold(t)
		in := f.Informer(&corev1.ConfigMap{})
		_, err := in.AddEventHandler(h)
		peer.Must(t, err)
		_, err = in.AddEventHandlerWithResyncPeriod(quiet, never)
		peer.Must(t, err)
		f.settle(h)
		f.settle(quiet)
		calls := h.count()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if n := h.count() - calls; n < 8*20 || n > 12*20 { // controller-runtime varies the period by a tenth
			t.Errorf("in ten periods 20 objects were delivered %d times", n)
		}
		if quiet.count() != 20 {
			t.Errorf("a handler without resyncs was called %d times", quiet.count())
		}
		f.settle(h)
	})
}

// TestWatchErrors: a handler of watch errors gets each refusal, as an error of apimachinery.
func TestWatchErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported := make(chan error, 100)
		f := startFaulty(t,
			cache.Options{DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) {
				if r == nil {
					t.Error("there is no reflector")
				}
				reported <- err
			}})
		rule := f.server.On(apiserver.Match{Resource: "secrets"}, apiserver.Answer(apiserver.Failure(403)))
		in, err := f.Cache.GetInformer(f.Ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
		peer.Must(t, err)
		if err := <-reported; !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v", err)
		}
		rule.Off()
		<-in.HasSyncedChecker().Done()
	})
}
