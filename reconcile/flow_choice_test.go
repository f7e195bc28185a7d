package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// noted returns a flow of one step, which records its name and its packet.
func (s *script) noted(name string) *flow.Flow[gateway] {
	return flow.New(name, flow.Step("go", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
		if err := s.note(name); err != nil {
			return f.Fail(err)
		}
		return f.Next()
	}))
}

// close ends the process and starts a new one.
func (b *bench) close(e *flow.Engine) {
	b.restart(e)
	b.start()
}

func TestCompletedFlowRunsAgainIfNeeded(t *testing.T) {
	boom := errors.New("boom")
	for reason, test := range map[string]struct {
		needed   func(asked int) (bool, error)
		failures int
		want     []string
	}{
		"not needed":  {func(int) (bool, error) { return false, nil }, 0, []string{"up"}},
		"needed once": {func(asked int) (bool, error) { return asked == 1, nil }, 0, []string{"up", "up"}},
		"an error is retried": {
			func(asked int) (bool, error) { return asked == 3, errIf(boom, asked < 3) }, 0,
			[]string{"up", "up"},
		},
		"a terminal error stops": {
			func(int) (bool, error) { return true, reconcile.AsTerminal(boom) }, 1,
			[]string{"up"},
		},
		"a panic is an error": {func(int) (bool, error) { panic(boom) }, 1, []string{"up"}},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				var mu sync.Mutex
				asked, open := 0, false
				c, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{
					Flow: s.noted("up"),
					Needed: func(_ context.Context, g *gateway) (bool, error) {
						mu.Lock()
						defer mu.Unlock()
						if !open { // Needed is also called at the end of a fiber
							return false, nil
						}
						asked++
						return test.needed(asked)
					},
				})
				b.put("web")
				b.start()
				s.want(t, "the first time", "up")
				mu.Lock()
				open = true
				mu.Unlock()
				b.change(label("x"))
				testbed.Settle(10 * time.Second)
				s.want(t, reason, test.want...)
				if asked == 0 {
					t.Error("Needed was not called")
				}
				fails := c.Failures()
				if len(fails) != test.failures || len(fails) > 0 && !errors.Is(fails[0].Err, boom) {
					t.Errorf("failures: %+v", fails)
				}
				b.close(e)
			})
		})
	}
}

func errIf(err error, is bool) error {
	if is {
		return err
	}
	return nil
}

// Needed is called with the observed state, also after a restart, and not while a fiber runs.
func TestNeededIsCalledBetweenFibers(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		var asked []string
		how := func() reconcile.Fibers[gateway, gateway] {
			return reconcile.Fibers[gateway, gateway]{
				Flow: s.flow(false), Needed: func(_ context.Context, g *gateway) (bool, error) {
					asked = append(asked, g.Labels["l"])
					return g.Labels["l"] == "again", nil
				},
			}
		}
		_, e := b.fibers(&s, how())
		b.put("web")
		b.start()
		b.change(label("x"))
		b.settle()
		if len(asked) > 0 {
			t.Fatalf("Needed is called while a fiber runs: %v", asked)
		}
		s.hold.Set()
		b.settle()
		if !slices.Equal(asked, []string{"x"}) {
			t.Errorf("Needed is called with %v, want the state at the end of the fiber", asked)
		}
		s.want(t, "the first run", "a", "wait", "c")
		b.restart(e)
		b.change(label("again"))
		_, e = b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: s.flow(false), Needed: how().Needed, Timeout: time.Hour})
		s.hold.Clear()
		b.start()
		s.want(t, "from the first step", "a", "wait", "c", "a", "wait")
		if p := b.stored().Status.Flow; p.Ended || p.Step != "wait" {
			t.Errorf("position %+v, want that of the second run", p)
		}
		b.close(e)
	})
}

func TestFlowForTheStateOfTheObject(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		slow := flow.New("slow",
			flow.Step("note", flow.Do(func(context.Context, *gateway) error { return s.note("slow") })),
			flow.Step("hold", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next { return f.Await(&s.hold) }),
		)
		flows := map[int]*flow.Flow[gateway]{2: slow, 3: flow.New[gateway]("nothing")}
		how := reconcile.Fibers[gateway, gateway]{
			Flow: s.noted("up"), Choose: func(g *gateway) *flow.Flow[gateway] { return flows[g.Spec.Size] },
		}
		_, e := b.fibers(&s, how)
		b.put("web")
		b.start()
		s.want(t, "nil is Flow", "up")
		b.change(size(2))
		b.settle()
		s.want(t, "another one", "up", "slow")
		b.restart(e)
		c, e := b.fibers(&s, how)
		b.start()
		s.want(t, "it is chosen again after a restart, and resumed", "up", "slow")
		if p := b.stored().Status.Flow; p.Flow != "slow" || p.Step != "hold" {
			t.Errorf("position %+v, want slow at hold", p)
		}
		s.hold.Set()
		b.settle()
		if p := b.stored().Status.Flow; p.Flow != "slow" || p.Reason != "completed" {
			t.Errorf("position %+v, want that slow has completed", p)
		}
		b.change(size(3))
		testbed.Settle(time.Hour)
		fails := c.Failures()
		if len(fails) != 1 || fails[0].Attempts != 1 || fails[0].Class != reconcile.Stopped ||
			!errors.Is(fails[0].Err, flow.ErrInvalid) {
			t.Errorf("failures of a chosen flow that is empty: %+v", fails)
		}
		b.change(size(4))
		b.settle()
		s.want(t, "the next spec", "up", "slow", "up")
		b.close(e)
	})
}

// The duration of a fiber counts across restarts. A fiber that exceeds it fails, and the next one starts from the
// beginning.
func TestFlowTimeout(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		how := reconcile.Fibers[gateway, gateway]{Flow: s.flow(false), Timeout: time.Minute}
		_, e := b.fibers(&s, how)
		b.put("web")
		b.start()
		testbed.Settle(40 * time.Second)
		b.restart(e)
		c, e := b.fibers(&s, how, reconcile.WithBackoff(reconcile.Backoff{Base: 5 * time.Second, Cap: 5 * time.Second}))
		b.start()
		s.want(t, "it is resumed", "a", "wait", "wait")
		var found flow.Position
		s.mu.Lock()
		s.fail = func(step string) error {
			if step == "a" {
				found = *b.stored().Status.Flow
			}
			return nil
		}
		s.mu.Unlock()
		testbed.Settle(26 * time.Second) // a minute in total, and the back-off
		fails := c.Failures()
		if len(fails) != 1 || !errors.Is(fails[0].Err, flow.ErrTimeout) {
			t.Fatalf("failures: %+v", fails)
		}
		if !found.Ended || found.Reason != "failed" || found.Step != "wait" {
			t.Errorf("the next fiber found position %+v, want that of the one that has failed", found)
		}
		s.want(t, "a new fiber, with its full time", "a", "wait", "wait", "a", "wait")
		s.hold.Set()
		b.settle()
		if fails := c.Failures(); len(fails) > 0 {
			t.Errorf("failures at the end: %+v", fails)
		}
		b.close(e)
	})
}

// An undo resumes at its position after a restart, after an error, and while the spec changes.
func TestUndoResumes(t *testing.T) {
	for reason, cut := range map[string]func(b *bench, s *script, e *flow.Engine, again func() *flow.Engine) *flow.Engine{
		"the process ends": func(b *bench, _ *script, e *flow.Engine, again func() *flow.Engine) *flow.Engine {
			b.restart(e)
			e = again()
			b.start()
			return e
		},
		"the process ends, the spec changes": func(
			b *bench, _ *script, e *flow.Engine, again func() *flow.Engine,
		) *flow.Engine {
			b.restart(e)
			b.change(size(2))
			e = again()
			b.start()
			return e
		},
		"the spec changes": func(b *bench, _ *script, e *flow.Engine, _ func() *flow.Engine) *flow.Engine {
			b.change(size(2))
			b.settle()
			return e
		},
		"a step fails": func(b *bench, s *script, e *flow.Engine, _ func() *flow.Engine) *flow.Engine {
			s.mu.Lock()
			failed := false
			s.fail = func(step string) error {
				if step == "undo-a" && !failed {
					failed = true
					return errors.New("boom")
				}
				return nil
			}
			s.mu.Unlock()
			return e
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				var hold flow.Signal
				step := func(name string) flow.StepFunc[gateway] {
					return flow.Do(func(context.Context, *gateway) error { return s.note(name) })
				}
				fl := flow.New("up",
					flow.Step("a", step("a"), flow.Undo(step("undo-a"))),
					flow.Step("b", step("b"), flow.Undo(func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
						return f.Await(&hold)
					})),
					flow.Step("c", step("c"), flow.Undo(step("undo-c"))),
					flow.Step("wait", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next { return f.Await(&s.hold) }),
					flow.Step("d", step("d"), flow.Undo(step("undo-d"))),
				)
				declare := func() *flow.Engine {
					_, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: fl}, reconcile.Finalizer(finalizer))
					return e
				}
				e := declare()
				b.put("web")
				b.start()
				if err := b.client().Delete(b.ctx, testbed.New("a", "web")); err != nil {
					t.Fatal(err)
				}
				b.settle()
				s.want(t, "the undoing is parked", "a", "b", "c", "undo-c")
				if p := b.stored().Status.Flow; p.Flow != "up/undo" || p.Step != "b" || p.Ended {
					t.Errorf("position %+v, want that of the undoing", p)
				}
				e = cut(b, &s, e, declare)
				hold.Set()
				b.settle()
				want := []string{"a", "b", "c", "undo-c", "undo-a"}
				if reason == "a step fails" {
					want = append(want, "undo-a") // the failed step, and no other one
				}
				s.want(t, reason, want...)
				if g := b.stored(); g != nil {
					t.Errorf("the object still exists: %+v", g)
				}
				b.close(e)
			})
		})
	}
}

// A failure before a fiber starts fails the reconciliation. A panic in a callback of a fiber has no other effect.
func TestFunctionsOfAFlowThatPanic(t *testing.T) {
	boom := errors.New("boom")
	for reason, change := range map[string]func(how *reconcile.Fibers[gateway, gateway]){
		"Choose": func(how *reconcile.Fibers[gateway, gateway]) {
			how.Choose = func(*gateway) *flow.Flow[gateway] { panic(boom) }
		},
		"Packet": func(how *reconcile.Fibers[gateway, gateway]) {
			how.Packet = func(context.Context, *reconcile.Task[gateway]) (*gateway, error) { panic(boom) }
		},
		"an error of Packet": func(how *reconcile.Fibers[gateway, gateway]) {
			how.Packet = func(context.Context, *reconcile.Task[gateway]) (*gateway, error) { return nil, boom }
		},
		"a step": func(how *reconcile.Fibers[gateway, gateway]) {
			how.Flow = flow.New("up", flow.Step("a", func(context.Context, *flow.Fiber[gateway]) flow.Next { panic(boom) }))
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				how := reconcile.Fibers[gateway, gateway]{Flow: s.noted("up")}
				change(&how)
				c, e := b.fibers(&s, how, reconcile.MaxAttempts(2))
				b.put("web")
				b.start()
				fails := c.Failures()
				if len(fails) != 1 || fails[0].Key != web || fails[0].Attempts != 2 || !errors.Is(fails[0].Err, boom) {
					t.Errorf("failures: %+v", fails)
				}
				if err := b.client().Delete(b.ctx, testbed.New("a", "web")); err != nil {
					t.Error(err)
				}
				b.close(e)
			})
		})
	}
}
