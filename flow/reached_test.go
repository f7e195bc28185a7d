package flow_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

type valueKey struct{}

// Undo begins at the furthest step that any run of the key has reached, not at the last saved step.
func TestUndoBeginsAtTheFurthestStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		var undone []string
		undo := func(name string) flow.Option {
			return flow.Undo(func(_ context.Context, f *flow.Fiber[bool]) flow.Next {
				undone = append(undone, name)
				return f.Next()
			})
		}
		// It parks in a if the packet is true, else in c.
		park := func(when bool) flow.StepFunc[bool] {
			return func(_ context.Context, f *flow.Fiber[bool]) flow.Next {
				if *f.Packet == when {
					return f.Suspend(f.Token(), nil)
				}
				return f.Next()
			}
		}
		fl := flow.New("f", flow.Step("a", park(true), undo("a")), flow.Step("b", park(true), undo("b")),
			flow.Step("c", park(false), undo("c")))
		var saved flow.Memory
		opt := flow.StartOptions{Key: "ns/x", Positions: &saved}
		for _, early := range []bool{false, true} {
			opt.Generation++
			if _, err := fl.Start(t.Context(), e, &early, opt); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if p, _, _ := saved.Load(t.Context(), "ns/x"); p.Step != "a" || p.Reached != "c" {
			t.Fatalf("saved %+v, want step a and c reached", p)
		}
		h, err := fl.Undo(t.Context(), e, new(bool), opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil || !slices.Equal(undone, []string{"c", "b", "a"}) {
			t.Errorf("undone %v, %v", undone, err)
		}
	})
}

// An interrupted fiber keeps its position, and the next one resumes it.
func TestAnInterruptedFiberKeepsItsPosition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		var saved flow.Memory
		fl := flow.New("f", flow.Step("a", func(_ context.Context, f *flow.Fiber[int]) flow.Next {
			return f.Delay(time.Hour)
		}),
			flow.Step("b", func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() }))
		h, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "ns/x", Positions: &saved})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.Cancel(flow.ErrInterrupted)
		<-h.Done()
		if p, ok, _ := saved.Load(t.Context(), "ns/x"); !ok || p.Ended || p.Step != "b" {
			t.Errorf("saved %+v, %v", p, ok)
		}
	})
}

// The same holds if the next fiber starts before the code of the interrupted one has returned.
func TestASuccessorResumesAnInterruptedFiber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		var saved flow.Memory
		var ran []string
		note := func(f *flow.Fiber[int]) int { ran = append(ran, f.Path()); return len(ran) }
		leave := make(chan struct{})
		fl := flow.New("f",
			flow.Step("a", func(_ context.Context, f *flow.Fiber[int]) flow.Next { note(f); return f.Delay(time.Hour) }),
			flow.Step("b", func(_ context.Context, f *flow.Fiber[int]) flow.Next {
				if note(f) == 2 {
					<-leave
				}
				return f.Next()
			}))
		opt := flow.StartOptions{Key: "ns/x", Positions: &saved}
		first, err := fl.Start(t.Context(), e, new(int), opt)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		first.Cancel(flow.ErrInterrupted)
		second, err := fl.Start(t.Context(), e, new(int), opt)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(leave)
		if err := second.Wait(t.Context()); err != nil || !slices.Equal(ran, []string{"f/a", "f/b", "f/b"}) {
			t.Errorf("%v, steps that ran: %v", err, ran)
		}
	})
}

// The contexts of steps, those of children included, have the values of StartOptions.Values, but not its cancellation.
func TestStepsFindTheValuesOfTheStart(t *testing.T) {
	t.Parallel()
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.Background())
	values, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
	cancel()
	look := func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
		if ctx.Value(valueKey{}) != "v" || ctx.Err() != nil {
			t.Errorf("found %v, %v", ctx.Value(valueKey{}), ctx.Err())
		}
		return f.Next()
	}
	child := flow.New("child", flow.Step("look", look))
	fl := flow.New("f", flow.Step("look", look),
		flow.Fork("kids", func(_ context.Context, f *flow.Fiber[int]) ([]flow.Child, error) {
			return []flow.Child{child.Child("", new(int))}, nil
		}))
	h, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Values: values})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// An interrupted Undo continues at its step. It undoes no step twice, and no step that was never started.
func TestAnInterruptedUndoContinues(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for reason, cut := range map[string]func(t *testing.T, h flow.Handle, fail chan error, opt *flow.StartOptions){
		"it has failed": func(t *testing.T, h flow.Handle, fail chan error, _ *flow.StartOptions) {
			fail <- boom
			if err := h.Wait(t.Context()); !errors.Is(err, boom) {
				t.Errorf("got %v", err)
			}
		},
		"it was cancelled": func(_ *testing.T, h flow.Handle, _ chan error, _ *flow.StartOptions) {
			h.Cancel(nil)
			<-h.Done()
		},
		"its process has ended": func(_ *testing.T, h flow.Handle, _ chan error, _ *flow.StartOptions) {
			h.Cancel(flow.ErrInterrupted)
			<-h.Done()
		},
		"the spec changed meanwhile": func(_ *testing.T, h flow.Handle, _ chan error, opt *flow.StartOptions) {
			h.Cancel(flow.ErrInterrupted)
			<-h.Done()
			opt.Generation++
		},
		"another one preempts it": func(*testing.T, flow.Handle, chan error, *flow.StartOptions) {},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := flow.NewEngine(flow.EngineOptions{})
				defer e.Close(context.Background())
				var undone []string
				fail := make(chan error, 1)
				undo := func(name string, hold bool) flow.Option {
					return flow.Undo(func(ctx context.Context, f *flow.Fiber[bool]) flow.Next {
						if hold && !*f.Packet {
							*f.Packet = true
							return f.Retry(time.Second)
						}
						select {
						case err := <-fail:
							return f.Fail(err)
						default:
						}
						undone = append(undone, name)
						return f.Next()
					})
				}
				next := func(_ context.Context, f *flow.Fiber[bool]) flow.Next { return f.Next() }
				fl := flow.New("f", flow.Step("a", next, undo("a", false)), flow.Step("b", next, undo("b", true)),
					flow.Step("c", next, undo("c", false)),
					flow.Step("stop", func(_ context.Context, f *flow.Fiber[bool]) flow.Next {
						return f.Delay(time.Hour).Then("stop")
					}),
					flow.Step("never", next, undo("never", false)))
				opt := flow.StartOptions{Key: "ns/x", Positions: &flow.Memory{}}
				if _, err := fl.Start(t.Context(), e, new(bool), opt); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				first, err := fl.Undo(t.Context(), e, new(bool), opt)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				cut(t, first, fail, &opt)
				again := true
				second, err := fl.Undo(t.Context(), e, &again, opt)
				if err != nil {
					t.Fatal(err)
				}
				if err := second.Wait(t.Context()); err != nil || !slices.Equal(undone, []string{"c", "b", "a"}) {
					t.Errorf("undone %v, %v; want each once, and not the step never", undone, err)
				}
			})
		})
	}
}

// The saved position covers every step with an Undo that an interrupted run has begun.
func TestAnInterruptedRunIsUndoneFromTheLastStep(t *testing.T) {
	t.Parallel()
	for reason, test := range map[string]struct {
		saved flow.Position
		want  []string
	}{
		"it has ended at that step":                   {flow.Position{Flow: "f", Step: "a", Ended: true}, []string{"a"}},
		"it has not ended, and reached no later step": {flow.Position{Flow: "f", Step: "a"}, []string{"a"}},
		"it is of another version":                    {flow.Position{Flow: "f", Step: "a", Version: 2}, []string{"b", "a"}},
		"it has ended, and an earlier run reached b": {
			flow.Position{Flow: "f", Step: "a", Reached: "b", Ended: true}, []string{"b", "a"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := flow.NewEngine(flow.EngineOptions{})
			defer e.Close(context.Background())
			var undone []string
			step := func(name string) flow.Node[bool] {
				return flow.Step(name, flow.Do(func(context.Context, *bool) error { return nil }),
					flow.Undo(func(_ context.Context, f *flow.Fiber[bool]) flow.Next {
						undone = append(undone, name)
						return f.Next()
					}))
			}
			var positions flow.Memory
			if err := positions.Save(t.Context(), "ns/x", test.saved); err != nil {
				t.Fatal(err)
			}
			h, err := flow.New("f", step("a"), step("b")).Undo(t.Context(), e, new(bool),
				flow.StartOptions{Key: "ns/x", Positions: &positions})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Wait(t.Context()); err != nil || !slices.Equal(undone, test.want) {
				t.Errorf("%s: undone %v, %v, want %v", reason, undone, err, test.want)
			}
		})
	}
}

// unsaved fails a number of saves at first.
type unsaved struct {
	flow.Memory
	fails int
}

func (u *unsaved) Save(ctx context.Context, key string, p flow.Position) error {
	if u.fails--; u.fails >= 0 && !p.Ended {
		return errors.New("no answer")
	}
	return u.Memory.Save(ctx, key, p)
}

// A step with an Undo, or with a child that has one, begins only after a save.
func TestAStepWithAnUndoNeedsASave(t *testing.T) {
	t.Parallel()
	ran := 0
	made := flow.New("kid", flow.Step("make", flow.Do(func(context.Context, *int) error { ran++; return nil }),
		flow.Undo(flow.Do(func(context.Context, *int) error { return nil }))))
	kids := func(_ context.Context, f *flow.Fiber[int]) ([]flow.Child, error) {
		return []flow.Child{made.Child("one", f.Packet)}, nil
	}
	for reason, fl := range map[string]*flow.Flow[int]{"a step": made, "a child": flow.New("f", flow.Fork("kids", kids))} {
		for fails, want := range map[int]int{0: 1, 3: 1, 1000: 0} {
			synctest.Test(t, func(t *testing.T) {
				e := flow.NewEngine(flow.EngineOptions{})
				defer e.Close(context.Background())
				ran = 0
				h, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "ns/x", Positions: &unsaved{fails: fails}})
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Wait(t.Context()); (err == nil) != (want == 1) || ran != want {
					t.Errorf("%s, and %d saves fail: it ran %d times, %v", reason, fails, ran, err)
				}
			})
		}
	}
}
