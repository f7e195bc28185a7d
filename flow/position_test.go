package flow

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// recorder keeps every save.
type recorder struct {
	Memory
	saves   []Position
	clears  int
	failing error
}

func (r *recorder) Save(ctx context.Context, key string, p Position) error {
	if r.failing != nil {
		return r.failing
	}
	r.saves = append(r.saves, p)
	return r.Memory.Save(ctx, key, p)
}

func (r *recorder) Clear(ctx context.Context, key string) error {
	r.clears++
	return r.Memory.Clear(ctx, key)
}

func (r *recorder) reasons() string {
	var out []string
	for _, p := range r.saves {
		out = append(out, p.Step+":"+p.Reason)
	}
	return strings.Join(out, " ")
}

func TestPositionsAreSavedOnParkBeforeSaveStepsAndAtTheEnd(t *testing.T) {
	t.Parallel()
	var s Signal
	signal := func(ctx context.Context, f *fib) Next {
		f.SetCheckpoint(map[string]int{"n": 1})
		return f.Await(&s, Timeout(time.Hour))
	}
	conflict := func(ctx context.Context, f *fib) Next {
		if f.Attempt() == 0 {
			return f.Goto("read-again")
		}
		return f.Next()
	}
	cases := []struct {
		reason string
		nodes  []Node[packet]
		saves  string
		clears int
	}{
		{"steps that do not park save nothing", []Node[packet]{note("a"), note("b")}, "", 0},
		{"a delay saves the step that follows", []Node[packet]{
			Step("a", func(ctx context.Context, f *fib) Next { return f.Delay(time.Second) }), note("b"),
		}, "b:delay", 1},
		{
			"a zero delay saves no step of its own",
			[]Node[packet]{Step("a", func(ctx context.Context, f *fib) Next { return f.Delay(0) }), note("b")},
			"", 0,
		},
		{"a delay at the end", []Node[packet]{
			Step("a", func(ctx context.Context, f *fib) Next { return f.Delay(time.Second) }),
		}, "a:delay", 1},
		{"an await saves its own step", []Node[packet]{Step("a", signal)}, "a:await", 1},
		{"a save step saves before it runs", []Node[packet]{note("a"), Step("b", stay, Save())}, "b:save", 1},
		{"each try is saved", []Node[packet]{Step("a", func(ctx context.Context, f *fib) Next {
			if f.Attempt() < 2 {
				return f.Retry(time.Second)
			}
			return f.Next()
		}, Save())}, "a:save a:retry a:save a:retry a:save", 1},
		{
			"a fork", []Node[packet]{children("kids",
				[]fstep{func(ctx context.Context, f *fib) Next { return f.Delay(time.Second) }})}, "kids:fork", 1,
		},
		{"a yield is no park", []Node[packet]{
			Step("a", func(ctx context.Context, f *fib) Next { return f.Yield() }), note("b"),
		}, "", 0},
		{"a detour saves the step it comes back to", []Node[packet]{
			Step("a", conflict),
			Detour("read-again", func(ctx context.Context, f *fib) Next { return f.Delay(time.Second) }),
		}, "a:delay", 1},
		{"a failure is kept, for undo", []Node[packet]{
			note("a"), Step("b", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) }),
		}, "b:failed", 0},
	}
	for _, c := range cases {
		s.Clear()
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			r := &recorder{}
			h := start(t, e, New("f", c.nodes...), &packet{}, StartOptions{Key: "k", Positions: r})
			synctest.Wait()
			s.Set()
			h.Wait(t.Context())
			if diff := cmp.Diff(c.saves, r.reasons()); diff != "" || r.clears != c.clears {
				t.Errorf("%s: %d clears, saves (-want +got):\n%s", c.reason, r.clears, diff)
			}
		})
	}
}

func TestResumeAfterARestart(t *testing.T) {
	t.Parallel()
	type outcome struct {
		Log  string
		Took time.Duration // after the restart
		Err  string
	}
	delay := func(ctx context.Context, f *fib) Next { f.Packet.note("a"); return f.Delay(10 * time.Second) }
	await := func(ctx context.Context, f *fib) Next {
		f.Packet.note("a")
		return f.Await(&Signal{}, Timeout(10*time.Second))
	}
	retry := func(ctx context.Context, f *fib) Next {
		f.Packet.note("a" + string(rune('0'+f.Attempt())))
		if f.Attempt() < 3 {
			return f.Retry(6 * time.Second)
		}
		return f.Next()
	}
	slow := func(ctx context.Context, f *fib) Next { f.Packet.note("a"); return f.Suspend(f.Token()) }
	line := func(first Node[packet]) *Flow[packet] { return New("f", note("zero"), first, note("b")) }
	cases := []struct {
		reason string
		before *Flow[packet]
		after  *Flow[packet] // nil: the same
		down   time.Duration // between close and restart
		opt    func(*StartOptions)
		want   outcome
	}{
		{"a delay continues", line(Step("a", delay)), nil, 3 * time.Second, nil, outcome{"b", 2 * time.Second, ""}},
		{"an expired delay", line(Step("a", delay)), nil, time.Hour, nil, outcome{"b", 0, ""}},
		{
			"an await is repeated, and its timeout continues", line(Step("a", await)), nil, 3 * time.Second, nil,
			outcome{"a", 2 * time.Second, "f/a: await: timed out"},
		},
		{
			"an await with an expired timeout", line(Step("a", await)), nil, time.Hour, nil,
			outcome{"a", 0, "f/a: await: timed out"},
		},
		{
			"attempts continue, and so does the wait", line(Step("a", retry)), nil, 0, nil,
			outcome{"a1 a2 a3 b", 13 * time.Second, ""},
		},
		{
			"the deadline of a step continues", line(Step("a", slow, Deadline(10*time.Second))), nil, 3 * time.Second,
			nil,
			outcome{"a", 2 * time.Second, "f/a: deadline of the step: timed out"},
		},
		{
			"the timeout of a fiber continues", line(Step("a", slow)), nil, 3 * time.Second,
			func(o *StartOptions) { o.Timeout = 10 * time.Second },
			outcome{"a", 2 * time.Second, "f/a: deadline of the fiber: timed out"},
		},
		{
			"a done step is skipped", line(Step("a", slow, Done(func(ctx context.Context, f *fib) (bool, error) {
				return f.Attempt() == 0 && f.Now().After(f.Began()), nil
			}))),
			nil, 0, nil,
			outcome{"b", 0, ""},
		},
		{
			"an unknown step starts from the first", line(Step("a", delay)), New("f", note("other")), 0, nil,
			outcome{"other", 0, ""},
		},
		{
			"another version starts from the first", line(Step("a", delay)), line(Step("a", stay)).Version(2), 0, nil,
			outcome{"zero b", 0, ""},
		},
		{
			"another flow starts from the first", line(Step("a", delay)), New("g", note("zero"), note("b")), 0, nil,
			outcome{"zero b", 0, ""},
		},
		{
			"another generation starts from the first", line(Step("a", delay)), nil, 0, func(o *StartOptions) { o.Generation++ },
			outcome{"zero a b", 10 * time.Second, ""},
		},
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			var store Memory
			opt := StartOptions{Key: "k", Positions: &store}
			if c.opt != nil && !strings.Contains(c.reason, "generation") {
				c.opt(&opt)
			}
			first := NewEngine(EngineOptions{})
			start(t, first, c.before, &packet{}, opt)
			time.Sleep(5 * time.Second)
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.down)
			if c.opt != nil && strings.Contains(c.reason, "generation") {
				c.opt(&opt)
			}
			second, began, p := NewEngine(EngineOptions{}), time.Now(), &packet{}
			defer second.Close(context.Background())
			fl := c.after
			if fl == nil {
				fl = c.before
			}
			err := start(t, second, fl, p, opt).Wait(t.Context())
			got := outcome{Log: strings.Join(p.log, " "), Took: time.Since(began)}
			if err != nil {
				got.Err = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestAPreemptedFiberLeavesNoPositionToItsSuccessor(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var store Memory
		fl := New("f", note("a"), Step("b", func(ctx context.Context, f *fib) Next {
			f.Packet.note("b")
			return f.Delay(time.Hour)
		}), note("c"))
		opt := StartOptions{Key: "k", Positions: &store}
		start(t, e, fl, &packet{}, opt)
		synctest.Wait()
		p := &packet{}
		start(t, e, fl, p, opt)
		synctest.Wait()
		if got := strings.Join(p.log, " "); got != "a b" {
			t.Errorf("the successor ran %q, want the flow from its first step", got)
		}
	})
}

func TestASaveStepRunsOnlyOnceItIsSaved(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		r := &recorder{failing: errBad}
		p := &packet{}
		h := start(t, e,
			New("f", Step("a", func(ctx context.Context, f *fib) Next { f.Packet.note("effect"); return f.Next() }, Save(),
				Retry(Backoff{Base: time.Second}))), p, StartOptions{Key: "k", Positions: r})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(p.log) != 0 {
			t.Fatal("the effect was made without a record")
		}
		r.failing = nil
		if err := h.Wait(t.Context()); err != nil || len(p.log) != 1 {
			t.Error(err, p.log)
		}
	})
}

func TestAPositionThatCannotBeLoadedIsLoadedLater(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		tries := 0
		p := &packet{}
		err := start(t, e, New("f", note("a")), p, StartOptions{Key: "k", Positions: loader{func() error {
			if tries++; tries < 3 {
				return errBad
			}
			return nil
		}}}).Wait(t.Context())
		if err != nil || tries != 3 || len(p.log) != 1 {
			t.Error(err, tries, p.log)
		}
	})
}

type loader struct{ load func() error }

func (l loader) Load(context.Context, string) (Position, bool, error) {
	return Position{}, false, l.load()
}
func (loader) Save(context.Context, string, Position) error { return nil }
func (loader) Clear(context.Context, string) error          { return nil }

func TestTheStateOfAStepAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		var counts []int
		var began []time.Time
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			keys = append(keys, f.IdempotencyKey())
			began = append(began, f.Began().UTC())
			n := 0
			if _, err := f.Checkpoint(&n); err != nil {
				return f.Fail(err)
			}
			counts = append(counts, n)
			if err := f.SetCheckpoint(n + 1); err != nil {
				return f.Fail(err)
			}
			if n == 2 {
				return f.Next()
			}
			return f.Retry(10 * time.Second)
		}), Step("b", func(ctx context.Context, f *fib) Next { keys = append(keys, f.IdempotencyKey()); return f.Next() }))
		var store Memory
		first := NewEngine(EngineOptions{})
		start(t, first, fl, &packet{}, StartOptions{Key: "k", Positions: &store})
		time.Sleep(time.Second)
		first.Close(t.Context())
		second := NewEngine(EngineOptions{})
		defer second.Close(context.Background())
		if err := start(t, second, fl, &packet{}, StartOptions{Key: "k", Positions: &store}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{0, 1, 2}, counts); diff != "" {
			t.Errorf("checkpoints (-want +got):\n%s", diff)
		}
		if len(keys) != 4 || keys[0] != keys[1] || keys[1] != keys[2] || keys[2] == keys[3] {
			t.Errorf("idempotency keys %q", keys)
		}
		if !began[0].Equal(began[2]) {
			t.Errorf("began %v", began)
		}
	})
}

func TestUndoRunsInReverseFromTheLastStepBegun(t *testing.T) {
	t.Parallel()
	undo := func(name string) Option {
		return Undo(func(ctx context.Context, f *fib) Next {
			if f.Attempt() == 0 {
				return f.Retry(time.Second) // it may park
			}
			f.Packet.note("-" + name)
			return f.Next()
		})
	}
	kid := New("kid", Step("k", func(ctx context.Context, f *fib) Next { return f.Next() },
		Undo(func(ctx context.Context, f *fib) Next {
			f.Packet.note("-kid")
			return f.Next()
		})))
	fl := New("f", Step("a", stay, undo("a")), Group("g", Step("b", stay, undo("b"))), note("c"),
		Fork("kids", func(ctx context.Context, f *fib) ([]Child, error) { return []Child{kid.Child("", f.Packet)}, nil }),
		Step("d", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) }, undo("d")), Step("e", stay, undo("e")))
	cases := []struct {
		reason string
		run    bool // the flow first, with positions
		store  bool
		from   string
		want   string
		err    error
	}{
		{"without a position, all of it", false, false, "", "-e -d -kid -b -a", nil},
		{"from a step", false, false, "kids", "-kid -b -a", nil},
		{"from a step without an undo", false, false, "c", "-b -a", nil},
		{"from the saved position of the failure", true, true, "", "-d -kid -b -a", nil},
		{"from a step that does not exist", false, false, "x", "", errUnknownStep},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			opt := StartOptions{Key: "k", From: c.from}
			if c.store {
				opt.Positions = &Memory{}
			}
			if c.run {
				h := start(t, e, fl, &packet{}, opt)
				if h.Wait(t.Context()); h.Step() != "d" {
					t.Fatal(h.Step())
				}
			}
			p := &packet{}
			h, err := fl.Undo(t.Context(), e, p, opt)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if err := h.Wait(t.Context()); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
			if got := strings.Join(p.log, " "); got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
		})
	}
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f", Step("a", stay, undo("a")),
			Step("b", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour).Then("b") }, undo("b")),
			Step("c", stay, undo("c")))
		opt := StartOptions{Key: "k", Positions: &Memory{}}
		h := start(t, e, fl, &packet{}, opt)
		synctest.Wait()
		p := &packet{}
		u, err := fl.Undo(t.Context(), e, p, opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Wait(t.Context()); err != nil || !errors.Is(h.Err(), ErrPreempted) ||
			strings.Join(p.log, " ") != "-b -a" {
			t.Errorf("undo of a live fiber: %v, it ended with %v, undone %v", err, h.Err(), p.log)
		}
	})
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h, err := New("f", note("a")).Undo(t.Context(), e, &packet{}, StartOptions{})
		if err != nil || h.Wait(t.Context()) != nil {
			t.Error("a flow without an undo has nothing to undo:", err)
		}
	})
}

func TestPositionHasAStableForm(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next { return f.Retry(time.Minute) })).Version(3)
		h := start(t, e, fl, &packet{}, StartOptions{Key: "k", Positions: r, Generation: 7})
		synctest.Wait()
		h.Cancel(nil)
		h.Wait(t.Context())
	})
	zero := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	want := []Position{
		{
			Flow: "f", Version: 3, Generation: 7, Step: "a", Reason: "retry", Attempt: 1, Begun: zero, Started: zero,
			Wake: zero.Add(time.Minute),
		},
		{
			Flow: "f", Version: 3, Generation: 7, Step: "a", Reason: "cancelled", Attempt: 0, Begun: zero, Started: zero,
			Ended: true,
			Err:   "f/a: cancelled: fiber cancelled",
		},
	}
	if diff := cmp.Diff(want, r.saves, cmpopts.IgnoreFields(Position{}, "Token")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Only a position that was left for the successor and does not fit it is logged, and only once. A retry after a failure
// and a change of the object begin new runs.
func TestOnlyAPositionThatDoesNotFitIsLogged(t *testing.T) {
	t.Parallel()
	left := Position{Flow: "f", Version: 1, Generation: 1, Step: "a", Reason: "delay", Token: "t"}
	for _, c := range []struct {
		reason string
		change func(p *Position)
		want   int
	}{
		{"it is resumed", func(*Position) {}, 0},
		{"the run has failed", func(p *Position) { p.Ended, p.Reason = true, "failed" }, 0},
		{"the object has changed", func(p *Position) { p.Generation = 2 }, 0},
		{"another version", func(p *Position) { p.Version = 2 }, 1},
		{"another flow", func(p *Position) { p.Flow = "g" }, 1},
		{"another step", func(p *Position) { p.Step = "b" }, 1},
		{"an unknown detour", func(p *Position) { p.Back = []Place{{Step: "b"}} }, 1},
	} {
		var log bytes.Buffer
		bubble(t, EngineOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, e *Engine) {
			store, p := &Memory{}, left
			if c.change(&p); store.Save(t.Context(), "k", p) != nil {
				t.Fatal("cannot save the position")
			}
			fl := New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Fail(errBad) })).Version(1)
			for range 3 { // each leaves the position of a failed run
				h := start(t, e, fl, &packet{}, StartOptions{Key: "k", Positions: store, Generation: 1})
				if err := h.Wait(t.Context()); !errors.Is(err, errBad) {
					t.Fatal(err)
				}
			}
		})
		if got := strings.Count(log.String(), "position is not resumed"); got != c.want {
			t.Errorf("%s: it is logged %d times, want %d\n%s", c.reason, got, c.want, &log)
		}
	}
}
