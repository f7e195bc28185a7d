package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// script controls the steps of a test and records them.
type script struct {
	mu   sync.Mutex
	ran  []string
	ends []flow.Status
	fail func(step string) error
	hold flow.Signal
}

func (s *script) note(step string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = append(s.ran, step)
	if s.fail != nil {
		return s.fail(step)
	}
	return nil
}

func (s *script) want(t *testing.T, reason string, steps ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(steps, s.ran); diff != "" {
		t.Fatalf("%s: steps that ran (-want +got):\n%s", reason, diff)
	}
}

// flow has the steps a, which writes the status, wait, which parks, and c.
func (s *script) flow(undo bool) *flow.Flow[gateway] {
	step := func(name string) flow.StepFunc[gateway] {
		return func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			if task, ok := flow.Use[*reconcile.Task[gateway]](f); ok {
				task.SetStatus(func(g *gateway) error { g.Status.Seen = f.Packet.Generation; return nil })
			}
			if err := s.note(name); err != nil {
				return f.Fail(err)
			}
			return f.Next()
		}
	}
	opts := func(name string) []flow.Option {
		if !undo {
			return nil
		}
		return []flow.Option{flow.Undo(step("undo-" + name))}
	}
	return flow.New("up",
		flow.Step("a", step("a"), opts("a")...),
		flow.Step("wait", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
			if err := s.note("wait"); err != nil {
				return f.Fail(err)
			}
			return f.Await(&s.hold)
		}),
		flow.Step("c", step("c"), opts("c")...),
	)
}

func (b *bench) flows(s *script, undo bool, opts ...reconcile.Option) (c *reconcile.Controller, e *flow.Engine) {
	return b.fibers(s, reconcile.Fibers[gateway, gateway]{Flow: s.flow(undo)}, opts...)
}

func (b *bench) fibers(
	s *script, how reconcile.Fibers[gateway, gateway], opts ...reconcile.Option,
) (c *reconcile.Controller, e *flow.Engine) {
	e = flow.NewEngine(flow.EngineOptions{})
	how.Position = func(g *gateway) **flow.Position { return &g.Status.Flow }
	how.OnEnd = func(_ *gateway, r flow.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends = append(s.ends, r.Status)
	}
	return reconcile.Flow(b.host, "gateways", e, how, append([]reconcile.Option{reconcile.MaxInterval(-1)}, opts...)...), e
}

func (b *bench) stored() *gateway { return testbed.Stored(b.server, web) }

// restart ends the process and its engine, and creates another one.
func (b *bench) restart(e *flow.Engine) {
	b.t.Helper()
	if err := b.host.Stop(); err != nil {
		b.t.Fatal(err)
	}
	if n := e.Live(); n != 0 {
		b.t.Errorf("%d fibers outlive their controller", n)
	}
	if err := e.Close(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	b.host = b.process()
}

func TestAFlowPerObject(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		c, e := b.flows(&s, false)
		defer e.Close(context.Background())
		b.put("web")
		b.start()
		s.want(t, "it parks", "a", "wait")
		if p := b.stored().Status.Flow; p == nil || p.Step != "wait" || b.stored().Status.Seen != 1 {
			t.Fatalf("saved %+v, with it %+v", p, b.stored().Status)
		}
		if st := c.Describe(0).Counts; st != (inspect.Counts{Flows: 1}) {
			t.Errorf("a parked fiber occupies the controller: %+v", st)
		}
		b.change(label("x"))
		b.settle()
		s.want(t, "a change of the same generation starts nothing", "a", "wait")
		s.hold.Set()
		b.settle()
		s.want(t, "it goes on", "a", "wait", "c")
		if d := c.Describe(0); d.Flows != 0 {
			t.Errorf("after the fiber has ended the counts are %+v", d.Counts)
		}
		if p := b.stored().Status.Flow; p == nil || p.Reason != "completed" || !p.Ended {
			t.Fatalf("saved %+v, want a completed position", p)
		}
		b.change(label("y"))
		b.settle()
		s.want(t, "one run for each generation", "a", "wait", "c")
		b.restart(e)
		_, e = b.flows(&s, false)
		defer e.Close(context.Background())
		b.start()
		s.want(t, "that it has completed is known after a restart", "a", "wait", "c")
	})
}

func TestFlowResumesAfterARestart(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		_, e := b.flows(&s, false)
		b.put("web")
		b.start()
		b.restart(e)
		_, e = b.flows(&s, false)
		defer e.Close(context.Background())
		b.start()
		s.want(t, "the step that was parked, not the first", "a", "wait", "wait")
		s.hold.Set()
		b.settle()
		s.want(t, "and on", "a", "wait", "wait", "c")
	})
}

func TestTheSpecPreemptsAFlow(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		_, e := b.flows(&s, false)
		defer e.Close(context.Background())
		b.put("web")
		b.start()
		b.change(size(2))
		b.settle()
		s.want(t, "from the first step", "a", "wait", "a", "wait")
		s.hold.Set()
		b.settle()
		if diff := cmp.Diff([]flow.Status{flow.Cancelled, flow.Completed}, s.ends); diff != "" {
			t.Errorf("ends (-want +got):\n%s", diff)
		}
		if got := b.stored().Status.Flow; got.Generation != 2 {
			t.Errorf("completed generation %d, want 2", got.Generation)
		}
	})
}

func TestAFailedFlow(t *testing.T) {
	boom := errors.New("boom")
	for reason, test := range map[string]struct {
		err  error
		runs int
	}{
		"an error is retried after a growing back-off": {boom, 3},
		"a terminal error waits for the spec":          {reconcile.AsTerminal(boom), 1},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				s := script{fail: func(string) error { return test.err }}
				c, e := b.flows(&s, false, reconcile.MaxAttempts(3), reconcile.WithBackoff(reconcile.Backoff{Base: time.Second}))
				defer e.Close(context.Background())
				b.put("web")
				b.start()
				testbed.Settle(time.Minute)
				s.want(t, reason, slices.Repeat([]string{"a"}, test.runs)...)
				fails := c.Failures()
				if len(fails) != 1 || fails[0].Attempts != test.runs || fails[0].Class != reconcile.Stopped ||
					!errors.Is(fails[0].Err, boom) {
					t.Fatalf("failures: %+v", fails)
				}
				s.mu.Lock()
				s.fail = nil
				s.mu.Unlock()
				b.change(size(2))
				b.settle()
				if fails := c.Failures(); len(fails) != 0 && fails[0].Class == reconcile.Stopped {
					t.Errorf("failures after a change of the spec: %+v", fails)
				}
			})
		})
	}
}

// The Retry of a step does not repeat a terminal error. It repeats other errors as often as declared.
func TestATerminalErrorOfAStepWithRetry(t *testing.T) {
	boom := errors.New("boom")
	for reason, test := range map[string]struct {
		err  error
		want []string
	}{
		"terminal": {reconcile.AsTerminal(boom), []string{"try"}},
		"not":      {boom, []string{"try", "try", "try"}},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				fl := flow.New("up", flow.Step("a", flow.Do(func(context.Context, *gateway) error {
					_ = s.note("try")
					return test.err
				}), flow.Retry(flow.Backoff{Base: time.Millisecond, Attempts: 3})))
				c, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: fl}, reconcile.MaxAttempts(1))
				defer e.Close(context.Background())
				b.put("web")
				b.start()
				s.want(t, reason, test.want...)
				if fails := c.Failures(); len(fails) != 1 || fails[0].Class != reconcile.Stopped {
					t.Errorf("failures: %+v", fails)
				}
			})
		})
	}
}

func TestDeletionUndoesAFlow(t *testing.T) {
	for reason, test := range map[string]struct {
		before func(b *bench, s *script)
		want   []string
	}{
		"parked in the middle: undone from there": {func(*bench, *script) {}, []string{"undo-a"}},
		"completed: all steps are undone": {
			func(b *bench, s *script) { s.hold.Set(); b.settle() },
			[]string{"undo-c", "undo-a"},
		},
		"completed, then restarted: the former run is undone, too": {func(b *bench, s *script) {
			s.hold.Set()
			b.settle()
			s.hold.Clear()
			b.change(size(2))
			b.settle()
		}, []string{"undo-c", "undo-a"}},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				s.fail = func(string) error {
					if g := b.stored(); g == nil || len(g.Finalizers) == 0 {
						return errors.New("a step runs without the finalizer")
					}
					return nil
				}
				_, e := b.flows(&s, true)
				defer e.Close(context.Background())
				b.put("web")
				b.start()
				test.before(b, &s)
				s.mu.Lock()
				s.ran = nil
				s.mu.Unlock()
				b.change(func(u *unstructured.Unstructured) {
					now := metav1.Now()
					u.SetDeletionTimestamp(&now)
				})
				b.settle()
				s.want(t, reason, test.want...)
				if g := b.stored(); g != nil && len(g.Finalizers) > 0 {
					t.Errorf("the finalizer still exists: %v", g.Finalizers)
				}
			})
		})
	}
}

func TestInvalidFlowIsAnErrorOfTheHost(t *testing.T) {
	bubble(t, func(b *bench) {
		reconcile.Flow(b.host, "gateways", nil, reconcile.Fibers[gateway, int]{})
		b.start()
		if err := b.host.Stop(); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		b.host = b.process()
		b.start()
	})
}
