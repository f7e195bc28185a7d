package compiled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// news is set when a retry makes sense.
type news struct{ set atomic.Bool }

func (n *news) Set() { n.set.Store(true) }

// take reports whether news is set, and resets it.
func (n *news) take() bool { return n.set.Swap(false) }

// hookBench has hooks whose compiler takes as long as the test says, and counts its calls.
type hookBench struct {
	t     *testing.T
	store *cache.Store
	sinks map[string]source.Sink
	hooks *Cache
	stop  func()

	mu       sync.Mutex
	version  int
	compiled map[string]int           // by name and expression
	slow     map[string]chan struct{} // by namespace
}

func newHookBench(t *testing.T) *hookBench {
	b := &hookBench{t: t, compiled: map[string]int{}, slow: map[string]chan struct{}{}, sinks: map[string]source.Sink{}}
	gvr := v1alpha1.WebhooksResource
	b.store = store.New(store.Options{
		Resource: gvr, Kind: gvr.GroupVersion().WithKind(v1alpha1.KindWebhook),
		Namespaced: true,
	})
	b.hooks = New(b.store, func(ctx context.Context, d webhook.Definition) (*webhook.Compiled, error) {
		b.mu.Lock()
		b.compiled[d.Name+" "+d.Response.Success]++
		slow := b.slow[d.Namespace]
		b.mu.Unlock()
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return webhook.Compile(d)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.hooks.Run(ctx) })
	b.stop = func() { cancel(); running.Wait(); b.store.Close() }
	return b
}

// put stores a version of a Webhook.
func (b *hookBench) put(namespace, name, success string, generation int64) cache.Key {
	b.t.Helper()
	b.version++
	w := &v1alpha1.Webhook{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindWebhook},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name), Generation: generation,
			ResourceVersion: fmt.Sprint(1000 + b.version),
		},
		Spec: v1alpha1.WebhookSpec{
			Request:  v1alpha1.WebhookRequest{URL: "https://example.com"},
			Response: v1alpha1.WebhookResponse{Success: success},
		},
	}
	sink := b.sinks[namespace]
	if sink == nil {
		sink = b.store.Sink(namespace)
		b.sinks[namespace] = sink
		sink.Replace().Commit(source.Commit{Version: "0"})
	}
	raw, err := json.Marshal(w)
	if err != nil {
		b.t.Fatal(err)
	}
	o := &source.Object{Raw: raw}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		b.t.Fatal(err)
	}
	kind := source.Added
	if generation > 1 {
		kind = source.Modified
	}
	if err := sink.Apply(kind, o); err != nil {
		b.t.Fatal(err)
	}
	return cache.Key{Namespace: namespace, Name: name}
}

func (b *hookBench) count(of string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.compiled[of]
}

// TestCompileOnce: each version is compiled once, outside the callers' workers. Failures are remembered, too.
func TestCompileOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHookBench(t)
		defer b.stop()
		for generation, tc := range []struct {
			success string
			fails   bool
		}{{"true", false}, {"response.(", true}, {"false", false}} {
			asked := make(chan struct{})
			b.mu.Lock()
			b.slow["a"] = asked
			b.mu.Unlock()
			key := b.put("a", "hook", tc.success, int64(generation+1))
			var all [10]news
			for i := range all {
				if _, err := b.hooks.Get(key, &all[i]); !errors.Is(err, ErrCompiling) {
					t.Fatalf("%s: %v", tc.success, err)
				}
			}
			close(asked)
			synctest.Wait()
			for i := range all {
				if !all[i].take() {
					t.Errorf("%s: number %d was not woken", tc.success, i)
				}
				hook, err := b.hooks.Get(key, &all[i])
				if (err != nil) != tc.fails || (hook == nil) != tc.fails {
					t.Errorf("%s: %v, %v", tc.success, hook, err)
				}
			}
			if _, err := b.hooks.Await(t.Context(), key); (err != nil) != tc.fails {
				t.Errorf("%s: %v", tc.success, err)
			}
			if n := b.count("hook " + tc.success); n != 1 {
				t.Errorf("%s: compiled %d times", tc.success, n)
			}
		}
		if _, err := b.hooks.Get(cache.Key{Namespace: "a", Name: "none"}, &news{}); !errors.Is(err, ErrNoWebhook) {
			t.Errorf("of none: %v", err)
		}
	})
}

// TestCompileDelaysItsNamespace: an endless compilation of one namespace delays no other namespace. Facts about both
// are known.
func TestCompileDelaysItsNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHookBench(t)
		defer b.stop()
		slow := make(chan struct{})
		b.slow["hostile"] = slow
		var hostile, victim news
		for i := range 100 {
			_, _ = b.hooks.Get(b.put("hostile", fmt.Sprint("h", i), "true", 1), &hostile)
		}
		key := b.put("victim", "hook", "true", 1)
		_, _ = b.hooks.Get(key, &victim)
		synctest.Wait()
		if _, err := b.hooks.Get(key, &victim); err != nil || !victim.take() || hostile.take() {
			t.Errorf("another namespace: %v", err)
		}
		if got, ok := b.hooks.Times(cache.Key{
			Namespace: "hostile",
			Name:      "h99",
		}); got.Timeout != v1alpha1.DefaultWebhookTimeout ||
			!ok {
			t.Errorf("timeout %v, %v", got.Timeout, ok)
		}
		b.put("hostile", "h50", "false", 2) // edited before it was compiled
		close(slow)
		synctest.Wait()
		if b.count("h50 true") != 0 || b.count("h50 false") != 1 {
			t.Errorf("what was edited: %v", b.compiled)
		}
	})
}

// TestEditWhileCompiling: the result of an older version is not used, and waiting callers get the new one.
func TestEditWhileCompiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHookBench(t)
		defer b.stop()
		slow := make(chan struct{})
		b.slow["a"] = slow
		var n news
		key := b.put("a", "hook", "true", 1)
		_, _ = b.hooks.Get(key, &n)
		synctest.Wait()
		b.put("a", "hook", "false", 2)
		close(slow)
		synctest.Wait()
		if !n.take() {
			t.Fatal("a waiter is woken and asks again")
		}
		_, _ = b.hooks.Get(key, &n)
		synctest.Wait()
		hook, err := b.hooks.Get(key, &n)
		if err != nil || hook.Definition().Response.Success != "false" {
			t.Errorf("%v, %v", hook, err)
		}
	})
}

// TestCompiledIsBounded: if memory is short, the namespace that holds the most is evicted first, and each namespace
// keeps one.
func TestCompiledIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHookBench(t)
		defer b.stop()
		const room = 10
		b.hooks.most = room * weigh(webhook.Definition{Response: webhook.Response{Success: "true"}})
		key := b.put("victim", "hook", "true", 1)
		_, _ = b.hooks.Get(key, &news{})
		synctest.Wait()
		for i := range 10 * room {
			_, _ = b.hooks.Get(b.put("hostile", fmt.Sprint("h", i), "true", 1), &news{})
		}
		synctest.Wait()
		if _, err := b.hooks.Get(key, &news{}); err != nil || b.count("hook true") != 1 {
			t.Errorf("another namespace lost its Webhook: %v", err)
		}
		kept := 0
		b.hooks.mu.Lock()
		for _, k := range b.hooks.known {
			if k.kept.Queued() {
				kept++
			}
		}
		b.hooks.mu.Unlock()
		if kept > room || kept < room/2 {
			t.Errorf("%d are kept, of %d", kept, room)
		}
		last := cache.Key{Namespace: "hostile", Name: fmt.Sprint("h", 10*room-1)}
		if _, err := b.hooks.Get(last, &news{}); err != nil {
			t.Errorf("the one used last: %v", err)
		}
		b.hooks.most = 0
		_, _ = b.hooks.Get(b.put("third", "hook", "true", 1), &news{})
		synctest.Wait()
		if _, err := b.hooks.Get(cache.Key{Namespace: "third", Name: "hook"}, &news{}); err != nil {
			t.Errorf("the only one of its namespace: %v", err)
		}
	})
}

// TestAwaitEnds: a caller that waits for the compilation of others stops waiting at its own deadline.
func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHookBench(t)
		defer b.stop()
		b.slow["a"] = make(chan struct{})
		key := b.put("a", "hook", "true", 1)
		_, _ = b.hooks.Get(key, &news{})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.hooks.Await(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err %v", err)
		}
	})
}

// TestWeight: a Webhook that would take too much memory is invalid, and is not compiled.
func TestWeight(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("{{.a}}", 20_000)
	long := strings.Repeat("x", 200_000) + "{{.a}}"
	for name, tc := range map[string]struct {
		reason string
		body   string
		want   bool
	}{
		"Actions": {"Actions take many times their text.", body, false},
		"Text":    {"The text between them does not.", long, true},
	} {
		h := New(nil, func(context.Context, webhook.Definition) (*webhook.Compiled, error) {
			return &webhook.Compiled{}, nil
		})
		_, err := h.compileLight(t.Context(), webhook.Definition{Request: webhook.Request{Body: &tc.body}})
		var field *webhook.FieldError
		if (err == nil) != tc.want || err != nil && !errors.As(err, &field) {
			t.Errorf("%s: %s %v", name, tc.reason, err)
		}
	}
}

// TestPinned: calls under way pin a bounded amount of memory, but each namespace can always make one call.
func TestPinned(t *testing.T) {
	t.Parallel()
	hook := func(namespace string, i, length int) *webhook.Compiled {
		body := strings.Repeat("{{1}}", length)
		w, err := webhook.Compile(webhook.Definition{
			Namespace: namespace, Name: fmt.Sprint(i), Request: webhook.Request{URL: "https://example.com", Body: &body},
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	var p pinned
	var taken []*webhook.Compiled
	large := hook("hostile", 0, 10_000)
	for range 1000 {
		if !p.pin(large) {
			t.Fatal("many calls of one Webhook take its memory once")
		}
		taken = append(taken, large)
	}
	for i := 1; ; i++ {
		w := hook("hostile", i, 10_000)
		if !p.pin(w) {
			break
		}
		taken = append(taken, w)
	}
	if weight := p.weight.All(); weight > maxPinned/2 {
		t.Errorf("one namespace has %d of %d", weight, maxPinned)
	}
	for i := range 3 {
		if !p.pin(hook(fmt.Sprint("victim", i), 0, 10_000)) {
			t.Error("another namespace has to wait")
		}
	}
	for _, w := range taken {
		p.unpin(w)
	}
	if len(p.calls) != 3 {
		t.Errorf("left over: %v", p.calls)
	}
	for i := range 3 {
		if p.weight.Of(fmt.Sprint("victim", i)) == 0 {
			t.Errorf("victim %d has no weight", i)
		}
	}
	if p.weight.Of("hostile") != 0 {
		t.Errorf("left over: %v", p.weight)
	}
}
