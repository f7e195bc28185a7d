package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Verdict is a class of wrong behavior.
type Verdict string

// The verdicts, the most telling first.
const (
	Exited   Verdict = "ended"            // the subject ended or panicked
	Violated Verdict = "invariant"        // an invariant was violated
	Doubled  Verdict = "doubled call"     // a call to an outside service had its effect more often than without faults
	Missed   Verdict = "step not reached" // a step of the workload was not reached
	Restless Verdict = "never quiet"      // the system never came to rest
	Left     Verdict = "left over"        // an object exists that does not exist without faults, or exists twice
	Differs  Verdict = "other end"        // the final state differs in another way
)

// A Symptom is one thing that is wrong with an outcome.
type Symptom struct {
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`
	// About is the object, field, request or invariant. Symptoms with the same verdict and About are the same finding.
	About string `json:"about,omitempty"`
}

// alone reports whether the symptom is wrong by itself, and not by comparison with runs without faults.
func (s Symptom) alone() bool { return s.Verdict == Exited || s.Verdict == Violated }

func (s Symptom) key() string { return string(s.Verdict) + " " + s.About }

func (s Symptom) same(other Symptom) bool { return s.key() == other.key() }

// Judge returns what is wrong with an outcome, the most telling symptom first.
func Judge(ref *Reference, out *Outcome) []Symptom {
	var found []Symptom
	add := func(v Verdict, about, text string) {
		found = append(found, Symptom{Verdict: v, About: about, Text: text})
	}
	for _, reason := range out.Exits {
		first, _, _ := strings.Cut(reason, "\n")
		add(Exited, first, reason)
	}
	if out.End == nil && len(out.Exits) > 0 {
		return found
	}
	found = append(found, violations(out)...)
	calls := ref.calls(out)
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		if n, want := calls[call], ref.Calls[call]; n > want {
			add(Doubled, call, fmt.Sprintf("%s had its effect %d times; without the fault %d", call, n, want))
		}
	}
	if s := out.Stuck; s != nil {
		add(Missed, s.Name, fmt.Sprintf("step %d, %s: %s", s.Step+1, s.Name, s.Reason))
	}
	usual := map[string]bool{}
	for _, r := range ref.Busy {
		usual[r.Request] = true
	}
	for _, r := range out.Busy {
		if !usual[r.Request] {
			add(Restless, r.Request, r.String())
		}
	}
	if !out.Quiet && ref.Quiet && len(out.Busy) == 0 {
		add(Restless, "", "objects keep changing: "+lastChanges(out.Trace))
	}
	if out.Stuck != nil || !out.Quiet { // the end is that of another moment
		return found
	}
	var differs []Symptom
	for _, d := range diff(ref.Want.End, out.End, ref.Want.Mask, ref.Want.Ignore) {
		if d.Path == "" && d.more() {
			add(Left, d.Object, d.String())
		} else {
			differs = append(differs, Symptom{Verdict: Differs, About: d.Object + " " + d.Path, Text: d.String()})
		}
	}
	return append(found, differs...)
}

// violations returns the violated invariants of a run.
func violations(out *Outcome) []Symptom {
	var found []Symptom
	for _, b := range out.Broken {
		found = append(found, Symptom{Verdict: Violated, About: b.Reason, Text: fmt.Sprintf("%s (after %s)", b.Reason, b.At)})
	}
	return found
}

// String describes the repetition with its rate.
func (r Repeat) String() string {
	return fmt.Sprintf("%s is repeated while nothing changes: %d times in %s", r.Request, r.Times, r.Within)
}

// lastChanges names the objects of the last changes of a trace.
func lastChanges(trace []Event) string {
	var names []string
	for i := len(trace) - 1; i >= 0 && len(names) < 3; i-- {
		if e := trace[i]; e.Changed != (Moment{}) && !slices.Contains(names, e.Changed.Object) {
			names = append(names, e.Changed.Object)
		}
	}
	return strings.Join(names, ", ")
}

// AnotherCourse reports whether the subject made other writes than in the reference. It is no finding by itself.
func AnotherCourse(ref *Reference, out *Outcome) bool {
	if out.End == nil {
		return false
	}
	writes := func(trace []Event) map[Moment]bool {
		set := map[Moment]bool{}
		for _, e := range trace {
			if e.Actor == Subject && (e.Write.Verb == "delete" || e.Write.Verb == "create") {
				set[e.Write] = true
			}
		}
		return set
	}
	return !maps.Equal(writes(ref.Trace), writes(out.Trace))
}
