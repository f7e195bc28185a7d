package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// crash kills a process at one of its boundaries: before or after a step or a write of the object.
type crash struct {
	mu     sync.Mutex
	left   int // boundaries left before the crash
	at     string
	dead   bool
	engine *flow.Engine
}

func (c *crash) boundary(format string, args ...any) (dies bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left != 0 {
		return c.dead
	}
	c.at, c.dead = fmt.Sprintf(format, args...), true
	return true
}

// hook is a hook of the engine. A fiber of a dead process does nothing more and saves nothing.
func (c *crash) hook(h flow.Handle, path string, after bool) {
	when := map[bool]string{false: "before", true: "after"}[after]
	if c.boundary("%s %s", when, path) {
		c.die(h)
		panic("the process is dead")
	}
}

func (c *crash) die(h flow.Handle) { h.Cancel(fmt.Errorf("crash: %w", flow.ErrInterrupted)) }

// on makes writes of the object boundaries. No request of a dead process arrives.
func (c *crash) on(s *apiserver.Server) {
	writes := func(all bool) func(apiserver.Request) bool {
		return func(r apiserver.Request) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return r.Resource == "gateways" && slices.Contains([]string{"patch", "update"}, r.Verb) && (all || c.dead)
		}
	}
	kill := func(when string) func(context.Context, apiserver.Request) {
		return func(_ context.Context, r apiserver.Request) {
			if c.boundary("%s the %s of %s/%s", when, r.Verb, r.Resource, r.Subresource) {
				if h, ok := c.engine.Find(reconcile.FiberKey("gateways", web)); ok {
					c.die(h)
				}
			}
		}
	}
	s.On(apiserver.Match{Func: writes(true)}, apiserver.After(kill("after")))
	s.On(apiserver.Match{Func: writes(false)}, apiserver.Drop())
}

// revive removes the dead process and reports whether there was one.
func (c *crash) revive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.dead
	c.dead = false
	return was
}

// outside is the external world: its things by name, and how often each was made.
type outside struct {
	mu   sync.Mutex
	held map[string]string // name → idempotency key
	made map[string]int
}

// make makes a thing unless it was made with this key before. Without a key it always makes another one.
func (o *outside) make(name, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if have, ok := o.held[name]; ok && key != "" && have == key {
		return
	}
	o.held[name] = key
	o.made[name]++
}

func (o *outside) remove(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, name)
}

func (o *outside) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.held[name]
	return ok
}

// flow reserves an address, which only the idempotency key protects from a second reservation. It waits, starts two
// servers that Done can observe, and registers them.
func (o *outside) flow() *flow.Flow[gateway] {
	undo := func(name string) flow.Option {
		return flow.Undo(func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			if f.Attempt() == 0 {
				return f.Retry(time.Second)
			}
			o.remove(name)
			return f.Next()
		})
	}
	server := func(name string) *flow.Flow[gateway] {
		return flow.New(name, flow.Step("start", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			o.make(name, "")
			return f.Delay(time.Second)
		}, flow.Done(func(context.Context, *flow.Fiber[gateway]) (bool, error) { return o.has(name), nil }), undo(name)))
	}
	return flow.New("up",
		flow.Step("reserve", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			o.make("address", f.IdempotencyKey())
			return f.Delay(time.Second)
		}, flow.Save(), undo("address")),
		flow.Fork("servers", func(_ context.Context, f *flow.Fiber[gateway]) ([]flow.Child, error) {
			return []flow.Child{server("one").Child("", f.Packet), server("two").Child("", f.Packet)}, nil
		}),
		flow.Step("register", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			o.make("entry", f.IdempotencyKey())
			return f.Next() // the step does not park, so no saved position shows that it began
		}, undo("entry")),
		flow.Step("report", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			task, _ := flow.Use[*reconcile.Task[gateway]](f)
			task.SetStatus(func(g *gateway) error { g.Status.Note = map[string]string{"phase": "Ready"}; return nil })
			return f.Next()
		}),
	)
}

// A process dies at any boundary of a flow or of its undo, and the next process resumes. Nothing is made twice, and no
// thing remains at the end.
func TestACrashAtEveryBoundaryOfAFlow(t *testing.T) {
	t.Parallel()
	crashEverywhere(t, false,
		"before up/reserve", "after up/reserve", "after up/servers[]/start", "after up/report",
		"after the patch of gateways/status",
		"after the patch of gateways/", "before up/undo/servers[]/start", "after up/undo/reserve")
}

// Nothing is left if the object is deleted before the next process sees it, wherever the last process died.
func TestAnObjectIsDeletedAfterACrash(t *testing.T) {
	t.Parallel()
	crashEverywhere(t, true, "before up/reserve", "after up/servers[]/start", "before up/register", "after up/register",
		"after up/report")
}

// either replaces the index of a server. The servers start concurrently, so the process may die at either.
var either = strings.NewReplacer("[0]", "[]", "[1]", "[]")

// crashEverywhere runs a flow once for each boundary, at which its process dies. The object is deleted after the flow
// has completed, or while no process runs. The crashes must include the given ones.
func crashEverywhere(t *testing.T, deleted bool, wants ...string) {
	t.Helper()
	places := map[string]bool{}
	for n := 1; ; n++ {
		at := ""
		inBubble(t, func(b *bench) {
			c := &crash{left: n}
			c.on(b.server)
			o := &outside{held: map[string]string{}, made: map[string]int{}}
			fl, s := o.flow(), &script{}
			declare := func() {
				c.engine = flow.NewEngine(flow.EngineOptions{Hook: c.hook})
				reconcile.Flow(b.host, "gateways", c.engine, reconcile.Fibers[gateway, gateway]{
					Flow: fl, Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
					OnEnd: func(_ *gateway, r flow.Result) { _ = s.note(r.Status.String()) },
				}, reconcile.MaxInterval(-1), reconcile.Finalizer(finalizer))
			}
			remove := func() {
				b.change(func(u *unstructured.Unstructured) {
					now := metav1.Now()
					u.SetDeletionTimestamp(&now)
				})
			}
			settle := func(meanwhile func()) {
				testbed.Settle(20 * time.Second)
				if c.revive() {
					b.restart(c.engine)
					meanwhile()
					declare()
					b.start()
					testbed.Settle(20 * time.Second)
				}
			}
			declare()
			b.put("web")
			b.start()
			if deleted {
				settle(remove)
			} else {
				settle(func() {})
				g := b.stored()
				if g.Status.Note["phase"] != "Ready" || g.Status.Flow == nil || g.Status.Flow.Reason != "completed" {
					b.t.Errorf("the status is %+v, with position %+v", g.Status, g.Status.Flow)
				}
				for _, name := range []string{"address", "one", "two", "entry"} {
					if o.made[name] != 1 || !o.has(name) {
						b.t.Errorf("%s was made %d times", name, o.made[name])
					}
				}
				remove()
				settle(func() {})
			}
			at = c.at
			if g := b.stored(); g != nil && len(g.Finalizers) > 0 && (at != "" || !deleted) {
				b.t.Errorf("its finalizers are %v, its position is %+v", g.Finalizers, g.Status.Flow)
			}
			if len(o.held) > 0 && (at != "" || !deleted) {
				b.t.Errorf("things are left: %v", o.held)
			}
			if b.t.Failed() {
				b.t.Logf("that was after a crash %s; the fibers have %v", at, s.ran)
			}
			b.close(c.engine)
		})
		if at == "" || t.Failed() {
			break
		}
		places[either.Replace(at)] = true
	}
	for _, want := range wants {
		if !places[want] {
			t.Errorf("there was no crash %s, but %v", want, places)
		}
	}
}
