package flow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestForkModes(t *testing.T) {
	t.Parallel()
	ok := func(d time.Duration) fstep {
		return func(ctx context.Context, f *fib) Next { return f.Delay(d) }
	}
	fail := func(d time.Duration, text string) fstep {
		return func(ctx context.Context, f *fib) Next {
			if f.Attempt() == 0 {
				return f.Retry(d)
			}
			return f.Fail(errors.New(text))
		}
	}
	const s = time.Second
	cases := []struct {
		reason string
		kids   []fstep
		opts   []Option
		took   time.Duration
		err    string
	}{
		{"all: waits for the slowest", []fstep{ok(s), ok(3 * s), ok(2 * s)}, nil, 3 * s, ""},
		{
			"all: joins every error, in the order of children",
			[]fstep{fail(2*s, "x"), ok(3 * s), fail(s, "y")},
			nil, 3 * s,
			"f/kids: 2 of 3 children failed: f/kids[0]/work: x; f/kids[2]/work: y",
		},
		{"all: a single error is returned unchanged", []fstep{fail(s, "x"), ok(2 * s)}, nil, 2 * s, "f/kids[0]/work: x"},
		{
			"fail-fast cancels the rest",
			[]fstep{ok(time.Hour), fail(s, "x"), ok(time.Hour)},
			[]Option{FailFast()},
			s,
			"f/kids[1]/work: x",
		},
		{
			"fail-fast starts no more",
			[]fstep{fail(s, "x"), fail(s, "never")},
			[]Option{FailFast(), Limit(1)},
			s,
			"f/kids[0]/work: x",
		},
		{"first cancels the rest", []fstep{ok(time.Hour), ok(s), ok(time.Hour)}, []Option{First()}, s, ""},
		{"first bears errors", []fstep{fail(s, "x"), ok(2 * s), fail(s, "y")}, []Option{First()}, 2 * s, ""},
		{
			"first fails after all have failed",
			[]fstep{fail(s, "x"), fail(2*s, "y")},
			[]Option{First()},
			2 * s,
			"f/kids: 2 of 2 children failed: f/kids[0]/work: x; f/kids[1]/work: y",
		},
		{"quorum", []fstep{ok(s), ok(2 * s), ok(time.Hour)}, []Option{Quorum(2)}, 2 * s, ""},
		{
			"quorum fails once it is out of reach",
			[]fstep{ok(time.Hour), fail(s, "x"), fail(2*s, "y")},
			[]Option{Quorum(2)},
			2 * s,
			"f/kids: 2 of 3 children failed: f/kids[1]/work: x; f/kids[2]/work: y",
		},
		{
			"a quorum above the number of children",
			[]fstep{ok(s)},
			[]Option{Quorum(2)},
			0,
			"f/kids: invalid flow: cannot reach a quorum of 2 with 1 children",
		},
		{"limit", []fstep{ok(s), ok(s), ok(s), ok(s), ok(s)}, []Option{Limit(2)}, 3 * s, ""},
		{
			"a panic of a child is an error of the fork",
			[]fstep{func(context.Context, *fib) Next { panic("no") }, ok(s)},
			nil,
			s, "f/kids[0]/work: panic: no",
		},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			began := time.Now()
			err := start(t, e, New("f", children("kids", c.kids, c.opts...)), &packet{}, StartOptions{}).Wait(t.Context())
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(c.err, text); diff != "" {
				t.Errorf("%s: error (-want +got):\n%s", c.reason, diff)
			}
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: took %v, want %v", c.reason, took, c.took)
			}
			if e.Live() != 0 {
				t.Errorf("%s: %d left", c.reason, e.Live())
			}
		})
	}
}

func TestForkRefusesInvalidChildren(t *testing.T) {
	t.Parallel()
	child := New("child", note("x"))
	var endless *Flow[packet]
	endless = New("endless", Step("a", func(ctx context.Context, f *fib) Next {
		return f.Fork([]Child{endless.Child("again", f.Packet)})
	}))
	cases := []struct {
		reason string
		flow   *Flow[packet]
		want   string
	}{
		{"two children with the same name", New("f", Step("a", func(ctx context.Context, f *fib) Next {
			return f.Fork([]Child{child.Child("x", f.Packet), child.Child("x", f.Packet)})
		})), `duplicate child "x"`},
		{"an index name that exists", New("f", Step("a", func(ctx context.Context, f *fib) Next {
			return f.Fork([]Child{child.Child("1", f.Packet), child.Child("", f.Packet)})
		})), `duplicate child "1"`},
		{
			"the zero child", New("f", Step("a", func(ctx context.Context, f *fib) Next { return f.Fork([]Child{{}}) })),
			"child 0 is empty",
		},
		{"an invalid flow", New("f", Step("a", func(ctx context.Context, f *fib) Next {
			return f.Fork([]Child{New[packet]("empty").Child("", f.Packet)})
		})), "no step in the line"},
		{"a flow that forks itself without end", endless, "nested too deeply"},
		{"children that are unknown", New("f",
			Fork("kids", func(context.Context, *fib) ([]Child, error) { return nil, errBad })), "f/kids: bad"},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			err := start(t, e, c.flow, &packet{}, StartOptions{}).Wait(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestPathsAndProvidersOfChildren(t *testing.T) {
	t.Parallel()
	type cloud string
	type region string
	bubble(t, EngineOptions{Providers: []Provider{Provide(cloud("engine")), Provide(region("engine"))}},
		func(t *testing.T, e *Engine) {
			var path, key string
			var epoch uint64
			var c cloud
			var r region
			var missing bool
			grandchild := New("g", Group("prep", Step("wait-ready", func(ctx context.Context, f *fib) Next {
				path, key, epoch = f.Path(), f.Key(), f.Epoch()
				c, _ = Use[cloud](f)
				r, _ = Use[region](f)
				_, ok := Use[string](f)
				missing = !ok
				return f.Next()
			})))
			child := New("c", Fork("inner", func(ctx context.Context, f *fib) ([]Child, error) {
				return []Child{grandchild.Child("x", &packet{})}, nil
			})).Provide(Provide(region("child flow")))
			fl := New("bring-up", Fork("managed-servers", func(ctx context.Context, f *fib) ([]Child, error) {
				return []Child{child.Child("", &packet{})}, nil
			})).Provide(Provide(cloud("flow")))
			h := start(t, e, fl, &packet{}, StartOptions{Key: "ns/one", Providers: []Provider{Provide(cloud("fiber"))}})
			if err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if path != "bring-up/managed-servers[0]/inner[x]/prep/wait-ready" || key != "ns/one" || epoch != h.Epoch() {
				t.Errorf("path %q, key %q, epoch %d", path, key, epoch)
			}
			if c != "fiber" || r != "child flow" || !missing {
				t.Errorf("cloud of the %s, region of the %s", c, r)
			}
		})
}

func TestPreemptionWaitsForTheCodeOfChildren(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		leave := make(chan struct{})
		inside := false
		a := start(t, e, New("a", children("kids", []fstep{func(ctx context.Context, f *fib) Next {
			inside = true
			<-leave
			inside = false
			return f.Next()
		}})), &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		b := start(t, e, New("b", Step("x", func(ctx context.Context, f *fib) Next {
			if inside {
				t.Error("runs beside a child of its predecessor")
			}
			return f.Next()
		})), &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		if b.Status() != Parked {
			t.Fatalf("the successor is %v", b.Status())
		}
		close(leave)
		if err := b.Wait(t.Context()); err != nil || !errors.Is(a.Err(), ErrPreempted) {
			t.Error(err, a.Err())
		}
	})
}
