package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/flow/flowtest"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// This file plays all pairs of an outcome of a step and an option, in each place. It plays them without a crash and
// with a crash at every boundary. The observations of the steps and the end of the fiber are the same. An outcome or
// option that is added to its list is paired with all others.

const sec = time.Second

var (
	errBoom = errors.New("boom")
	errGone = errors.New("gone")
)

// seen is the packet: all that its steps know besides the fiber.
type seen struct {
	trace  *flowtest.Trace
	undone *[]string
}

type (
	sfib  = flow.Fiber[seen]
	sstep = flow.StepFunc[seen]
)

// look records what the step observes of its fiber.
func look(f *sfib) {
	var n map[string]bool
	_, err := f.Checkpoint(&n)
	f.Packet.trace.Note(n, err)
	if e := f.Err(); e != nil {
		f.Packet.trace.Note(e, errors.Is(e, flow.ErrTimeout))
	}
}

// outcome is a result of a step. It depends only on what a position saves, and on the clock.
type outcome struct {
	name string
	next func(ctx context.Context, f *sfib) flow.Next
}

// again is for outcomes that lead back to their step: the second time they end.
func again(n flow.Next) func(context.Context, *sfib) flow.Next {
	return func(_ context.Context, f *sfib) flow.Next {
		done := map[string]bool{}
		if _, err := f.Checkpoint(&done); err != nil {
			return f.Fail(err)
		}
		if done[f.Path()] {
			return f.Next()
		}
		done[f.Path()] = true
		if err := f.SetCheckpoint(done); err != nil {
			return f.Fail(err)
		}
		return n
	}
}

func just(n flow.Next) func(context.Context, *sfib) flow.Next {
	return func(context.Context, *sfib) flow.Next { return n }
}

// resumed suspends until two seconds after the step was entered.
func resumed(give func(flow.Token), change func(flow.Next) flow.Next) func(context.Context, *sfib) flow.Next {
	return func(_ context.Context, f *sfib) flow.Next {
		token, at := f.Token(), f.Entered().Add(2*sec)
		return change(f.Suspend(token, func(context.Context) error {
			time.AfterFunc(max(0, time.Until(at)), func() { give(token) })
			return nil
		}))
	}
}

// awaited waits for an event two seconds after the step was entered.
func awaited(err error, more ...flow.Wait) func(context.Context, *sfib) flow.Next {
	return func(_ context.Context, f *sfib) flow.Next {
		at := f.Entered().Add(2 * sec)
		return f.Await(append([]flow.Wait{flow.Func(func(context.Context) (bool, error) {
			if time.Now().Before(at) {
				return false, nil
			}
			return err == nil, err
		}, sec)}, more...)...)
	}
}

// child ends d after the step that forks it was entered, and then runs a function.
func child(f *sfib, d time.Duration, then func(*sfib) flow.Next) flow.Child {
	at := f.Entered().Add(d)
	return flow.New("child",
		flow.Step("wait", func(_ context.Context, f *sfib) flow.Next { return f.Await(flow.Until(at)) }),
		flow.Step("work", func(_ context.Context, f *sfib) flow.Next { return then(f) }),
	).Child("", &seen{f.Packet.trace, f.Packet.undone})
}

func forked(kids func(f *sfib) []flow.Child, opts ...flow.Option) func(context.Context, *sfib) flow.Next {
	return func(_ context.Context, f *sfib) flow.Next { return f.Fork(kids(f), opts...) }
}

func good(f *sfib) flow.Next    { return f.Next() }
func bad(f *sfib) flow.Next     { return f.Fail(errBoom) }
func awful(*sfib) flow.Next     { panic(errBoom) }
func both(f *sfib) []flow.Child { return []flow.Child{child(f, sec, good), child(f, 2*sec, good)} }
func mixed(f *sfib) []flow.Child {
	return []flow.Child{child(f, sec, good), child(f, 2*sec, bad), child(f, 3*sec, good)}
}
func same(n flow.Next) flow.Next { return n }

var yes = flow.Func(func(context.Context) (bool, error) { return true, nil }, sec)

// outcomes returns the outcomes for a step. Its flow has a step "z" and the detours "handler", "detour" and "deep".
func outcomes() []outcome {
	var f *sfib // its methods that return outcomes need no fiber
	zero := &sfib{}
	f = zero
	list := []outcome{
		{"next", just(f.Next())},
		{"next then", just(f.Next().Then("z"))},
		{"goto", just(f.Goto("z"))},
		{"goto a detour", just(f.Goto("detour"))},
		{"goto a deep detour", just(f.Goto("deep"))},
		{"goto nowhere", just(f.Goto("nowhere"))},
		{"end", just(f.End())},
		{"yield", just(f.Yield())},
		{"yield then", just(f.Yield().Then("z"))},
		{"yield to a detour", just(f.Yield().Then("detour"))},
		{"no outcome", just(flow.Next{})},
		{"delay", just(f.Delay(2 * sec))},
		{"long delay", just(f.Delay(10 * sec))},
		{"delay of nothing", just(f.Delay(0))},
		{"delay of less", just(f.Delay(-sec))},
		{"delay then", just(f.Delay(2 * sec).Then("z"))},
		{"delay then a detour", just(f.Delay(2 * sec).Then("detour"))},
		{"delay then a deep detour", just(f.Delay(10 * sec).Then("deep"))},
		{"delay then itself", again(f.Delay(2 * sec).Then("x"))},
		{"long delay then itself", again(f.Delay(10 * sec).Then("x").Else("handler"))},
		{"long delay else", just(f.Delay(10 * sec).Else("handler"))},
		{"delay else a detour", just(f.Delay(10 * sec).Else("detour"))},
		{"retry", just(f.Retry(sec))},
		{"retry of nothing", just(f.Retry(0))},
		{"retry of less", just(f.Retry(-sec))},
		{"long retry else", just(f.Retry(10 * sec).Else("handler"))},
		{"suspend", resumed(func(t flow.Token) { t.Resume("value") }, same)},
		{"suspend then", resumed(func(t flow.Token) { t.Resume("value") },
			func(n flow.Next) flow.Next { return n.Then("z") })},
		{"suspend then a detour", resumed(func(t flow.Token) { t.Resume("value") },
			func(n flow.Next) flow.Next { return n.Then("detour") })},
		{"suspend, with an error", resumed(func(t flow.Token) { t.Fail(errGone) }, same)},
		{"suspend else", resumed(func(t flow.Token) { t.Fail(errGone) },
			func(n flow.Next) flow.Next { return n.Else("handler") })},
		{"suspend for ever", resumed(func(flow.Token) {}, func(n flow.Next) flow.Next { return n.Else("handler") })},
		{"suspend, resumed before", func(_ context.Context, f *sfib) flow.Next {
			token := f.Token()
			token.Resume("early")
			return f.Suspend(token)
		}},
		{"suspend without a token", just(f.Suspend(flow.Token{}).Else("handler"))},
		{"suspend with an action that fails", func(_ context.Context, f *sfib) flow.Next {
			return f.Suspend(f.Token(), func(context.Context) error { return errBoom }).Else("handler")
		}},
		{"await", awaited(nil)},
		{"await one of several", awaited(nil, flow.Timeout(9*sec), &flow.Signal{})},
		{"await an error", awaited(errBoom)},
		{"await a condition that holds", just(f.Await(yes))},
		{"await a time", func(_ context.Context, f *sfib) flow.Next {
			return f.Await(flow.Until(f.Entered().Add(2 * sec))).Then("z")
		}},
		{"await nothing", just(f.Await().Else("handler"))},
		{"await timeout", just(f.Await(&flow.Signal{}, flow.Timeout(2*sec)))},
		{"await timeout else", just(f.Await(&flow.Signal{}, flow.Timeout(2*sec)).Else("handler"))},
		{"await timeout else a detour", just(f.Await(&flow.Signal{}, flow.Timeout(2*sec)).Else("deep"))},
		{
			"await a negative interval",
			just(f.Await(flow.Func(func(context.Context) (bool, error) { return false, nil }, -sec))),
		},
		{
			"await no interval",
			just(f.Await(flow.Func(func(context.Context) (bool, error) { return false, nil }, 0)).Else("handler")),
		},
		{"await a panic", just(f.Await(flow.Func(func(context.Context) (bool, error) { panic(errBoom) }, sec)))},
		{"fork", forked(both)},
		{"fork, limited", forked(both, flow.Limit(1))},
		{"fork with a negative limit", forked(both, flow.Limit(-1))},
		{"fork first", forked(both, flow.First())},
		{"fork with a quorum", forked(mixed, flow.Quorum(2))},
		{"fork with an empty quorum", forked(both, flow.Quorum(0))},
		{"fork with a quorum out of reach", forked(mixed, flow.Quorum(3))},
		{"fork a failing child", forked(mixed)},
		{"fork a failing child, fail-fast", forked(mixed, flow.FailFast())},
		{"fork a child that panics", forked(func(f *sfib) []flow.Child { return []flow.Child{child(f, sec, awful)} })},
		{"fork nothing", forked(func(*sfib) []flow.Child { return nil })},
		{"fork a fork", forked(func(f *sfib) []flow.Child {
			return []flow.Child{child(f, sec, func(k *sfib) flow.Next { return k.Fork(both(f)) })}
		})},
	}
	for i := range list { // after a detour or a retry it ends
		next := list[i].next
		list[i].next = func(ctx context.Context, f *sfib) flow.Next {
			if f.Attempt() > 0 {
				return f.Next()
			}
			return next(ctx, f)
		}
	}
	// These fail more often than a step is retried.
	until := func(n int, fail func(context.Context, *sfib) flow.Next) func(context.Context, *sfib) flow.Next {
		return func(ctx context.Context, f *sfib) flow.Next {
			if f.Attempt() >= n {
				return f.Next()
			}
			return fail(ctx, f)
		}
	}
	return append(list,
		outcome{"fail", until(4, just(f.Fail(errBoom)))},
		outcome{"fail once", until(1, just(f.Fail(errBoom)))},
		outcome{"fail else", until(4, just(f.Fail(errBoom).Else("handler")))},
		outcome{"fail else a detour", until(4, just(f.Fail(errBoom).Else("detour")))},
		outcome{"fail else a deep detour", until(2, just(f.Fail(errBoom).Else("deep")))},
		outcome{"fail with another's timeout", until(4, just(f.Fail(fmt.Errorf("far away: %w", flow.ErrTimeout))))},
		outcome{"await repeatedly", until(4, just(f.Await(&flow.Signal{}, flow.Timeout(2*sec))))},
		outcome{"suspend repeatedly", until(3, resumed(func(t flow.Token) { t.Fail(errGone) }, same))},
		outcome{"panic", until(4, func(context.Context, *sfib) flow.Next { panic(errBoom) })},
	)
}

// variant is an option of the played step or its fiber, or a place of the step.
type variant struct {
	name  string
	opts  []flow.Option
	start flow.StartOptions
	place func(x sstep, opts []flow.Option) []flow.Node[seen]
}

func variants() []variant {
	retry := func(attempts int) flow.Option {
		return flow.Retry(flow.Backoff{Base: sec, Max: sec, Attempts: attempts})
	}
	done := func(fn func(f *sfib) (bool, error)) flow.Option {
		return flow.Done(func(_ context.Context, f *sfib) (bool, error) { return fn(f) })
	}
	in := func(name string, opts ...flow.Option) variant { return variant{name: name, opts: opts} }
	at := func(name string, place func(x sstep, opts []flow.Option) []flow.Node[seen]) variant {
		return variant{name: name, place: place}
	}
	return []variant{
		in("nothing"),
		in("a short deadline", flow.Deadline(sec+sec/2)),
		in("a long deadline", flow.Deadline(5*sec+sec/4)),
		in("retry", retry(3)),
		in("retry until a deadline", retry(9), flow.Deadline(2*sec+sec/2)),
		in("on error", flow.OnError("handler")),
		in("on error, a detour", flow.OnError("detour")),
		in("a deadline and on error", flow.Deadline(sec+sec/2), flow.OnError("handler")),
		in("a deadline and on error, a detour", flow.Deadline(5*sec+sec/4), flow.OnError("detour")),
		in("retry and on error", retry(2), flow.OnError("handler"), flow.Save()),
		in("save", flow.Save()),
		in("save and a deadline", flow.Save(), flow.Deadline(5*sec+sec/4)),
		in("done", done(func(f *sfib) (bool, error) { return f.Attempt() > 0, nil })),
		in("done at once", done(func(*sfib) (bool, error) { return true, nil })),
		in("done fails once", retry(3), done(func(f *sfib) (bool, error) {
			if f.Attempt() == 0 {
				return false, errGone
			}
			return false, nil
		})),
		{name: "a timeout of the fiber", start: flow.StartOptions{Timeout: 5*sec + sec/4}},
		{
			name: "a timeout of the fiber and on error", start: flow.StartOptions{Timeout: 3*sec + sec/4},
			opts: []flow.Option{flow.OnError("handler")},
		},
		at("the last step", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			return append([]flow.Node[seen]{sfrom("x"), szed(), flow.Group("g", flow.Step("x", x, opts...))}, sdetours()...)
		}),
		at("the first step", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			return append([]flow.Node[seen]{flow.Step("x", x, opts...), sfollow(), szed()}, sdetours()...)
		}),
		at("nested groups", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			group := flow.Group("g", flow.Group("h", flow.Step("x", x, opts...)), sfollow())
			return append([]flow.Node[seen]{sfrom("g"), group, szed()}, sdetours()...)
		}),
		at("an inlined flow", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			inner := flow.New("inner", append([]flow.Node[seen]{flow.Step("x", x, opts...), sfollow(), szed()},
				sdetours()...)...)
			return []flow.Node[seen]{sfrom("inner"), flow.Inline(inner)}
		}),
		at("a detour", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			return append([]flow.Node[seen]{sgo("x"), sfollow(), szed(), flow.Detour("x", x, opts...)}, sdetours()...)
		}),
		at("a detour with a deadline and save", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			opts = append(opts, flow.Deadline(5*sec+sec/4), flow.Save())
			return append([]flow.Node[seen]{sgo("x"), sfollow(), szed(), flow.Detour("x", x, opts...)}, sdetours()...)
		}),
		at("a detour of a detour", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			outer := flow.Detour("outer", func(_ context.Context, f *sfib) flow.Next {
				if look(f); f.Attempt() == 0 {
					return f.Delay(sec).Then("x")
				}
				return f.Next()
			})
			return append([]flow.Node[seen]{sgo("outer"), sfollow(), szed(), outer, flow.Detour("x", x, opts...)}, sdetours()...)
		}),
		at("a handler of errors", func(x sstep, opts []flow.Option) []flow.Node[seen] {
			fails := flow.Step("fails", func(_ context.Context, f *sfib) flow.Next { return f.Fail(errGone) }, flow.OnError("x"))
			return append([]flow.Node[seen]{fails, flow.Step("x", x, opts...), sfollow(), szed()}, sdetours()...)
		}),
	}
}

// sfrom returns a step that saves a position, and continues at another step.
func sfrom(to string) flow.Node[seen] {
	return flow.Step("from", func(_ context.Context, f *sfib) flow.Next { return f.Delay(sec).Then(to) }, sundo("from"))
}

// sgo returns a step that takes a detour.
func sgo(to string) flow.Node[seen] {
	return flow.Step("go", func(_ context.Context, f *sfib) flow.Next {
		if look(f); f.Attempt() == 0 {
			return f.Goto(to)
		}
		return f.Next()
	}, flow.Deadline(30*sec), sundo("go"))
}

// sfollow returns the following step. Its deadline is shorter than some of the waits before it.
func sfollow() flow.Node[seen] {
	return flow.Step("y", func(_ context.Context, f *sfib) flow.Next {
		look(f)
		return f.Await(flow.Until(f.Entered().Add(sec)))
	}, flow.Deadline(sec+sec/2), flow.Save(), sundo("y"))
}

// szed returns a later step.
func szed() flow.Node[seen] {
	return flow.Step("z", func(_ context.Context, f *sfib) flow.Next {
		if look(f); f.Attempt() == 0 {
			return f.Retry(sec)
		}
		return f.End()
	}, flow.Deadline(sec+sec/2), sundo("z"))
}

// sdetours returns three detours: an error handler that ends the fiber, one that waits, and one to the latter.
func sdetours() []flow.Node[seen] {
	return []flow.Node[seen]{
		flow.Detour("handler", func(_ context.Context, f *sfib) flow.Next {
			switch look(f); f.Attempt() {
			case 0:
				return f.Retry(sec)
			case 1:
				return f.Await(flow.Until(f.Entered().Add(2 * sec))).Then("handled")
			}
			return f.End()
		}, flow.Deadline(4*sec)),
		flow.Detour("handled", func(_ context.Context, f *sfib) flow.Next {
			look(f)
			return f.Delay(sec).Then("end")
		}, flow.Save()),
		flow.Detour("end", func(_ context.Context, f *sfib) flow.Next { look(f); return f.End() }),
		flow.Detour("detour", func(_ context.Context, f *sfib) flow.Next {
			if look(f); f.Attempt() == 0 {
				return f.Retry(sec)
			}
			return f.Delay(sec)
		}, flow.Deadline(5*sec+sec/4)),
		flow.Detour("deep", func(_ context.Context, f *sfib) flow.Next {
			if look(f); f.Attempt() == 0 {
				return f.Goto("detour")
			}
			return f.Await(flow.Until(f.Entered().Add(3 * sec)))
		}),
	}
}

func sundo(name string) flow.Option {
	return flow.Undo(func(_ context.Context, f *sfib) flow.Next {
		if f.Attempt() == 0 {
			return f.Retry(sec)
		}
		*f.Packet.undone = append(*f.Packet.undone, name)
		return f.Next()
	})
}

// The race detector makes a play ten times slower. With it the test plays a quarter of the outcomes, chosen by the
// commit. Without it the test plays all.
func TestEveryOutcomeWithEveryOptionSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			apart(t, func(t *testing.T) {
				list := outcomes()
				if seed.Race {
					list = seed.Sample(t, list, 4)
				}
				for _, o := range list {
					x := func(ctx context.Context, f *sfib) flow.Next { look(f); return o.next(ctx, f) }
					nodes := append([]flow.Node[seen]{sfrom("x"), flow.Step("x", x, append(v.opts, sundo("x"))...), sfollow(), szed()},
						sdetours()...)
					if v.place != nil {
						nodes = v.place(x, v.opts)
					}
					play(t, v.name+", "+o.name, flow.New("f", nodes...), v.start, 1)
				}
			})
		})
	}
}

// Two crashes in a row show whether the first restart saves everything again. The test plays a quarter of the outcomes,
// chosen by the commit.
func TestEveryOutcomeSurvivesTwoCrashes(t *testing.T) {
	t.Parallel()
	for _, v := range variants() {
		if v.name != "save and a deadline" && v.name != "a detour of a detour" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, o := range seed.Sample(t, outcomes(), 4) {
				t.Run(o.name, func(t *testing.T) {
					t.Parallel()
					x := func(ctx context.Context, f *sfib) flow.Next { look(f); return o.next(ctx, f) }
					nodes := append([]flow.Node[seen]{flow.Step("x", x, v.opts...), szed()}, sdetours()...)
					if v.place != nil {
						nodes = v.place(x, v.opts)
					}
					apart(t, func(t *testing.T) { play(t, v.name+", "+o.name, flow.New("f", nodes...), v.start, 2) })
				})
			}
		})
	}
}

// play crashes a flow at every boundary and compares the observations of its steps. A failed run is undone from the
// furthest step on.
func play(t *testing.T, name string, fl *flow.Flow[seen], opt flow.StartOptions, crashes int) {
	t.Helper()
	if opt.Key = "ns/x"; opt.Timeout == 0 {
		opt.Timeout = time.Hour
	}
	var all, first []string
	plays := 0
	world := func(testing.TB) flowtest.World[seen] {
		trace, undone, positions := &flowtest.Trace{Times: true}, &[]string{}, &flow.Memory{}
		plays++
		return flowtest.World[seen]{
			Packet: func() *seen { return &seen{trace, undone} }, Positions: positions, Trace: trace, Crashes: crashes,
			Check: func(t testing.TB, err error) {
				if t.Failed() {
					t.Logf("that was %s", name)
				}
				if err == nil {
					return
				}
				opt := flow.StartOptions{Key: opt.Key, Positions: positions}
				undo(t, fl, opt, &seen{trace, undone})
				if plays == 1 {
					first = slices.Clone(*undone)
					*undone = nil
					undo(t, fl, flow.StartOptions{}, &seen{trace, undone})
					all = slices.Clone(*undone)
					return
				}
				// The progress of an interrupted run is unknown, so all of it is undone.
				if !slices.Equal(*undone, first) && !slices.Equal(*undone, all) {
					t.Errorf("%s: undone %v, without a crash %v of %v", name, *undone, first, all)
				}
			},
		}
	}
	flowtest.Crash(t, fl, opt, world)
	plays = 0
	flowtest.Move(t, fl, opt, world)
	if plays < 3 {
		t.Errorf("%s: only %d plays", name, plays)
	}
}

func undo(t testing.TB, fl *flow.Flow[seen], opt flow.StartOptions, p *seen) {
	t.Helper()
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.Background())
	h, err := fl.Undo(context.Background(), e, p, opt)
	if err != nil {
		t.Error(err)
		return
	}
	if err := h.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}
