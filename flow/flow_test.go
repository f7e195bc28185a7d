package flow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func stay(ctx context.Context, f *fib) Next { return f.Next() }

func TestNewReportsMistakes(t *testing.T) {
	t.Parallel()
	other := func(ctx context.Context, f *Fiber[int]) Next { return f.Next() }
	valid := New[packet]("inner", Step("x", stay))
	cases := []struct {
		reason string
		flow   *Flow[packet]
		want   string // "" is valid
	}{
		{"an empty flow would do nothing and look done", New[packet]("f"), "no step in the line"},
		{"a flow of only detours is empty, too", New("f", Detour("d", stay)), "no step in the line"},
		{"a flow needs a name for its paths", New("", Step("a", stay)), `flow name "" is empty`},
		{"a slash would make paths ambiguous", New("f", Step("a/b", stay)), "contains one of"},
		{"two steps with the same name are ambiguous", New("f", Step("a", stay), Step("a", stay)), `duplicate name "a"`},
		{"a step and a group share the names", New("f", Step("a", stay), Group("a", Step("b", stay))), `duplicate name "a"`},
		{"the same name in two groups is fine", New("f", Group("a", Step("x", stay)), Group("b", Step("x", stay))), ""},
		{"an inlined flow twice is a duplicate", New("f", Inline(valid), Inline(valid)), `duplicate name "inner"`},
		{"an inlined flow once is fine", New("f", Inline(valid)), ""},
		{"an invalid flow stays invalid when inlined", New("f", Inline(New[packet]("bad"))), "no step in the line"},
		{"a nil flow", New("f", Inline[packet](nil)), "inlined flow is nil"},
		{"an empty group", New("f", Step("a", stay), Group[packet]("g")), `group "g" has no step`},
		{"a zero node", New("f", Node[packet]{}), "is empty"},
		{"a step without code", New("f", Step[packet]("a", nil)), "has no function"},
		{"an unknown target", New("f", Step("a", stay, To("b"))), `goes to "b": unknown step`},
		{"an unknown error handler", New("f", Step("a", stay, OnError("b"))), `goes to "b" on error: unknown step`},
		{"targets are looked up outwards", New("f", Group("g", Step("a", stay, To("b", "c"), OnError("c")), Step("b", stay)),
			Step("c", stay)), ""},
		{"a group is a target", New("f", Step("a", stay, To("g")), Group("g", Step("b", stay))), ""},
		{"its own error handler", New("f", Step("a", stay, OnError("a"))), "cycle of 1"},
		{"error handlers in a circle", New("f", Step("a", stay, OnError("b")), Step("b", stay, OnError("a"))), "cycle of 2"},
		{"options of forks on a step", New("f", Step("a", stay, Limit(2))), "no fork"},
		{
			"a negative limit", New("f", Fork("a", func(context.Context, *fib) ([]Child, error) { return nil, nil }, Limit(-1))),
			"negative",
		},
		{"a negative deadline", New("f", Step("a", stay, Deadline(-1))), "negative deadline"},
		{"an undo for another packet", New("f", Step("a", stay, Undo(other))), "for another packet"},
		{"an undo that would never run", New("f", Step("a", stay), Detour("d", stay, Undo(stay))), "never run"},
		{"a done for another packet", New("f",
			Step("a", stay, Done(func(context.Context, *Fiber[int]) (bool, error) { return true, nil }))), "for another packet"},
	}
	for _, c := range cases {
		err := c.flow.Err()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.reason, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid)):
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		}
	}
	e := NewEngine(EngineOptions{})
	if _, err := New[packet]("f").Start(t.Context(), e, &packet{}, StartOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Start of an invalid flow: %v", err)
	}
	if _, err := New[packet]("f").Undo(t.Context(), e, &packet{}, StartOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Undo of an invalid flow: %v", err)
	}
}

func TestStepsRunInOrder(t *testing.T) {
	t.Parallel()
	yes := func(context.Context, *fib) (bool, error) { return true, nil }
	once := func(then func(f *fib) Next) fstep {
		return func(ctx context.Context, f *fib) Next {
			f.Packet.note(f.Path())
			if f.Packet.n++; f.Packet.n == 1 {
				return then(f)
			}
			return f.Next()
		}
	}
	cases := []struct {
		reason string
		flow   *Flow[packet]
		want   string
		took   time.Duration
		err    string
	}{
		{"a line", New("f", note("a"), note("b"), note("c")), "a b c", 0, ""},
		{
			"groups are flattened", New("f", note("a"), Group("g", note("b"), Group("h", note("c"))), note("d")), "a b c d", 0,
			"",
		},
		{
			"a plain function", New("f", Step("a",
				Do(func(ctx context.Context, p *packet) error { p.note("plain"); return nil })), note("b")), "plain b", 0, "",
		},
		{"a plain function fails", New("f", Step("a", Do(func(context.Context, *packet) error { return errors.New("no") })),
			note("b")), "", 0, "f/a: no"},
		{
			"goto skips", New("f", Step("a", once(func(f *fib) Next { return f.Goto("c") })), note("b"), note("c")), "f/a c", 0,
			"",
		},
		{
			"goto goes back", New("f", note("x"), Step("a", once(func(f *fib) Next { return f.Goto("x") }))), "x f/a x f/a", 0,
			"",
		},
		{"goto a group", New("f", Step("a", once(func(f *fib) Next { return f.Goto("g") })), note("b"),
			Group("g", note("c"))), "f/a c", 0, ""},
		{"a detour is not in the line", New("f", note("a"), Detour("d", stay), note("b")), "a b", 0, ""},
		{"a detour comes back", New("f", Step("a", once(func(f *fib) Next { return f.Goto("d") })), Detour("d", once(nil)),
			note("b")), "f/a f/d f/a b", 0, ""},
		{"end skips the rest", New("f", Step("a", once(func(f *fib) Next { return f.End() })), note("b")), "f/a", 0, ""},
		{
			"delay", New("f", Step("a", once(func(f *fib) Next { return f.Delay(time.Second) })), note("b")), "f/a b",
			time.Second, "",
		},
		{"delay, then another step", New("f", Step("a", once(func(f *fib) Next { return f.Delay(time.Second).Then("c") })),
			note("b"), note("c")), "f/a c", time.Second, ""},
		{"delay of nothing", New("f", Step("a", once(func(f *fib) Next { return f.Delay(0) })), note("b")), "f/a b", 0, ""},
		{
			"retry", New("f", Step("a", once(func(f *fib) Next { return f.Retry(time.Minute) })), note("b")), "f/a f/a b",
			time.Minute, "",
		},
		{"yield", New("f", Step("a", once(func(f *fib) Next { return f.Yield() })), note("b")), "f/a b", 0, ""},
		{"yield at the end", New("f", Step("a", once(func(f *fib) Next { return f.Yield() }))), "f/a", 0, ""},
		{"a failure goes to its handler", New(
			"f", Step("a", once(func(f *fib) Next { return f.Fail(errors.New("no")) }), OnError("c")), note("b"), note("c"),
		), "f/a c", 0, ""},
		{"else wins over the handler", New("f",
			Step("a", once(func(f *fib) Next { return f.Fail(errors.New("no")).Else("b") }), OnError("c")), note("b"),
			note("c")), "f/a b c", 0, ""},
		{
			"failing without an error is a failure", New("f", Step("a", once(func(f *fib) Next { return f.Fail(nil) }))), "f/a",
			0, "f/a: step failed without an error",
		},
		{
			"an unknown step", New("f", Step("a", once(func(f *fib) Next { return f.Goto("nowhere") }))), "f/a", 0,
			`f/a: cannot go to "nowhere": unknown step`,
		},
		{
			"the zero outcome", New("f", Step("a", once(func(f *fib) Next { return Next{} }))), "f/a", 0,
			"f/a: step returned the zero Next",
		},
		{"a done step is skipped", New("f", Step("a", once(nil), Done(yes)), note("b")), "b", 0, ""},
		{
			"a path has the group", New("f", Group("g",
				Step("a", func(ctx context.Context, f *fib) Next { return f.Fail(errors.New("no")) }))), "", 0, "f/g/a: no",
		},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{Workers: 2}, func(t *testing.T, e *Engine) {
			p, began := &packet{}, time.Now()
			err := start(t, e, c.flow, p, StartOptions{}).Wait(t.Context())
			if got := strings.Join(p.log, " "); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: took %v, want %v", c.reason, took, c.took)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(c.err, text); diff != "" {
				t.Errorf("%s: error (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestStepsSeeAttemptAndErr(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var attempts []int
		var seen error
		no := errors.New("no")
		fl := New("f",
			Step("a", func(ctx context.Context, f *fib) Next {
				attempts = append(attempts, f.Attempt())
				return f.Fail(no)
			}, Retry(Backoff{Base: time.Second, Max: time.Second, Attempts: 3}), OnError("repair")),
			Step("repair", func(ctx context.Context, f *fib) Next { seen = f.Err(); return f.Next() }),
			Step("last", func(ctx context.Context, f *fib) Next { return f.Fail(f.Err()) }),
		)
		began := time.Now()
		err := start(t, e, fl, &packet{}, StartOptions{}).Wait(t.Context())
		if diff := cmp.Diff([]int{0, 1, 2}, attempts); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		if !errors.Is(seen, no) || seen.Error() != "f/a: no" {
			t.Errorf("the handler saw %v", seen)
		}
		if err == nil || err.Error() != "f/last: step failed without an error" {
			t.Errorf("the error is still seen a step later: %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
