package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// deleting is a driver whose subject makes two writes, and a third one after the deletion, which is the third of four
// steps. A crash after the first write leaves an object twice, until the deletion removes all.
func deleting(played func(Plan), restless bool) driverFunc {
	return func(p Plan) (*Outcome, error) {
		played(p)
		out := &Outcome{End: State{}, Quiet: true, Reached: make([]bool, len(p.Faults))}
		end := []string{"pods/default/a=1"}
		for i, f := range p.Faults {
			out.Reached[i] = true
			if f.Kind == CrashAfter && f.At == write(1) {
				end = append(end, "pods/default/a=1")
			}
		}
		writes := 3
		if p.Steps > 0 && p.Steps <= 2 {
			out.End, writes, out.Quiet = state(end...), 2, !restless
		}
		for n := range writes {
			out.Trace = append(out.Trace, Event{Actor: Subject, Write: write(n + 1)})
		}
		return out, nil
	}
}

// An object that the last deletion of the workload removes is found, since half of the schedules end before it. Plans
// of the whole workload whose fault is over before the deletion are last.
func TestSearchBeforeDeletion(t *testing.T) {
	var mu sync.Mutex
	var plans []Plan // without replays and shorter workloads
	d := deleting(func(p Plan) {
		mu.Lock()
		defer mu.Unlock()
		known := func(other Plan) bool { return other.key() == p.key() }
		if len(p.Faults) == 1 && p.Steps != 1 && !slices.ContainsFunc(plans, known) {
			plans = append(plans, p)
		}
	}, false)
	r, err := Search(t.Context(), d, Options{Steps: 4, EarlyEnd: 2, Faults: Classes["crash"], Schedules: 100})
	if err != nil || len(r.Findings) != 1 {
		t.Fatalf("the report is %+v, error %v", r, err)
	}
	f := r.Findings[0]
	if s := f.Symptoms[0]; s.Verdict != Left || f.Plan.Steps == 0 || f.Plan.Steps > 2 || f.Steps != f.Plan.Steps {
		t.Errorf("the finding is %+v with %d steps", s, f.Plan.Steps)
	}
	if text := Text(r, Names{}); !strings.Contains(text, "\n  steps:  only the first one of the workload\n") {
		t.Errorf("the report does not say how many steps are played:\n%s", text)
	}
	// 2 kinds of crashes at 2 writes before the deletion, and at 3 in all.
	if r.Planned != 10 {
		t.Errorf("%d single faults are planned, not 10", r.Planned)
	}
	at := func(of func(Plan) bool) int { return slices.IndexFunc(plans, of) }
	removal := at(func(p Plan) bool { return p.Steps == 0 && p.Faults[0].At == write(3) })
	repeated := at(func(p Plan) bool { return p.Steps == 0 && p.Faults[0].At == write(2) })
	if removal < 0 || removal > 3 || repeated < 6 {
		t.Errorf("the first fault at the deletion is schedule %d, and the first one that is over before it is %d",
			removal, repeated)
	}
}

// A pair with a fault of the whole workload plays the whole workload, and other pairs end before the deletion.
func TestPairBeforeDeletion(t *testing.T) {
	early := Plan{Steps: 2, Faults: []Fault{{Kind: CrashAfter, At: write(1)}}}
	late := Plan{Faults: []Fault{{Kind: CrashAfter, At: write(3)}}}
	refs := map[int]*Reference{}
	for _, steps := range []int{0, 2} {
		out, err := deleting(func(Plan) {}, false)(Plan{Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		refs[steps] = NewReference([]*Outcome{out}, nil)
	}
	rnd, seen := rand.New(rand.NewPCG(1, 1)), map[int]bool{}
	for range 100 {
		p := pair(rnd, []Plan{early, late}, refs)
		whole := slices.Contains(p.Faults, late.Faults[0])
		if whole != (p.Steps == 0) {
			t.Errorf("the pair %s plays %d steps", p, p.Steps)
		}
		if seen[len(p.Faults)] = true; len(p.Faults) == 2 && p.Faults[0] != early.Faults[0] {
			t.Errorf("the order of %s is not that of its moments", p)
		}
	}
	if !seen[1] || !seen[2] {
		t.Errorf("the pairs have these numbers of faults: %v", seen)
	}
}

// A workload that does not settle before its deletion is compared at its end only, and the report says so.
func TestSearchWithoutRestBeforeDeletion(t *testing.T) {
	r, err := Search(t.Context(), deleting(func(Plan) {}, true), Options{
		Steps: 4, EarlyEnd: 2, Faults: Classes["crash"], Schedules: 100,
	})
	if err != nil || len(r.Findings) != 0 || r.Planned != 6 {
		t.Fatalf("the report is %+v, error %v", r, err)
	}
	want := "the state before step 3, a deletion, is not compared: the workload never settles without faults"
	if text := Text(r, Names{}); !strings.Contains(text, want) {
		t.Errorf("the report does not say %q:\n%s", want, text)
	}
}
