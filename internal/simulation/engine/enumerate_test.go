package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// moments is a driver whose subject leads, and makes writes and changes. It keeps the plans that are played.
type moments struct {
	writes, changes int

	mu     sync.Mutex
	played []Plan
}

func (d *moments) Play(_ context.Context, p Plan, _ *Want) (*Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p.Faults) > 0 {
		d.played = append(d.played, p)
	}
	out := &Outcome{Quiet: true, Leads: true, Watched: []string{"pods"}, Reached: []bool{true}}
	for n := range d.writes {
		out.Trace = append(out.Trace, Event{Actor: Subject, Write: Moment{
			Verb: "update", Object: fmt.Sprintf("pods/default/%d", n), N: 1,
		}})
	}
	for n := range d.changes {
		out.Trace = append(out.Trace, Event{Changed: Moment{
			Verb: Change, Object: fmt.Sprintf("pods/default/%d", n), To: "x",
		}})
	}
	return out, nil
}

// reference returns the reference of the driver's runs.
func (d *moments) reference(t *testing.T) *Reference {
	t.Helper()
	out, err := d.Play(t.Context(), Plan{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewReference([]*Outcome{out, out}, nil)
}

func all() (kinds []FaultKind) {
	for _, class := range ClassNames() {
		kinds = append(kinds, Classes[class]...)
	}
	return kinds
}

// Any number of plans from the beginning has as many of each class, as long as the class has more.
func TestSingleTakesTurns(t *testing.T) {
	for _, d := range []*moments{{writes: 40, changes: 30}, {writes: 1, changes: 7}, {writes: 3}, {}} {
		ref := d.reference(t)
		whole := map[string]int{}
		plans := Single(ref, all(), time.Second, nil)
		known := map[string]bool{}
		for _, p := range plans {
			known[p.key()] = true
			whole[p.Faults[0].Kind.class()]++
		}
		if want := 9*d.writes + 3*d.changes; len(plans) != want || len(known) != want {
			t.Fatalf("%d writes and %d changes have %d plans, %d of them distinct; want %d", d.writes, d.changes,
				len(plans), len(known), want)
		}
		count := map[string]int{}
		for n, p := range plans {
			count[p.Faults[0].Kind.class()]++
			most := 0
			for _, c := range count {
				most = max(most, c)
			}
			for class, size := range whole {
				if count[class] < min(size, most-1) {
					t.Fatalf("%d plans have %d of class %s, and %d of another one", n+1, count[class], class, most)
				}
			}
		}
	}
}

// Any number of plans of a kind is spread over the moments: no gap is larger than three times the usual one.
func TestSingleSpreads(t *testing.T) {
	d := &moments{writes: 100, changes: 100}
	ref := d.reference(t)
	for _, kind := range all() {
		place := map[Moment]int{}
		for i, m := range slices.Concat(ref.Writes, ref.Changes) {
			place[m] = i % 100
		}
		at := []int{-1, 100}
		plans := slices.DeleteFunc(Single(ref, all(), time.Second, nil),
			func(p Plan) bool { return p.Faults[0].Kind != kind })
		for n, p := range plans {
			at = append(at, place[p.Faults[0].At])
			slices.Sort(at)
			for i, x := range at[1:] {
				if gap := x - at[i]; gap > 3*100/(n+2)+1 {
					t.Errorf("%d plans of kind %s leave a gap of %d moments", n+1, kind, gap)
				}
			}
		}
	}
}

// A search with few schedules plays each class but stale, which is played on request only.
func TestSearchSamplesClasses(t *testing.T) {
	d := &moments{writes: 20, changes: 20}
	if _, err := Search(t.Context(), d, Options{Steps: 1, Schedules: len(Classes) - 1, Workers: 2}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range d.played {
		got = append(got, p.Faults[0].Kind.class())
	}
	if slices.Sort(got); !slices.Equal(append(got, "stale"), ClassNames()) {
		t.Errorf("%d schedules play the classes %q", len(Classes)-1, got)
	}
}

// A process begins with each state that its object had before, also with one to which the object comes again.
func TestStalePairs(t *testing.T) {
	small := Moment{Verb: Change, Object: "webs/a", From: "2", To: "1"}
	large := Moment{Verb: Change, Object: "webs/a", From: "1", To: "2"}
	created := Moment{Verb: Change, Object: "webs/a", To: "1"}
	other := Moment{Verb: Change, Object: "webs/b", To: "1"}
	gone := Moment{Verb: Change, Object: "webs/a", From: "2"}
	var out Outcome
	for _, m := range []Moment{created, large, other, small, large, gone} {
		out.Trace = append(out.Trace, Event{Changed: m})
	}
	out.Watched = []string{"webs"}
	ref := NewReference([]*Outcome{&out}, nil)
	got := map[string]bool{}
	for _, p := range Single(ref, []FaultKind{Stale}, time.Second, nil) {
		f := p.Faults[0]
		got[f.At.From+">"+f.At.To+" since "+f.Since.From+">"+f.Since.To] = true
	}
	want := map[string]bool{
		"1>2 since >1": true, "2>1 since >1": true, "2>1 since 1>2": true, "1>2 since 2>1": true,
		"2> since >1": true, "2> since 1>2": true, "2> since 2>1": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
