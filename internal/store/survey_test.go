package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// quiet is a store of config maps whose watch has no bookmarks. Other resources move the version of its server.
type quiet struct {
	*store.Store
	t      *testing.T
	ctx    context.Context
	server *apiserver.Server
	others int
}

var quietLists = apiserver.Match{Verb: "list", Resource: "configmaps"}

func onQuietWatch(t *testing.T, opt apiserver.Options, n int, fn func(q *quiet), change ...source.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opt.Pipe, opt.BookmarkInterval = true, 100*time.Hour
		server, err := apiserver.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		q := &quiet{t: t, ctx: t.Context(), server: server, Store: store.New(store.Options{Resource: savedMaps})}
		defer q.Close()
		for i := range n {
			q.put(fmt.Sprint("o", i), "0")
		}
		cfg := source.Config{
			REST: server.Config(), Resource: savedMaps, MaxWatch: 50 * time.Hour,
			SilenceBudget: 40 * time.Hour,
		}
		for _, o := range change {
			o(&cfg)
		}
		src, err := source.New(cfg, q.Sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- src.Run(ctx) }()
		<-q.Synced()
		synctest.Wait()
		fn(q)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (q *quiet) put(name, n string) string {
	q.t.Helper()
	u, err := q.server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"n": n},
	})
	if err != nil {
		q.t.Fatal(err)
	}
	return u.GetResourceVersion()
}

// own puts an object as an own write: its answer is overlaid.
func (q *quiet) own(name string) {
	q.t.Helper()
	q.put(name, "own")
	u, err := q.server.Object(savedMaps, "ns", name)
	if err != nil {
		q.t.Fatal(err)
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		q.t.Fatal(err)
	}
	if _, err := q.Put(source.JSON, raw); err != nil {
		q.t.Fatal(err)
	}
}

// other raises the version of the server by a resource outside the watch.
func (q *quiet) other() string {
	q.t.Helper()
	q.others++
	u, err := q.server.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("s", q.others)}})
	if err != nil {
		q.t.Fatal(err)
	}
	return u.GetResourceVersion()
}

func (q *quiet) lists() int { return q.server.Log().Count(quietLists) }

// all runs n waits at once and returns their duration and the number of lists.
func (q *quiet) all(n int, wait func() error) (time.Duration, int) {
	q.t.Helper()
	begun, lists := time.Now(), q.lists()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := wait(); err != nil {
				q.t.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(begun), q.lists() - lists
}

// One list serves a thousand waits on a quiet watch, and lists are at least a second apart.
func TestBarrierOnAQuietWatch(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		version := q.other()
		took, lists := q.all(1000, func() error { return q.WaitFor(q.ctx, version) })
		if took > 150*time.Millisecond || lists != 1 {
			t.Errorf("WaitFor took %v and %d lists", took, lists)
		}
		if q.Version() < version {
			t.Errorf("the store is at %s, want %s", q.Version(), version)
		}
		if took, lists := q.all(10, func() error { return q.WaitFor(q.ctx, version) }); took != 0 || lists != 0 {
			t.Errorf("a wait for a reached version took %v and %d lists", took, lists)
		}
		q.other()
		if took, lists := q.all(1000, func() error { return q.Barrier(q.ctx) }); took > 1100*time.Millisecond || lists != 1 {
			t.Errorf("Barrier took %v and %d lists", took, lists)
		}
		var wg sync.WaitGroup
		before := q.lists()
		for range 50 { // one after the other, for ten seconds
			<-time.After(200 * time.Millisecond)
			version := q.other()
			wg.Go(func() {
				begun := time.Now()
				if err := q.WaitFor(q.ctx, version); err != nil || time.Since(begun) > 1200*time.Millisecond {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
			})
		}
		wg.Wait()
		if n := q.lists() - before; n > 12 {
			t.Errorf("%d lists in ten seconds", n)
		}
		<-time.After(10 * time.Second)
		begun := time.Now()
		if err := q.Barrier(q.ctx); err != nil || time.Since(begun) > 10*time.Millisecond {
			t.Errorf("a single barrier took %v, %v", time.Since(begun), err)
		}
	})
}

// A barrier waits for a missing addition, change, deletion or replacement, and for nothing else.
func TestBarrierWaitsForMissingChanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		change func(q *quiet)
		check  func(q *quiet) bool
	}{
		{"an object", func(q *quiet) { q.put("new", "1") }, func(q *quiet) bool {
			_, ok := q.Get(store.Key{Namespace: "ns", Name: "new"})
			return ok
		}},
		{"a change", func(q *quiet) { q.put("o1", "1") }, func(q *quiet) bool {
			r, _ := q.Get(store.Key{Namespace: "ns", Name: "o1"})
			return r.Version() > "3"
		}},
		{"a deletion", func(q *quiet) { _ = q.server.Remove(savedMaps, "ns", "o1") }, func(q *quiet) bool {
			return q.Len() == 2
		}},
		{
			"a replacement", func(q *quiet) { _ = q.server.Remove(savedMaps, "ns", "o1"); q.put("o1", "0") },
			func(q *quiet) bool {
				r, ok := q.Get(store.Key{Namespace: "ns", Name: "o1"})
				return ok && r.Version() > "4"
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
				hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
				tc.change(q)
				version := q.other()
				done := make(chan error, 2)
				go func() { done <- q.Barrier(q.ctx) }()
				go func() { done <- q.WaitFor(q.ctx, version) }()
				<-time.After(20 * time.Second)
				if n := q.lists(); len(done) > 0 || n > 1 {
					t.Fatalf("%d of 2 waits returned while the watch is behind, after %d lists", len(done), n)
				}
				ctx, cancel := context.WithTimeout(q.ctx, time.Second)
				defer cancel()
				if err := q.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(err.Error(), "the watch has not delivered") {
					t.Errorf("the reason is missing: %v", err)
				}
				hold.Release()
				synctest.Wait()
				if len(done) < 2 || !tc.check(q) {
					t.Fatalf("%d of 2 waits returned when the watch has caught up", len(done))
				}
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// An object that was created and deleted before the list of a barrier is never delivered. The watch may still send both
// events later.
func TestBarrierAfterAShortLivedObject(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		c := q.Subscribe(store.SubscribeOptions{From: store.FromNow})
		defer c.Close()
		hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
		q.put("short", "1")
		_ = q.server.Remove(savedMaps, "ns", "short")
		if err := q.Barrier(q.ctx); err != nil {
			t.Fatal(err)
		}
		at := q.Version()
		q.server.Watches(apiserver.Match{})[0].Cut()
		hold.Release()
		<-time.After(time.Minute)
		if events := drain(c); len(events) != 1 || events[0].Type != store.Synced {
			t.Errorf("events %v, want SYNCED alone", summary(events))
		}
		watches := q.server.Log().Select(apiserver.Match{Verb: "watch", Resource: "configmaps"})
		if got := watches[len(watches)-1].Query.Get("resourceVersion"); len(watches) != 2 || got != at {
			t.Errorf("the %dth watch resumes at %s, want %s", len(watches), got, at)
		}
		version := q.put("o1", "1")
		if err := q.WaitFor(q.ctx, version); err != nil {
			t.Error(err)
		}
	})
}

// A read after a barrier does not return an own write that another client has undone. The watch may have delivered
// neither change.
func TestBarrierAfterAnUndoneOwnWrite(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		c := q.Subscribe(store.SubscribeOptions{From: store.FromNow})
		defer c.Close()
		drain(c)
		hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
		q.own("new")
		if _, ok := q.Get(store.Key{Namespace: "ns", Name: "new"}); !ok {
			t.Error("the own write is not overlaid")
		}
		_ = q.server.Remove(savedMaps, "ns", "new")
		if err := q.Barrier(q.ctx); err != nil {
			t.Fatal(err)
		}
		if r, ok := q.Get(store.Key{Namespace: "ns", Name: "new"}); ok {
			t.Errorf("the object is read at %s", r.Version())
		}
		synctest.Wait()
		if events := drain(c); len(events) != 1 || events[0].Type != store.Deleted {
			t.Errorf("events %v, want its deletion", summary(events))
		}
		hold.Release()
		synctest.Wait()
		if events := drain(c); len(events) > 0 {
			t.Errorf("then %v", summary(events))
		}
	})
}

// In a large scope the first page is enough if the watch catches up soon. Otherwise all pages have one version.
func TestABarrierOverManyPages(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 1200, func(q *quiet) {
		before := q.lists()
		q.put("o7", "1")
		if err := q.Barrier(q.ctx); err != nil {
			t.Fatal(err)
		}
		if n := q.lists() - before; n != 1 {
			t.Errorf("%d pages though the watch had caught up", n)
		}
		q.other()
		if took, n := q.all(100, func() error { return q.Barrier(q.ctx) }); n != 2 || took > 1200*time.Millisecond {
			t.Errorf("%d pages after %v on a quiet watch, want 2", n, took)
		}
		last := q.server.Log().Select(quietLists)
		if accept := last[len(last)-1].Header.Get("Accept"); !strings.Contains(accept, "PartialObjectMetadataList") {
			t.Errorf("the survey requests more than metadata: %s", accept)
		}
		// No caller waits any more, so the remaining pages are not read.
		<-time.After(time.Second)
		q.other()
		before = q.lists()
		ctx, cancel := context.WithTimeout(q.ctx, 50*time.Millisecond)
		defer cancel()
		if err := q.Barrier(ctx); err == nil {
			t.Error("no error after the deadline")
		}
		<-time.After(time.Second)
		if n := q.lists() - before; n > 2 {
			t.Errorf("%d pages without a waiting caller", n)
		}
	})
}

// The surveys for a version that the server does not have become less frequent.
func TestWaitForAFutureVersion(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		ctx, cancel := context.WithTimeout(q.ctx, time.Minute)
		defer cancel()
		if err := q.WaitFor(ctx, "999999"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := q.lists(); n > 12 {
			t.Errorf("%d lists in a minute", n)
		}
		canceled, cancel := context.WithCancel(q.ctx)
		cancel()
		before := q.lists()
		if err := q.WaitForNamespace(canceled, "ns", "999999"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if n := q.lists() - before; n != 0 {
			t.Errorf("%d lists for a caller that does not wait", n)
		}
	})
}

// A failed list is repeated. A refused list ends the barrier, as does a scope that was never listed.
func TestBarrierWhoseListFails(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		q.server.On(apiserver.Match{Verb: "list", Times: 2}, apiserver.Answer(apiserver.Failure(503)))
		if err := q.Barrier(q.ctx); err != nil {
			t.Error(err)
		}
		<-time.After(10 * time.Second)
		rule := q.server.On(apiserver.Match{Verb: "list"}, apiserver.Answer(apiserver.Failure(403)))
		if err := q.Barrier(q.ctx); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want the refusal", err)
		}
		rule.Off()
		<-time.After(10 * time.Second)
		q.Store.Sink("other").Report(source.Status{
			Phase: source.Degraded, Reason: source.ReasonForbidden, Err: context.DeadlineExceeded,
		})
		if err := q.Barrier(q.ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the reason why a scope was not listed", err)
		}
	})
}

// A barrier does not wait for an object that cannot be read. With versions that have no order, it compares them for
// equality.
func TestBarriersOfOddServers(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		if err := q.server.Poison(savedMaps, "ns", "o1", func(json []byte) []byte {
			return []byte(strings.Replace(string(json), `"uid":"`, `"labels":[],"uid":"`, 1))
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		q.other()
		if took, _ := q.all(10, func() error { return q.Barrier(q.ctx) }); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
	onQuietWatch(t, apiserver.Options{OpaqueVersions: true}, 3, func(q *quiet) {
		version := q.other()
		if took, lists := q.all(10, func() error { return q.WaitFor(q.ctx, version) }); took > time.Second || lists != 1 {
			t.Errorf("opaque versions: %v and %d lists", took, lists)
		}
		hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
		q.put("o1", "1")
		done := make(chan error, 1)
		go func() { done <- q.Barrier(q.ctx) }()
		<-time.After(5 * time.Second)
		if len(done) > 0 {
			t.Error("the barrier returned though a change is missing")
		}
		hold.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Each scope is listed in its namespace, with the selectors of the watch.
func TestABarrierOfSeveralScopes(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		q.all(1, func() error { return q.Barrier(q.ctx) })
		version := q.other()
		if _, lists := q.all(100, func() error { return q.Barrier(q.ctx) }); lists != 2 {
			t.Errorf("%d lists, want one of each scope", lists)
		}
		for _, r := range q.server.Log().Select(quietLists) {
			if r.Namespace == "" || r.Query.Get("fieldSelector") != "metadata.name!=x" {
				t.Errorf("asked for %s", r.Path+"?"+r.Query.Encode())
			}
		}
		if err := q.WaitForNamespace(q.ctx, "ns", version); err != nil {
			t.Error(err)
		}
		go q.DropScope("two")
		if err := q.Barrier(q.ctx); err != nil {
			t.Error(err)
		}
	}, source.Namespaces("ns", "two"), source.Fields("metadata.name!=x"))
}

// A rollback ends the barriers that wait, or lets them succeed; none waits for ever. Later barriers work.
func TestABarrierAcrossALostHistory(t *testing.T) {
	t.Parallel()
	onQuietWatch(t, apiserver.Options{}, 3, func(q *quiet) {
		before := q.server.Revision()
		q.put("o3", "1")
		synctest.Wait()
		hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
		q.put("o1", "1")
		done := make(chan error, 1)
		go func() { done <- q.Barrier(q.ctx) }()
		<-time.After(time.Second)
		if err := q.server.Rollback(before); err != nil {
			t.Fatal(err)
		}
		for _, w := range q.server.Watches(apiserver.Match{}) {
			w.Cut()
		}
		q.server.Compact(1)
		hold.Release()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, store.ErrEpoch) {
				t.Error(err)
			}
		case <-time.After(100 * time.Hour):
			t.Fatal("the barrier waits for ever")
		}
		if err := q.Barrier(q.ctx); err != nil || q.Len() != 3 {
			t.Errorf("then: %v, %d objects", err, q.Len())
		}
	})
}
