package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Names are texts that depend on how the search was started.
type Names struct {
	Replay func(plan string) string // returns the command that replays a plan in JSON; nil: none is shown
}

// ParsePlan reads a plan as a report shows it.
func ParsePlan(text string) (Plan, error) {
	var p Plan
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("cannot decode the plan: %w", err)
	}
	for _, e := range p.Names {
		if _, err := regexp.Compile(e); err != nil {
			return p, fmt.Errorf("cannot use the plan: %w", err)
		}
	}
	return p, nil
}

// Text returns a report for a terminal.
func Text(r *Report, n Names) string {
	var b strings.Builder
	for i, f := range r.Findings {
		fmt.Fprintf(&b, "simulate: finding %d (%s, shown by %d of %d replays)\n", i+1, f.Symptoms[0].Verdict, f.Shown, f.Of)
		writeFinding(&b, f, n)
	}
	for i, f := range r.Suspicions {
		fmt.Fprintf(&b, "simulate: suspicion %d (%s, not confirmed before the end: shown by %d of %d replays)\n", i+1,
			f.Symptoms[0].Verdict, f.Shown, f.Of)
		writeFinding(&b, f, n)
	}
	pairs := ""
	if r.Pairs > 0 {
		pairs = fmt.Sprintf(", %d of them with two faults", r.Pairs)
	}
	elapsed := r.Elapsed.Round(100 * time.Millisecond)
	fmt.Fprintf(&b, "simulate: %s in %s%s (seed %d, %s).",
		number(len(r.Findings), "finding"), number(r.Played, "schedule"), pairs, r.Seed, elapsed)
	if r.Writes+r.Changes > 0 { // nothing is counted for a replay
		fmt.Fprintf(&b, " %s and %s allow %s.", number(r.Writes, "distinct write"), number(r.Changes, "change"),
			number(r.Planned, "single fault"))
	}
	b.WriteByte('\n')
	line := func(n int, one, many, text string) {
		switch {
		case n == 1:
			fmt.Fprintf(&b, "  1 %s %s\n", one, text)
		case n > 1:
			fmt.Fprintf(&b, "  %d %s %s\n", n, many, text)
		}
	}
	if reason := "the time or the number of schedules is bounded"; r.Planned > 0 {
		if len(r.Findings) >= maxFindings {
			reason = fmt.Sprintf("the search ends after %d findings", maxFindings)
		}
		line(r.Planned-(r.Played-r.Pairs), "single fault was", "single faults were", "not played: "+reason)
	}
	line(r.Unreached, "schedule", "schedules", "ended before the moment of the fault came:")
	for _, text := range r.Never {
		fmt.Fprintf(&b, "    %s\n", text)
	}
	line(r.Otherwise, "schedule", "schedules", "took another course to the same end")
	line(len(r.Suspicions), "suspicion", "suspicions", "could not be confirmed before the end: no finding yet")
	line(r.Unconfirmed, "suspicion", "suspicions", "did not repeat: no finding:")
	for _, d := range r.Doubts {
		text, _, _ := strings.Cut(d.Symptom.Text, "\n")
		fmt.Fprintf(&b, "    %s: %s (%s, the first: %s)\n", d.Symptom.Verdict, shortened(text), number(d.Count, "schedule"),
			d.Plan)
	}
	line(r.FailedCount, "schedule", "schedules", "could not be judged:")
	for _, text := range r.Failed {
		fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      "))
	}
	line(len(r.Disagree), "object or field is", "objects and fields are",
		"not compared, since the runs without faults differ there:")
	for _, name := range r.Disagree[:min(len(r.Disagree), maxLines)] {
		fmt.Fprintf(&b, "    %s\n", name)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	return strings.TrimRight(b.String(), "\n")
}

// number returns a number with its noun, such as "1 schedule" or "2 schedules".
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func writeFinding(b *strings.Builder, f Finding, n Names) {
	fmt.Fprintf(b, "  %s\n", indent(f.Symptoms[0].Text))
	for _, s := range f.Symptoms[1:min(len(f.Symptoms), 4)] {
		fmt.Fprintf(b, "  also: %s\n", indent(s.Text))
	}
	if more := len(f.Symptoms) - 4; more > 0 {
		fmt.Fprintf(b, "  and %d more differences\n", more)
	}
	if len(f.Plan.Faults) == 0 {
		fmt.Fprintf(b, "  fault:  none\n")
	}
	for _, fault := range f.Plan.Faults {
		fmt.Fprintf(b, "  fault:  %s\n", fault)
	}
	for _, o := range f.Others {
		fmt.Fprintf(b, "  or:     %s (%s of class %s, not replayed)\n", o.Plan, number(o.Count, "schedule"), o.Class)
	}
	switch n := f.Plan.Steps; n {
	case 0:
	case 1:
		fmt.Fprintf(b, "  steps:  only the first one of the workload\n")
	default:
		fmt.Fprintf(b, "  steps:  only the first %d of the workload\n", n)
	}
	if f.Unshrunk {
		fmt.Fprintf(b, "  note:   the search ended before it could look for fewer faults and a shorter workload\n")
	}
	course(b, f)
	if n.Replay != nil {
		fmt.Fprintf(b, "  replay: %s\n\n", n.Replay(planText(f.Plan)))
	}
}

// course shows the events around the fault, and the last ones that are about the symptom.
func course(b *strings.Builder, f Finding) {
	const before, after, last = 2, 6, 3
	at := max(0, slices.IndexFunc(f.Trace, func(e Event) bool { return e.Fault != "" && e.Actor != "workload" }))
	end := min(len(f.Trace), at+after)
	var later []int
	for i := end; i < len(f.Trace); i++ {
		if f.Symptoms[0].concerns(f.Trace[i]) {
			later = append(later, i)
		}
	}
	fmt.Fprintf(b, "  course:\n")
	next := max(0, at-before)
	for ; next < end; next++ {
		fmt.Fprintf(b, "    %s\n", f.Trace[next])
	}
	for _, i := range later[max(0, len(later)-last):] {
		if i > next {
			fmt.Fprintf(b, "        …\n")
		}
		fmt.Fprintf(b, "    %s\n", f.Trace[i])
		next = i + 1
	}
}

// concerns reports whether an event belongs to what the symptom is about. Without an object that is each event.
func (s Symptom) concerns(e Event) bool {
	switch s.Verdict {
	case Violated:
		return e.Actor == Invariant
	case Left, Differs:
		object, _, _ := strings.Cut(s.About, " ")
		return e.Write.Object == object || e.Changed.Object == object
	}
	return true
}

// lastEvents returns the end of a run that cannot be a reference, and what may be the reason.
func lastEvents(o *Outcome) string {
	const most = 12 // events, and lines of the output
	var b strings.Builder
	b.WriteString("  the last events:\n")
	events := o.Trace
	if o.Stuck != nil {
		events = slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.At > o.Stuck.At })
	}
	for _, e := range events[max(0, len(events)-most):] {
		fmt.Fprintf(&b, "    %s\n", e)
	}
	if lines := strings.Split(strings.TrimSpace(o.Output), "\n"); lines[0] != "" {
		b.WriteString("  the last output:\n")
		for _, line := range lines[max(0, len(lines)-most):] {
			fmt.Fprintf(&b, "    %s\n", shortened(line))
		}
	}
	for _, text := range o.Warnings {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	return strings.TrimRight(b.String(), "\n")
}

// String returns one line: time, actor, and what happened.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs %-8s", e.At.Seconds(), e.Actor)
	switch {
	case e.Write.Verb != "" && e.Write.Object != "":
		fmt.Fprintf(&b, " %s", described(e.Write))
		if e.Status != 0 {
			fmt.Fprintf(&b, " → %d", e.Status)
		}
		if e.Reason != "" {
			fmt.Fprintf(&b, ": %s", shortened(indent(e.Reason)))
		}
		if e.Status >= 200 && e.Status < 300 && e.Changed == (Moment{}) {
			b.WriteString(" (no change)")
		}
	case e.Changed != (Moment{}):
		fmt.Fprintf(&b, " %s", described(e.Changed))
	}
	if len(e.Diff) > 0 {
		fmt.Fprintf(&b, " {%s}", strings.Join(e.Diff, "; "))
	}
	if e.Fault != "" {
		if e.Write.Verb != "" || e.Changed != (Moment{}) {
			fmt.Fprintf(&b, "  <<< %s", e.Fault)
		} else {
			fmt.Fprintf(&b, " %s", e.Fault)
		}
	}
	return b.String()
}

// described names a moment without its number.
func described(m Moment) string {
	switch {
	case m.Verb == Change && m.From == "":
		return "created " + m.Object
	case m.Verb == Change && m.To == "":
		return "removed " + m.Object
	case m.Verb == Change:
		return "changed " + m.Object
	case m.Subresource != "":
		return m.Verb + " " + m.Object + "/" + m.Subresource
	}
	return m.Verb + " " + m.Object
}

func planText(p Plan) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		panic(err) // a Plan has only strings and numbers
	}
	return strings.TrimSpace(b.String())
}

func indent(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ") }
