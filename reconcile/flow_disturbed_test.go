package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	requests "github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// effect is an external effect of a step.
type effect struct {
	run  string // the token of the run
	gen  int64
	step string
	undo bool
}

// world records the effects of steps, by object.
type world struct {
	mu   sync.Mutex
	done map[string][]effect
}

func (w *world) note(f *flow.Fiber[gateway], step string, undo bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, _, _ := strings.Cut(f.IdempotencyKey(), "/")
	w.done[f.Packet.Name] = append(w.done[f.Packet.Name],
		effect{run: run, gen: f.Packet.Generation, step: step, undo: undo})
}

func (w *world) of(name string) []effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.done[name])
}

var disturbedSteps = []string{"a", "b", "c", "d"}

// flow has four steps with one effect each. One saves before it starts, one parks, one does neither, and one reports in
// the status. All but the last can be undone.
func (w *world) flow(dead func() bool) *flow.Flow[gateway] {
	step := func(name string, opts ...flow.Option) flow.Node[gateway] {
		return flow.Step(name, func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			if dead() {
				return f.Fail(disturb.ErrLost)
			}
			w.note(f, name, false)
			task, _ := flow.Use[*reconcile.Task[gateway]](f)
			switch name {
			case "b":
				task.SetStatus(func(g *gateway) error { g.Status.Seen = f.Packet.Generation; return nil })
				return f.Delay(time.Second)
			case "d":
				gen := fmt.Sprint(f.Packet.Generation)
				task.SetStatus(func(g *gateway) error { g.Status.Note = map[string]string{"ready": gen}; return nil })
			}
			return f.Next()
		}, opts...)
	}
	undo := func(name string, park bool) flow.Option {
		return flow.Undo(func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			if dead() {
				return f.Fail(disturb.ErrLost)
			}
			w.note(f, name, true)
			if park {
				return f.Delay(time.Second)
			}
			return f.Next()
		})
	}
	return flow.New("up",
		step("a", flow.Save(), flow.Retry(flow.Backoff{}), undo("a", false)),
		step("b", undo("b", true)),
		step("c", undo("c", false)),
		step("d"),
	)
}

// TestDisturbedFlows runs flows for objects that are created, changed and deleted at random while a third of the
// controller's requests fail. For every second seed, the process also crashes and loses its leadership.
func TestDisturbedFlows(t *testing.T) {
	t.Parallel()
	seed.Play(t, 4, func(t *testing.T, seed uint64) {
		inBubble(t, func(b *bench) { b.disturbedFlows(seed) })
	})
}

func (b *bench) disturbedFlows(seed uint64) {
	t := b.t
	restarts := seed%2 == 1
	d := newDisturber(b, seed)
	w := &world{done: map[string][]effect{}}
	lead := newTerms()
	lead.give()
	rnd := rand.New(rand.NewPCG(seed, 2))
	var policy requests.Policy
	if seed%4 >= 2 {
		policy = impatient
	}
	var e *flow.Engine
	var c *reconcile.Controller
	var mu sync.Mutex
	alive := 0
	var ends []string
	process := func() {
		mu.Lock()
		alive++
		me := alive
		mu.Unlock()
		dead := func() bool { mu.Lock(); defer mu.Unlock(); return alive != me }
		b.host = b.disturbed(d, dead, policy)
		e = flow.NewEngine(flow.EngineOptions{})
		c = reconcile.Flow(b.host, "gateways", e, reconcile.Fibers[gateway, gateway]{
			Flow: w.flow(dead), Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
			OnEnd: func(g *gateway, r flow.Result) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, fmt.Sprintf("%s %s generation %d: %s %v", time.Since(epoch), g.Name, g.Generation, r.Status,
					r.Err))
			},
		}, reconcile.MaxInterval(-1), reconcile.Finalizer(finalizer), reconcile.Leader(lead))
		b.host.Start(b.ctx)
	}
	crashes := 0
	crash := func() {
		mu.Lock()
		alive++ // no process is alive
		mu.Unlock()
		if err := b.host.Stop(); err != nil {
			t.Error(err)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		crashes++
		mu.Lock()
		alive--
		mu.Unlock()
		process()
	}
	process()
	names := []string{"one", "two", "three", "four"}
	deleted := map[string]bool{}
	uids := map[string]types.UID{}
	for _, name := range names {
		uids[name] = b.put(name).GetUID()
	}
	for range 12 {
		testbed.Settle(time.Duration(rnd.IntN(2500)) * time.Millisecond)
		name := names[rnd.IntN(len(names))]
		switch n := rnd.IntN(10); {
		case n < 5 && !deleted[name]:
			patch := fmt.Sprintf(`{"spec":{"size":%d}}`, rnd.IntN(1000)+2)
			if err := d.foreign.Patch(b.ctx, testbed.New("a", name),
				client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Error(err)
			}
		case n == 5 && !deleted[name]:
			deleted[name] = true
			if err := d.foreign.Delete(b.ctx, testbed.New("a", name)); err != nil {
				t.Error(err)
			}
		case n < 8 && restarts:
			crash()
		case n < 10 && restarts:
			crashes++
			lead.take()
			testbed.Settle(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			lead.give()
		}
	}
	testbed.Settle(2 * time.Minute)
	problem := func(name, format string, args ...any) {
		t.Errorf("FAIRLEAD_SEED=%d, %d crashes: %s: %s", seed, crashes, name, fmt.Sprintf(format, args...))
	}
	check := func(name string, last int64) {
		did := w.of(name)
		for _, p := range checkEffects(did, last, crashes) {
			problem(name, "%s", p)
		}
	}
	atRest := func() {
		before := d.requested()
		testbed.Settle(time.Hour)
		if n := d.requested() - before; n > 0 {
			problem("at rest", "%d requests", n)
		}
		if st, f := c.Describe(0).Counts, c.Failures(); st != (inspect.Counts{}) || len(f) > 0 || e.Live() > 0 {
			problem("at rest", "%+v, failures %v, %d fibers", st, f, e.Live())
		}
	}
	for _, name := range names {
		g := testbed.Stored(b.server, client.Key{Namespace: "a", Name: name})
		if deleted[name] {
			if g != nil {
				problem(name, "it is still there, with finalizers %v and %+v", g.Finalizers, g.Status.Flow)
			}
			continue
		}
		if p := g.Status.Flow; p == nil || !p.Ended || p.Reason != "completed" || p.Generation != g.Generation ||
			g.Status.Seen != g.Generation || g.Status.Note["ready"] != fmt.Sprint(g.Generation) {
			problem(name, "generation %d is at %+v with %+v", g.Generation, p, g.Status)
		}
		check(name, g.Generation)
	}
	atRest()
	for _, name := range names {
		if !deleted[name] {
			if err := d.foreign.Delete(b.ctx, testbed.New("a", name)); err != nil {
				t.Error(err)
			}
		}
	}
	testbed.Settle(2 * time.Minute)
	for _, name := range names {
		if g := testbed.Stored(b.server, client.Key{Namespace: "a", Name: name}); g != nil {
			problem(name, "it is still there at the end, with finalizers %v and %+v", g.Finalizers, g.Status.Flow)
		}
		check(name, 0)
		for _, p := range checkUndone(w.of(name), crashes, crashes == 0 && policy.Retries == 0) {
			problem(name, "%s", p)
		}
	}
	atRest()
	if t.Failed() {
		for _, name := range names {
			t.Logf("%s: %+v\n%s", name, w.of(name), d.of(name))
		}
		t.Log(strings.Join(ends, "\n"))
	}
	t.Logf("%d requests, %d of them disturbed, %d crashes", d.all, d.hurt, crashes)
	b.close(e)
}

// checkEffects returns what is wrong with the effects for an object. In each run the steps happen in order, once each.
// The run of the last generation, if it is not 0, is complete, and no generation ran twice.
func checkEffects(did []effect, last int64, crashes int) (problems []string) {
	count := map[effect]int{}
	runs := map[int64]map[string]bool{}
	for _, e := range did {
		if e.undo {
			continue
		}
		if runs[e.gen] == nil {
			runs[e.gen] = map[string]bool{}
		}
		runs[e.gen][e.run] = true
		if count[e]++; count[e] > 1+crashes {
			problems = append(problems, fmt.Sprintf("step %s of generation %d was made %d times", e.step, e.gen, count[e]))
		}
		if at := slices.Index(disturbedSteps, e.step); at > 0 {
			before := e
			before.step = disturbedSteps[at-1]
			if count[before] == 0 {
				problems = append(problems, fmt.Sprintf("step %s of generation %d came before %s", e.step, e.gen, before.step))
			}
		}
	}
	for gen, r := range runs {
		if len(r) > 1+crashes {
			problems = append(problems, fmt.Sprintf("there were %d runs of generation %d", len(r), gen))
		}
	}
	if last == 0 {
		return problems
	}
	for _, step := range disturbedSteps {
		if !slices.ContainsFunc(did, func(e effect) bool { return e.gen == last && e.step == step && !e.undo }) {
			problems = append(problems, fmt.Sprintf("step %s was never made for the last generation, %d", step, last))
		}
	}
	return problems
}

// checkUndone returns what is wrong with the undo of an object. Each effect is undone once, in reverse order, and
// otherwise only steps that may have begun. Without a saved position all steps are undone. exact means that every end
// was saved.
func checkUndone(did []effect, crashes int, exact bool) (problems []string) {
	count := map[string]int{}
	made := map[string]bool{}
	before := "z"
	for _, e := range did {
		if !e.undo {
			if made[e.step] = true; before != "z" {
				problems = append(problems, "step "+e.step+" was made after the undoing had begun")
			}
			continue
		}
		if crashes == 0 && e.step >= before {
			problems = append(problems, fmt.Sprintf("%s was undone after %s", e.step, before))
		}
		before = e.step
		count[e.step]++
	}
	for i, step := range disturbedSteps[:3] {
		n := count[step]
		if exact && len(made) > 0 && n > 0 && !made[step] && i > 0 && !made[disturbedSteps[i-1]] {
			problems = append(problems, fmt.Sprintf("step %s was undone although it was never begun", step))
		}
		if made[step] && n == 0 || n > 1+crashes {
			problems = append(problems, fmt.Sprintf("step %s was undone %d times; made: %v", step, n, made[step]))
		}
	}
	return problems
}
