package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// fakeHost records the calls of the interpreter. It runs nothing itself.
type fakeHost struct {
	calls []string
	err   error // of the ended fiber
}

func (h *fakeHost) add(format string, args ...any) {
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *fakeHost) cancel(_ *fiber, cause error)  { h.add("cancel: %v", cause) }
func (h *fakeHost) resume(*fiber, int64)          {}
func (h *fakeHost) setBegun(f *fiber, begun bool) { f.begun = begun }
func (h *fakeHost) yield(*fiber)                  { h.add("yield") }
func (h *fakeHost) abandonFork(*fiber) bool       { return false }
func (h *fakeHost) fork(*fiber, *parking, int64) bool {
	h.add("fork")
	return true
}

func (h *fakeHost) runStep(ctx context.Context, f *fiber, st *step) Next {
	h.add("%s", st.path)
	return st.run(ctx, f.self)
}

func (h *fakeHost) arm(_ context.Context, f *fiber, at int64) bool {
	h.add("arm %v", time.Duration(at-f.progress.began))
	return false
}

func (h *fakeHost) park(f *fiber, why reason, at int64, _ pokes) bool {
	if at > 0 {
		h.add("park %v %v", why, time.Duration(at-f.progress.began))
	} else {
		h.add("park %v", why)
	}
	return true
}

func (h *fakeHost) end(_ *fiber, status Status, err error, _ int64) {
	h.add("%v", status)
	h.err = err
}

// TestInterpreterAlone runs flows without an engine: there is no worker, no lock that matters, and no timer. The clock
// stands still, and each pick-up is a call of slice.
func TestInterpreterAlone(t *testing.T) {
	t.Parallel()
	step := func(name string, fn fstep, opts ...Option) Node[packet] { return Step(name, fn, opts...) }
	fails := func(_ context.Context, f *fib) Next { return f.Fail(errBad) }
	type pick struct {
		why   reason
		poke  pokes
		after time.Duration // since the fiber has started
	}
	first := pick{}
	for _, tc := range []struct {
		reason string
		nodes  []Node[packet]
		picks  []pick
		want   []string
		err    error
	}{
		{"a line", []Node[packet]{note("a"), note("b")}, []pick{first}, []string{"a", "b", "completed"}, nil},
		{
			"a delay, and the step after it",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next { return f.Delay(time.Minute) }), note("b")},
			[]pick{first, {whyDelay, pokeTimer, time.Minute}},
			[]string{"a", "park delay 1m0s", "b", "completed"},
			nil,
		},
		{
			"a retry, until the attempts are used up",
			[]Node[packet]{step("a", fails, Retry(Backoff{Base: time.Second, Max: time.Second, Attempts: 2}))},
			[]pick{first, {whyRetry, pokeTimer, time.Second}},
			[]string{"a", "park retry 1s", "a", "failed"},
			errBad,
		},
		{
			"an error goes to its handler",
			[]Node[packet]{step("a", fails, OnError("c")), note("b"), note("c")},
			[]pick{first},
			[]string{"a", "c", "completed"},
			nil,
		},
		{
			"a detour returns",
			[]Node[packet]{
				step("a", func(_ context.Context, f *fib) Next {
					if f.Attempt() > 0 {
						return f.Next()
					}
					return f.Goto("aside")
				}), Detour("aside", stay),
			},
			[]pick{first},
			[]string{"a", "aside", "a", "completed"},
			nil,
		},
		{
			"a suspension that its token ends",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next { return f.Suspend(f.Token()) }), note("b")},
			[]pick{first, {whySuspend, pokeToken, time.Hour}},
			[]string{"a", "park suspend", "b", "completed"},
			nil,
		},
		{
			"a suspension that a deadline ends",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next { return f.Suspend(f.Token()) }, Deadline(time.Hour))},
			[]pick{first, {whySuspend, pokeTimer, time.Hour}},
			[]string{"arm 1h0m0s", "a", "park suspend 1h0m0s", "failed"},
			ErrTimeout,
		},
		{
			"an await whose condition holds at the second check",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next {
				return f.Await(Func(func(context.Context) (bool, error) { f.Packet.n++; return f.Packet.n > 1, nil }, time.Minute))
			})},
			[]pick{first, {whyAwait, pokeTimer, time.Minute}},
			[]string{"a", "park await 1m0s", "completed"},
			nil,
		},
		{
			"a yield",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next { return f.Yield() }), note("b")},
			[]pick{first, first},
			[]string{"a", "yield", "b", "completed"},
			nil,
		},
		{
			"a fork", []Node[packet]{children("kids", []fstep{stay})}, []pick{first}, []string{"kids", "fork"}, nil,
		},
		{
			"a panic",
			[]Node[packet]{step("a", func(context.Context, *fib) Next { panic(errBad) }), note("b")},
			[]pick{first},
			[]string{"a", "failed"},
			errBad,
		},
		{
			"an unknown step",
			[]Node[packet]{step("a", func(_ context.Context, f *fib) Next { return f.Goto("gone") })},
			[]pick{first},
			[]string{"a", "failed"},
			errUnknownStep,
		},
	} {
		d := New("f", tc.nodes...).def
		c, h := &core{time: newTimeline(&handClock{now: time.Now()})}, &fakeHost{}
		i := interpreter{host: h, log: slog.New(slog.DiscardHandler), queued: &atomic.Int32{}, observed: true}
		f := newFiber(&packet{})
		f.e, f.flow, f.resume = c, (&registry{}).bind(d), d.first
		f.progress.start(c.time.now())
		for _, p := range tc.picks {
			if p.poke&pokeToken != 0 {
				f.ext() // as created by Token.Resume, which stores the value of the resume there
			}
			i.slice(f, p.why, p.poke, f.progress.began+int64(p.after))
		}
		if !slices.Equal(h.calls, tc.want) || !errors.Is(h.err, tc.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tc.reason, h.calls, h.err, tc.want, tc.err)
		}
	}
}
