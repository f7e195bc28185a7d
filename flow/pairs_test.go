package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// This file plays each pair of a result of a step and an option. It plays them without a crash, and with one and two
// crashes at any time. After the restarts the outcome is the same, except that the interrupted step may run once more.

// outcomes are the results of the first run of the step under test.
var outcomes = map[string]func(f *fib) Next{
	"next":                        func(f *fib) Next { return f.Next() },
	"goto":                        func(f *fib) Next { return f.Goto("last") },
	"goto a detour":               func(f *fib) Next { return f.Goto("aside") },
	"end":                         func(f *fib) Next { return f.End() },
	"fail":                        func(f *fib) Next { return f.Fail(errBad) },
	"fail, else":                  func(f *fib) Next { return f.Fail(errBad).Else("other") },
	"fail, else a detour":         func(f *fib) Next { return f.Fail(errBad).Else("aside") },
	"panic":                       func(*fib) Next { panic("oops") },
	"nothing":                     func(*fib) Next { return Next{} },
	"nowhere":                     func(f *fib) Next { return f.Goto("nowhere") },
	"yield":                       func(f *fib) Next { return f.Yield() },
	"yield, then a detour":        func(f *fib) Next { return f.Yield().Then("aside") },
	"delay":                       func(f *fib) Next { return f.Delay(20 * time.Second) },
	"delay, then itself":          func(f *fib) Next { return f.Delay(20 * time.Second).Then("test") },
	"delay, then back":            func(f *fib) Next { return f.Delay(20 * time.Second).Then("first") },
	"delay, then the last":        func(f *fib) Next { return f.Delay(20 * time.Second).Then("last") },
	"delay, then a detour":        func(f *fib) Next { return f.Delay(20 * time.Second).Then("aside") },
	"delay, else":                 func(f *fib) Next { return f.Delay(20 * time.Second).Else("other") },
	"short delay":                 func(f *fib) Next { return f.Delay(2 * time.Second) },
	"short delay, then a detour":  func(f *fib) Next { return f.Delay(2 * time.Second).Then("aside") },
	"delay of nothing":            func(f *fib) Next { return f.Delay(0) },
	"retry":                       func(f *fib) Next { return f.Retry(3 * time.Second) },
	"long retry":                  func(f *fib) Next { return f.Retry(20 * time.Second) },
	"long retry, else":            func(f *fib) Next { return f.Retry(20 * time.Second).Else("other") },
	"await":                       func(f *fib) Next { return f.Await(since(f, 4)) },
	"await, then a detour":        func(f *fib) Next { return f.Await(since(f, 4)).Then("aside") },
	"await in vain":               func(f *fib) Next { return f.Await(&Signal{}, Timeout(7*time.Second)) },
	"await without success, else": func(f *fib) Next { return f.Await(&Signal{}, Timeout(7*time.Second)).Else("other") },
	"await for long":              func(f *fib) Next { return f.Await(since(f, 40)) },
	"await for long, else":        func(f *fib) Next { return f.Await(since(f, 40)).Else("other") },
	"await with an error": func(f *fib) Next {
		return f.Await(Func(func(context.Context) (bool, error) { return false, errBad }, time.Second))
	},
	"fork":                func(f *fib) Next { return f.Fork([]Child{nap(f, 1), nap(f, 6)}) },
	"fork, then a detour": func(f *fib) Next { return f.Fork([]Child{nap(f, 6)}).Then("aside") },
	"fork, one at a time": func(f *fib) Next { return f.Fork([]Child{nap(f, 1), nap(f, 3)}, Limit(1)) },
	"fork for long":       func(f *fib) Next { return f.Fork([]Child{nap(f, 30)}) },
	"fork of nothing":     func(f *fib) Next { return f.Fork(nil) },
	"fork that fails":     func(f *fib) Next { return f.Fork([]Child{nap(f, 2), nap(f, -1)}) },
	"fork that fails fast, else": func(f *fib) Next {
		return f.Fork([]Child{nap(f, 9), nap(f, -1)}, FailFast()).Else("other")
	},
	"fork, the first":           func(f *fib) Next { return f.Fork([]Child{nap(f, 2), nap(f, 99)}, First()) },
	"fork without a quorum":     func(f *fib) Next { return f.Fork([]Child{nap(f, 2), nap(f, -1)}, Quorum(2)) },
	"fork with a bad limit":     func(f *fib) Next { return f.Fork([]Child{nap(f, 2)}, Limit(-1)) },
	"fork with a bad quorum":    func(f *fib) Next { return f.Fork([]Child{nap(f, 2)}, Quorum(0)) },
	"fork with a step's option": func(f *fib) Next { return f.Fork([]Child{nap(f, 2)}, Save()) },
	"suspend":                   func(f *fib) Next { return f.Suspend(resumedAt(f, 3, nil)) },
	"suspend, then a detour":    func(f *fib) Next { return f.Suspend(resumedAt(f, 3, nil)).Then("aside") },
	"suspend, else":             func(f *fib) Next { return f.Suspend(resumedAt(f, 3, errBad)).Else("other") },
	"suspend for long":          func(f *fib) Next { return f.Suspend(resumedAt(f, 30, nil)) },
}

// stepOptions are those of the step under test.
var stepOptions = map[string]func() []Option{
	"none":               func() []Option { return nil },
	"deadline":           func() []Option { return []Option{Deadline(10 * time.Second)} },
	"deadline, on error": func() []Option { return []Option{Deadline(10 * time.Second), OnError("other")} },
	"on error":           func() []Option { return []Option{OnError("other")} },
	"on error, a detour": func() []Option { return []Option{OnError("aside")} },
	"retries":            func() []Option { return []Option{retries(2, 3)} },
	"retries and deadline": func() []Option {
		return []Option{retries(4, 9), Deadline(10 * time.Second), OnError("other")}
	},
	"save":              func() []Option { return []Option{Save()} },
	"save and deadline": func() []Option { return []Option{Save(), Deadline(10 * time.Second)} },
	"done": func() []Option {
		return []Option{Done(func(_ context.Context, f *fib) (bool, error) { return f.Attempt() > 0, nil })}
	},
	"undo": func() []Option { return []Option{Undo(func(_ context.Context, f *fib) Next { return f.Next() })} },
}

func retries(seconds, attempts int) Option {
	d := time.Duration(seconds) * time.Second
	return Retry(Backoff{Base: d, Max: d, Attempts: attempts})
}

// lines are the flows around the step under test.
var lines = map[string]func(first, test, last Node[packet]) []Node[packet]{
	"in the line": func(first, test, last Node[packet]) []Node[packet] { return []Node[packet]{first, test, last} },
	"at the end":  func(first, test, last Node[packet]) []Node[packet] { return []Node[packet]{first, last, test} },
	"in a group": func(first, test, last Node[packet]) []Node[packet] {
		return []Node[packet]{first, Group("group", test), last}
	},
}

// since returns a Wait for a time of the run. A restart does not make it later.
func since(f *fib, seconds int) Wait {
	return Until(f.Began().Add(time.Duration(seconds) * time.Second))
}

// nap is a child that waits until a time of the run of its parent, or fails if that is negative.
func nap(parent *fib, seconds int) Child {
	until := since(parent, seconds)
	return New("kid", Step("nap", func(_ context.Context, f *fib) Next {
		if seconds < 0 {
			return f.Fail(errBad)
		}
		return f.Await(until)
	})).Child("", &packet{})
}

// resumedAt returns a token that is resumed at a time of the run.
func resumedAt(f *fib, seconds int, err error) Token {
	t := f.Token()
	time.AfterFunc(time.Until(f.Began().Add(time.Duration(seconds)*time.Second)), func() {
		if err != nil {
			t.Fail(err)
			return
		}
		t.Resume("value")
	})
	return t
}

func pairFlow(line, outcome, option string) *Flow[packet] {
	seen := func(name string, opts ...Option) Node[packet] {
		return Step(name, func(_ context.Context, f *fib) Next { f.Packet.seen(f); return f.Next() }, opts...)
	}
	test := Step("test", func(_ context.Context, f *fib) Next {
		f.Packet.seen(f)
		if f.Attempt() > 0 || !f.Entered().Equal(f.Began()) || f.Packet.n > 0 { // the first run has returned it
			return f.Next()
		}
		f.Packet.n++
		return outcomes[outcome](f)
	}, stepOptions[option]()...)
	wait := func(name, then string) Node[packet] {
		return Detour(name, func(_ context.Context, f *fib) Next {
			f.Packet.seen(f)
			n := f.Await(Until(f.Entered().Add(3 * time.Second)))
			if then != "" {
				n = n.Then(then)
			}
			return n
		})
	}
	nodes := lines[line](seen("first"), test, seen("last", Deadline(5*time.Second)))
	return New("f", append(nodes, wait("aside", ""), wait("other", "last"))...)
}

// seen records a run of a step: its attempt, the time of the run, and the error that led to it.
func (p *packet) seen(f *fib) {
	text := fmt.Sprintf("%s#%d entered %v", f.Path(), f.Attempt(), f.Entered().Sub(f.Began()))
	if err := f.Err(); err != nil {
		text += fmt.Sprintf(" after %q, late: %v", err, errors.Is(err, ErrTimeout))
	}
	p.events = append(p.events, pairEvent{f.Now().Sub(f.Began()), text})
}

type pairEvent struct {
	At   time.Duration
	Text string
}

// played is the observable outcome of a run.
type played struct {
	Events []pairEvent
	Took   time.Duration
	End    string
}

// dying is a store that ignores all calls once it is dead.
type dying struct {
	Memory
	dead bool
}

func (d *dying) Save(ctx context.Context, key string, p Position) error {
	if d.dead {
		return nil
	}
	text, err := json.Marshal(p) // as stored outside
	if err != nil {
		return err
	}
	var read Position
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	return d.Memory.Save(ctx, key, read)
}

func (d *dying) Clear(ctx context.Context, key string) error {
	if d.dead {
		return nil
	}
	return d.Memory.Clear(ctx, key)
}

// downtime is the time until the restart. No event falls into it: events are at full seconds, and crashes are halfway.
const downtime = 100 * time.Millisecond

// play runs the flow with crashes at the given times of the run, and returns the outcome after the last one. saved is
// false if no position had been saved before a crash, so that the flow began again.
func play(t *testing.T, fl *Flow[packet], crashes ...time.Duration) (p played, saved bool) {
	began, store := time.Now(), &dying{}
	for _, at := range crashes {
		e := NewEngine(EngineOptions{})
		start(t, e, fl, &packet{}, StartOptions{Key: "k", Positions: store})
		time.Sleep(time.Until(began.Add(at)))
		synctest.Wait()
		store.dead = true
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		store.dead = false
		time.Sleep(downtime)
		if _, found, _ := store.Load(t.Context(), "k"); !found {
			return p, false
		}
	}
	e := NewEngine(EngineOptions{})
	defer e.Close(context.Background())
	pack := &packet{}
	err := start(t, e, fl, pack, StartOptions{Key: "k", Positions: store}).Wait(t.Context())
	p = played{Events: pack.events, Took: time.Since(began), End: fmt.Sprint(err)}
	time.Sleep(time.Minute) // timers of the flow end within the bubble
	return p, true
}

func TestPairsOfOutcomeAndOption(t *testing.T) {
	t.Parallel()
	for line := range lines {
		for outcome := range outcomes {
			for option := range stepOptions {
				t.Run(line+"/"+outcome+"/"+option, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { comparePair(t, pairFlow(line, outcome, option)) })
				})
			}
		}
	}
}

func comparePair(t *testing.T, fl *Flow[packet]) {
	whole, _ := play(t, fl)
	if len(whole.Events) > 20 || whole.Took > 5*time.Minute {
		t.Fatalf("it does not end: %v", whole)
	}
	times := crashTimes(whole)
	for i, at := range times {
		compareCrashed(t, fl, whole, at)
		for _, again := range times[i+1:] {
			compareCrashed(t, fl, whole, at, again)
		}
	}
}

// crashTimes are half a second before and after each event.
func crashTimes(p played) (times []time.Duration) {
	add := func(at time.Duration) {
		if at > 0 && at < p.Took && !slices.Contains(times, at) {
			times = append(times, at)
		}
	}
	for _, e := range append(p.Events, pairEvent{At: p.Took}) {
		add(e.At - time.Second/2)
		add(e.At + time.Second/2)
	}
	slices.Sort(times)
	return times
}

func compareCrashed(t *testing.T, fl *Flow[packet], whole played, crashes ...time.Duration) {
	t.Helper()
	got, saved := play(t, fl, crashes...)
	if !saved {
		return
	}
	last := crashes[len(crashes)-1]
	n := slices.IndexFunc(whole.Events, func(e pairEvent) bool { return e.At > last })
	if n < 0 {
		n = len(whole.Events)
	}
	want := played{Events: whole.Events[n:], Took: whole.Took, End: whole.End}
	if len(got.Events) > 0 && got.Events[0].At == last+downtime { // the step that was under way runs again
		if n == 0 || got.Events[0].Text != whole.Events[n-1].Text {
			t.Errorf("crashed at %v: %q runs again, under way was %q", crashes, got.Events[0].Text, whole.Events[:n])
		}
		got.Events = got.Events[1:]
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("crashed at %v (-want +got):\n%s\nwithout: %v", crashes, diff, whole.Events)
	}
}
