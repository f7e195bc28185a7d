package alloc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// Two or three processes allocate and release slots of a few objects, without a leader or with a changing one. The
// watch of each lags by its own time. Processes crash at any point, watches end, lists are repeated and answers are
// lost. Other writers change the same objects, wipe their status, delete them and create them again.
//
// Each write and each return of a value is checked: no value that was given back is recorded, and no slot gets a second
// value. The returned values must be linearizable. At the end every resource of the provider is in a slot of an
// existing object.

// step is one action, drawn in advance.
type step struct {
	what  string
	n     int
	after time.Duration
}

var (
	slotNames = []string{"ip", "port"}
	steps     = []string{
		"change", "change", "hold", "release", "relist", "disconnect", "lose answer", "lose request", "conflict",
		"crash", "crash", "delete", "create", "create", "rotate", "rotate", "provider fails", "provider is slow",
		"provider is slow",
		"wipe slot", "wipe slots", "wipe status", "wipe status", "lead",
		"during a call", "during a call", "during a call", "during a call",
	}
	lags = []int{0, 0, 5, 20, 150, 150, 3000} // of the watch of a process, in ms
)

func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		schedule := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				what: rapid.SampledFrom(steps).Draw(rt, "what"), n: rapid.IntRange(0, 11).Draw(rt, "n"),
				after: time.Duration(rapid.SampledFrom([]int{0, 1, 3, 20, 200, 2000}).Draw(rt, "ms")) * time.Millisecond,
			}
		}), 1, 24).Draw(rt, "schedule")
		how := setting{
			seed: rapid.Uint64().Draw(rt, "seed"),
			lags: rapid.SliceOfN(rapid.SampledFrom(lags), 2, 3).Draw(rt, "lags"),
			pace: rapid.SampledFrom([]int{0, 5, 40, 400}).Draw(rt, "pace"),
			lead: rapid.IntRange(0, 3).Draw(rt, "lead") == 0,
		}
		var problems []string
		synctest.Test(t, func(t *testing.T) { problems = play(t, schedule, how) })
		if len(problems) > 0 {
			rt.Fatalf("%d problems: %v", len(problems), problems)
		}
	})
}

// setting is constant during a run.
type setting struct {
	seed uint64
	lags []int // of the watch of each process
	pace int   // latency of the provider, in ms
	lead bool  // one process works at a time
}

// world is the state of one run.
type world struct {
	setting
	leader atomic.Int32
	t      *testing.T
	ctx    context.Context
	server *apiserver.Server
	cloud  *cloud
	start  time.Time
	quiet  atomic.Bool // the schedule has ended

	mu       sync.Mutex
	rand     *rand.Rand
	problems []string
	history  []porcupine.Operation
	rotate   map[string]bool // names of objects whose slots must be released once
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func play(t *testing.T, schedule []step, how setting) []string {
	w := &world{
		setting: how, t: t, ctx: t.Context(), start: time.Now(), rand: rand.New(rand.NewPCG(how.seed, 1)),
		rotate: map[string]bool{},
	}
	w.cloud = &cloud{w: w, live: map[string]string{}, gone: map[string]bool{}, given: map[string]time.Time{}}
	resources := testbed.Resources()
	resources[len(resources)-1].Validate = w.validate
	w.server = testbed.Server(t, apiserver.Options{Resources: resources})
	defer w.server.Close()
	names := []string{"one", "two"}
	for _, n := range names {
		w.put(n)
	}
	var processes []*process
	for i := range how.lags {
		processes = append(processes, w.process(i))
	}
	var holds []*apiserver.Hold
	var do func(step)
	do = func(s step) {
		name := names[s.n%len(names)]
		switch s.what {
		case "during a call": // of the provider: another step changes the object
			w.cloud.interrupt(func() {
				do(step{what: []string{"wipe status", "wipe slots", "rotate", "delete", "wipe status", "lead"}[s.n%6], n: s.n / 6})
			})
		case "change":
			w.change(name, func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"n": fmt.Sprintf("%d-%d", s.n, time.Now().UnixNano())})
			})
		case "hold":
			holds = append(holds, w.server.HoldEvents(apiserver.Match{Resource: "gateways"}))
		case "release":
			for _, h := range holds {
				h.Release()
			}
			holds = nil
		case "relist":
			w.server.Compact(0)
			w.server.DropConnections()
		case "disconnect":
			w.server.DropConnections()
		case "lose answer":
			w.server.On(apiserver.Match{Verb: "patch", Times: 1 + s.n/4}, apiserver.DropAfter())
		case "lose request":
			w.server.On(apiserver.Match{Verb: "patch", Times: 1 + s.n/4}, apiserver.Drop())
		case "conflict":
			w.server.On(apiserver.Match{Verb: "patch", Times: 1}, apiserver.Before(func(context.Context, apiserver.Request) {
				w.change(name, func(u *unstructured.Unstructured) {
					u.SetLabels(map[string]string{"c": fmt.Sprint(time.Now().UnixNano())})
				})
			}))
		case "crash":
			i := s.n % len(processes)
			processes[i].crash()
			processes[i] = w.process(i)
		case "delete":
			_ = w.server.Delete(w.ctx, testbed.Gateways, "a", name, metav1.DeleteOptions{})
		case "create":
			if _, err := w.server.Object(testbed.Gateways, "a", name); err != nil {
				w.put(name)
			}
		case "wipe slot":
			w.wipe(name, "status", "allocated", slotNames[s.n/2%2])
		case "wipe slots":
			w.wipe(name, "status", "allocated")
		case "wipe status":
			w.wipe(name, "status")
		case "lead":
			w.leader.Store(int32(s.n % len(processes)))
		case "rotate":
			w.mu.Lock()
			w.rotate[name] = true
			w.mu.Unlock()
		case "provider fails":
			w.cloud.fails.Add(int32(s.n))
		case "provider is slow":
			w.cloud.slow.Add(int32(s.n))
		}
	}
	for _, s := range schedule {
		<-time.After(s.after)
		do(s)
	}
	for _, h := range holds {
		h.Release()
	}
	w.server.ClearFaults()
	w.cloud.fails.Store(0) // endless failures of the provider would outlast the minute
	w.cloud.slow.Store(0)
	w.quiet.Store(true)
	<-time.After(time.Minute)
	synctest.Wait()
	for _, p := range processes {
		p.crash()
	}
	w.checkConsistent(names)
	return w.problems
}

func (w *world) put(name string) {
	g := testbed.New("a", name)
	if _, err := w.server.Put(g); err != nil {
		w.problem("cannot put: %v", err)
	}
}

// wipe removes a field, as writers do that do not know slots.
func (w *world) wipe(name string, path ...string) {
	w.change(name, func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) })
}

// change changes an object as other writers do, if it exists. It never overwrites other changes.
func (w *world) change(name string, change func(*unstructured.Unstructured)) {
	if _, err := w.server.Change(testbed.Gateways, "a", name, change); err != nil && !apierrors.IsNotFound(err) {
		w.problem("cannot change %s: %v", name, err)
	}
}

// validate is called by the server before it stores a write of a client.
func (w *world) validate(_ context.Context, obj, old *unstructured.Unstructured) error {
	if old == nil {
		return nil
	}
	was, is := slotsIn(old), slotsIn(obj)
	for _, name := range slotNames {
		a, b := was[name], is[name]
		switch {
		case a.Value != "" && b.Value != a.Value && !a.Releasing:
			w.problem("slot %s of %s had value %q and was given %q", name, obj.GetName(), a.Value, b.Value)
		case a.Key != "" && b.Key != a.Key && !a.Releasing:
			w.problem("slot %s of %s lost its key", name, obj.GetName())
		case b.Value != "" && !b.Releasing && w.cloud.gaveBack(b.Value, time.Now()):
			w.problem("slot %s of %s holds %s, which was given back", name, obj.GetName(), b.Value)
		}
	}
	return nil
}

func slotsIn(u *unstructured.Unstructured) alloc.Slots {
	raw, _ := json.Marshal(u)
	var g gateway
	_ = json.Unmarshal(raw, &g)
	return g.Status.Allocated
}

// checkConsistent checks that the allocated and the recorded values are the same.
func (w *world) checkConsistent(names []string) {
	recorded := map[string]string{}
	for _, n := range names {
		g := testbed.Stored(w.server, client.Key{Namespace: "a", Name: n})
		if g == nil {
			continue
		}
		if g.DeletionTimestamp != nil {
			w.problem("%s is still being deleted: %+v", n, g.Status.Allocated)
		}
		for _, slot := range slotNames {
			if g.Status.Allocated[slot].Value == "" {
				w.problem("slot %s of %s has no value: %+v", slot, n, g.Status.Allocated[slot])
			}
			recorded[g.Status.Allocated[slot].Key] = g.Status.Allocated[slot].Value
		}
	}
	w.cloud.mu.Lock()
	for key, value := range w.cloud.live {
		if recorded[key] != value {
			w.problems = append(w.problems, fmt.Sprintf("%s is an orphan: the slot of its key holds %q", value, recorded[key]))
		}
	}
	w.cloud.mu.Unlock()
	if !porcupine.CheckOperations(register, w.history) {
		w.problem("the results of Once are no history of slots that are set once: %+v", w.history)
	}
}

// returned is the result of a call of Once for one generation of a slot.
type returned struct{ slot, value string }

// register is a slot that is set once: every caller gets the first value.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			slot := o.Output.(returned).slot
			by[slot] = append(by[slot], o)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, _, output any) (bool, any) {
		if got := output.(returned).value; state == "" || state == got {
			return true, got
		}
		return false, state
	},
}

// process is a controller without a leader.
type process struct {
	w     *world
	id    int
	host  *testbed.Host
	c     *client.Client
	dead  atomic.Bool
	stop  context.CancelFunc
	loops sync.WaitGroup
}

var (
	errCrashed    = errors.New("crashed")
	errNotLeading = errors.New("another one leads")
)

func (p *process) leads() bool { return !p.w.lead || int(p.w.leader.Load()) == p.id }

func (w *world) process(id int) *process {
	cfg := w.server.Config()
	if lag := time.Duration(w.lags[id]) * time.Millisecond; lag > 0 {
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return lagging{rt, lag} })
	}
	h := testbed.NewHost(w.t, cfg, testbed.Mapper(testbed.Resources()))
	h.Start(w.ctx)
	p := &process{w: w, id: id, host: h, c: h.Client()}
	ctx, stop := context.WithCancel(w.ctx)
	p.stop = stop
	ctx = binding.With(alloc.WithFinalizer(ctx, finalizer), binding.Binding{Fence: func() error {
		switch {
		case p.dead.Load():
			return errCrashed
		case !p.leads():
			return errNotLeading
		}
		return nil
	}})
	handle, err := h.Cache().Acquire(testbed.GroupVersion.WithKind("Gateway"))
	if err != nil {
		w.problem("cannot watch: %v", err)
	}
	for _, name := range []string{"one", "two"} {
		p.loops.Go(func() {
			select {
			case <-handle.Synced():
			case <-ctx.Done():
				return
			}
			for ctx.Err() == nil {
				if p.leads() {
					_ = p.reconcile(ctx, name)
				}
				select {
				case <-ctx.Done():
				case <-time.After(w.pause()):
				}
			}
		})
	}
	return p
}

func (w *world) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet.Load() {
		return 3 * time.Second
	}
	return time.Duration(1+w.rand.IntN(300)) * time.Millisecond
}

// chance returns true once in n calls.
func (w *world) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n) == 0
}

// crash ends a process at once: it sends no further request, and discards pending results.
func (p *process) crash() {
	p.dead.Store(true)
	p.stop()
	p.loops.Wait()
	_ = p.host.Stop()
}

// reconcile is one pass over one object.
func (p *process) reconcile(ctx context.Context, name string) error {
	g, from := &gateway{}, client.Reader(p.c)
	if p.w.chance(3) { // a live read may be newer than the cache
		from = p.c.Live()
	}
	if err := from.Get(ctx, client.Key{Namespace: "a", Name: name}, g); err != nil {
		return err
	}
	if g.DeletionTimestamp != nil {
		for _, slot := range slotNames {
			if err := alloc.Release(ctx, p.c, g, slot, p.w.cloud.release); err != nil {
				return err
			}
		}
		return client.Modify(ctx, p.c, g, func(g *gateway) error {
			if held := alloc.Held(g); len(held) > 0 {
				return fmt.Errorf("held: %v", held)
			}
			g.Finalizers = nil
			return nil
		})
	}
	if !slices.Contains(g.Finalizers, finalizer) {
		if err := client.Modify(ctx, p.c, g, func(g *gateway) error {
			g.Finalizers = []string{finalizer}
			return nil
		}); err != nil {
			return err
		}
	}
	p.w.mu.Lock()
	rotate := p.w.rotate[name]
	delete(p.w.rotate, name)
	p.w.mu.Unlock()
	for _, slot := range slotNames {
		if s := g.Status.Allocated[slot]; rotate || s.Releasing {
			if err := alloc.Release(ctx, p.c, g, slot, p.w.cloud.release); err != nil {
				return err
			}
		}
		if err := p.once(ctx, g, slot); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) once(ctx context.Context, g *gateway, slot string) error {
	began := time.Since(p.w.start)
	live := p.w.chance(3)
	opts := []alloc.Option{alloc.Discard(p.w.cloud.discard)}
	if live {
		opts = append(opts, alloc.Live())
	}
	value, err := alloc.Once(ctx, p.c, g, slot, p.w.cloud.create, opts...)
	if err != nil {
		return err
	}
	if live && p.w.cloud.gaveBack(value, p.w.start.Add(began)) {
		p.w.problem("%s was given back before a call of Once with Live returned it", value)
	}
	var back gateway
	if err := p.c.Get(ctx, client.KeyOf(g), &back); err != nil {
		return err
	}
	s := back.Status.Allocated[slot]
	if s.Value != value { // the slot was released meanwhile
		return nil
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.history = append(p.w.history, porcupine.Operation{
		ClientId: p.id, Call: began.Nanoseconds(), Output: returned{s.Key, value},
		Return: time.Since(p.w.start).Nanoseconds(),
	})
	return nil
}
