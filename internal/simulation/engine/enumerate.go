package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// late is the default of Options.Late. Operators that wait for their cache often give up after 10 s.
	late = 20 * time.Second
	// pause is longer than the usual lease of a leader, 15 s.
	pause = 40 * time.Second
	// maxRepeats bounds the moments of one verb, object and subresource, for subjects that repeat a write for ever.
	maxRepeats = 12
)

// A Reference is what runs without faults have in common.
type Reference struct {
	Outcome           // of the first run
	Want     *Want    // the final state, and what differs between the runs
	Writes   []Moment // of the subject, in the order of the first run
	Changes  []Moment // of objects that the subject watches
	Disagree []string // objects and fields that differ between the runs, for the report
	Names    []string // expressions of names that the subject makes up at random
	Varies   []string // fields that differ between the runs, and do not identify a moment

	flaws   flaws
	varying map[string]bool // endpoints whose calls differ between the runs, such as by a uid in the body
}

// flaws are what is wrong without any fault. The zero value means nothing is.
type flaws struct {
	Symptoms []Symptom
	Run      int // the first run that shows the first symptom
	Shown    int // runs that show it
	Trace    []Event
}

// NewReference joins the outcomes of several runs of one workload. The ignored paths are not compared.
func NewReference(runs []*Outcome, ignore []string) *Reference {
	ref := &Reference{Outcome: *runs[0], Want: &Want{End: runs[0].End, Mask: Mask{}, Ignore: ignore}}
	for i, a := range runs {
		for _, b := range runs[:i] {
			ref.Want.Mask.Add(a.End, b.End)
		}
	}
	ref.Writes = common(runs, func(e Event) (Moment, bool) {
		return e.Write, e.Actor == Subject && e.Write.N <= maxRepeats
	})
	watched := map[string]bool{}
	for _, kind := range ref.Watched {
		watched[kind] = true
	}
	ref.Changes = common(runs, func(e Event) (Moment, bool) { return e.Changed, watched[e.Changed.Kind()] })
	ref.Disagree = disagree(ref.Want.Mask, runs)
	ref.flaws = flawsOf(runs)
	ref.varying = map[string]bool{}
	for _, a := range runs {
		for _, b := range runs {
			for call, n := range a.Calls {
				if b.Calls[call] != n {
					ref.varying[endpoint(call)] = true
				}
			}
		}
	}
	ref.Calls = map[string]int{}
	for _, run := range runs {
		for call, n := range ref.calls(run) {
			ref.Calls[call] = max(ref.Calls[call], n)
		}
	}
	return ref
}

// flawsOf returns the invariants that a run without faults violates, and what the first run repeats without end.
func flawsOf(runs []*Outcome) flaws {
	var w flaws
	for i, run := range runs {
		found := violations(run)
		if len(found) > 0 && w.Shown == 0 {
			w = flaws{Symptoms: found, Run: i, Trace: run.Trace}
		}
		if w.Symptoms != nil && slices.ContainsFunc(found, w.Symptoms[0].same) {
			w.Shown++
		}
	}
	for _, r := range runs[0].Busy {
		w.Symptoms = append(w.Symptoms, Symptom{Verdict: Restless, About: r.Request, Text: r.String()})
		if w.Shown == 0 {
			w.Shown, w.Trace = len(runs), runs[0].Trace
		}
	}
	return w
}

// disagree returns the masked objects and fields, sorted. Of an object it says how often it exists in each run: one
// that is only sometimes left over or missing without any fault is often a bug itself.
func disagree(m Mask, runs []*Outcome) []string {
	out := m.Names()
	for i, name := range out {
		if !m.covers(name, "") {
			continue
		}
		counts := make([]string, len(runs))
		for n, run := range runs {
			counts[n] = strconv.Itoa(len(run.End[name]))
		}
		last := len(counts) - 1
		out[i] = fmt.Sprintf("%s exists %s and %s times", name, strings.Join(counts[:last], ", "), counts[last])
	}
	return out
}

// calls returns the numbers of calls of a run. Calls of a varying endpoint are counted together.
func (r *Reference) calls(run *Outcome) map[string]int {
	out := map[string]int{}
	for call, n := range run.Calls {
		if e := endpoint(call); r.varying[e] {
			call = e
		}
		out[call] += n
	}
	return out
}

// endpoint returns a call without its body.
func endpoint(call string) string {
	method, rest, _ := strings.Cut(call, " ")
	url, _, _ := strings.Cut(rest, " ")
	return method + " " + url
}

// Subject is the actor of events that the subject causes, Cluster that of the controllers of Kubernetes, and Invariant
// that of violations.
const (
	Subject   = "subject"
	Cluster   = "cluster"
	Invariant = "invariant"
)

// common returns the distinct moments that all runs have, in the order of the first one.
func common(runs []*Outcome, pick func(Event) (Moment, bool)) []Moment {
	count := map[Moment]int{}
	var order []Moment
	for i, run := range runs {
		seen := map[Moment]bool{}
		for _, e := range run.Trace {
			m, ok := pick(e)
			if !ok || m == (Moment{}) || seen[m] {
				continue
			}
			seen[m] = true
			count[m]++
			if i == 0 {
				order = append(order, m)
			}
		}
	}
	return slices.DeleteFunc(order, func(m Moment) bool { return count[m] < len(runs) })
}

// Single returns all plans with one fault of the given kinds. The classes take turns, and so do the kinds of a class.
// Each kind spreads its moments. So any number of plans from the beginning shows each class, in all parts of the
// workload. Watches are late by late. If only has elements, it keeps moments of these resources.
func Single(ref *Reference, kinds []FaultKind, late time.Duration, only []string) []Plan {
	var order []string // of the classes
	classes := map[string][][]Plan{}
	for i, kind := range kinds {
		class := kind.class()
		if classes[class] == nil {
			order = append(order, class)
		}
		shift := float64(i) / float64(len(kinds))
		classes[class] = append(classes[class], spread(ref.single(kind, late, only), shift))
	}
	var turns [][]Plan
	for _, class := range order {
		turns = append(turns, takeTurns(classes[class]))
	}
	return takeTurns(turns)
}

// single returns the plans with one fault of a kind, in the order of their moments.
func (r *Reference) single(kind FaultKind, late time.Duration, only []string) []Plan {
	if kind == Stale {
		return r.stale(late, only)
	}
	moments, lasts := r.Writes, time.Duration(0)
	switch {
	case kind.AtChange():
		moments, lasts = r.Changes, late
	case kind.needsReplicas():
		if !r.Leads {
			return nil
		}
		lasts = pause
	}
	var out []Plan
	for _, m := range moments {
		if selected(m, only) && possible(kind, m) {
			out = append(out, Plan{Faults: []Fault{{Kind: kind, At: m, For: Duration(lasts)}}})
		}
	}
	return out
}

// stale returns the plans in which the subject is killed at a change of an object, and the next one begins with the
// state after an earlier change of that object.
func (r *Reference) stale(late time.Duration, only []string) []Plan {
	usual := map[Moment]bool{}
	for _, m := range r.Changes {
		usual[m] = true
	}
	var before []Moment // in the first run; an object may come to a state again
	seen := map[[2]Moment]bool{}
	var out []Plan
	for _, e := range r.Trace {
		if at := e.Changed; usual[at] {
			for _, since := range before {
				pair := [2]Moment{since, at}
				if since.Object == at.Object && since != at && since.To != "" && selected(at, only) && !seen[pair] {
					seen[pair] = true
					out = append(out, Plan{Faults: []Fault{{Kind: Stale, At: at, Since: since, For: Duration(late)}}})
				}
			}
			before = append(before, at)
		}
	}
	return out
}

// spread returns the plans in an order of which each beginning is spread evenly over all of them: that of the fractions
// of the multiples of the golden ratio. Another shift, from 0 to 1, begins with other plans.
func spread(plans []Plan, shift float64) []Plan {
	order := make([]int, len(plans))
	for i := range order {
		order[i] = i
	}
	fraction := func(i int) float64 {
		_, f := math.Modf(float64(i)*math.Phi + shift)
		return f
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(fraction(a), fraction(b)) })
	out := make([]Plan, len(plans))
	for i, from := range order {
		out[i] = plans[from]
	}
	return out
}

// takeTurns returns the elements of all lists: the first of each, then the second of each, and so on.
func takeTurns(lists [][]Plan) []Plan {
	var out []Plan
	for i, more := 0, true; more; i++ {
		more = false
		for _, list := range lists {
			if i < len(list) {
				out, more = append(out, list[i]), true
			}
		}
	}
	return out
}

// possible reports whether a conforming server can show a fault at a moment. Nobody can write to an object just before
// its creation, and the fault must not write to what is outside the cluster.
func possible(kind FaultKind, m Moment) bool {
	if kind != Conflict {
		return true
	}
	switch m.Verb {
	case "update", "patch", "apply", "delete":
		return m.Subresource == "" || m.Subresource == "status"
	}
	return false
}

func selected(m Moment, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(name string) bool { return isKind(name, m.Kind()) })
}

// mixed returns plans of the shorter and of the whole workload in turns. The shorter one has this number of steps. A
// fault without a duration, such as a crash, is over before the deletion, so the whole workload shows nothing more of
// it: these plans are last.
func mixed(early *Reference, shorter, whole []Plan, steps int) []Plan {
	for i := range shorter {
		shorter[i].Steps = steps
	}
	known := map[Moment]bool{}
	for _, m := range slices.Concat(early.Writes, early.Changes) {
		known[m] = true
	}
	var first, last []Plan
	for _, p := range whole {
		if f := p.Faults[0]; f.For == 0 && known[f.At] {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	return append(takeTurns([][]Plan{shorter, first}), last...)
}

// pair returns a plan with the faults of two random plans, in the order of their moments. It plays the whole workload
// if one of the plans does. References are by the number of steps.
func pair(rnd *rand.Rand, single []Plan, refs map[int]*Reference) Plan {
	a, b := single[rnd.IntN(len(single))], single[rnd.IntN(len(single))]
	faults := []Fault{a.Faults[0], b.Faults[0]}
	steps := min(a.Steps, b.Steps)
	ref := refs[steps]
	slices.SortStableFunc(faults, func(x, y Fault) int { return cmp.Compare(ref.position(x.At), ref.position(y.At)) })
	if faults[0] == faults[1] {
		faults = faults[:1]
	}
	return Plan{Faults: faults, Steps: steps}
}

func (r *Reference) position(m Moment) int {
	return slices.IndexFunc(r.Trace, func(e Event) bool { return e.Write == m || e.Changed == m })
}
