package engine

import (
	"strings"
	"testing"
	"time"
)

// violating is a driver whose subject makes a write. A run violates a rule if violates returns true.
func violating(violates func(Plan) bool) driverFunc {
	return func(p Plan) (*Outcome, error) {
		out := &Outcome{
			End: state("pods/default/a=1"), Quiet: true, Reached: make([]bool, len(p.Faults)),
			Trace: []Event{{Actor: Subject, Write: write(1)}},
		}
		for i, f := range p.Faults {
			out.Reached[i] = true
			out.Trace[0].Fault = f.String()
		}
		if violates(p) {
			out.Broken = []Broken{{At: time.Second, Reason: "two pods"}}
			out.Trace = append(out.Trace, Event{At: time.Second, Actor: Invariant, Fault: "two pods"})
		}
		return out, nil
	}
}

// A violated rule is a finding, also if it depends on the times of a run, or comes without any fault. Other suspicions
// that do not repeat are named.
func TestConfirm(t *testing.T) {
	crash := func(p Plan) bool { return len(p.Faults) == 1 && p.Faults[0].Kind == CrashAfter }
	for _, tt := range []struct {
		name     string
		violates func(Plan) bool
		says     []string
	}{
		{"each time", crash, []string{
			"simulate: finding 1 (invariant, shown by 3 of 3 replays)\n  two pods", "\n  fault:  the subject is killed after ",
		}},
		{"with some times", func(p Plan) bool { return crash(p) && p.Seed == 1 }, []string{
			"simulate: finding 1 (invariant, shown by 1 of 3 replays)\n", "\n  fault:  the subject is killed after ",
		}},
		{"also without faults", func(p Plan) bool { return crash(p) || p.Seed == otherTimes+2 }, []string{
			"simulate: finding 1 (invariant, shown by 1 of 3 replays)\n", "\n  fault:  none\n",
		}},
		{"in one of the runs without faults", func(p Plan) bool { return p.Seed == 3 }, []string{
			"simulate: finding 1 (invariant, shown by 1 of 3 replays)\n", "\n  fault:  none\n",
			"\"seed\":3", "simulate: 1 finding in 0 schedules",
		}},
		{"never again", onceOnly(crash), []string{
			"simulate: 0 findings in ", "\n  1 suspicion did not repeat: no finding:\n" +
				"    invariant: two pods (after 1s) (1 schedule, the first: the subject is killed after ",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Seed: 1, Steps: 2, Faults: Classes["crash"], Schedules: 9}
			r, err := Search(t.Context(), violating(tt.violates), o)
			if err != nil {
				t.Fatal(err)
			}
			text := Text(r, Names{Replay: func(plan string) string { return plan }})
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("the report has no %q:\n%s", want, text)
				}
			}
		})
	}
}

// onceOnly returns a function that is true for the first plan for which fn is, and then never again.
func onceOnly(fn func(Plan) bool) func(Plan) bool {
	seen := false
	return func(p Plan) bool {
		if seen || !fn(p) {
			return false
		}
		seen = true
		return true
	}
}

// The course shows what happens around the fault, and the last events that are about the symptom.
func TestCourse(t *testing.T) {
	event := func(at int, object, fault string) Event {
		return Event{
			At: time.Duration(at) * time.Second, Actor: Subject, Write: Moment{Verb: "create", Object: object}, Fault: fault,
		}
	}
	trace := []Event{event(0, "pods/default/a", ""), event(1, "pods/default/a", "a crash")}
	for at := 2; at < 20; at++ {
		trace = append(trace, event(at, "pods/default/b", ""))
	}
	trace[15].Write.Object = "secrets/default/c"
	var b strings.Builder
	course(&b, Finding{Symptoms: []Symptom{{Verdict: Left, About: "secrets/default/c"}}, Trace: trace})
	want := `  course:
        0.000s subject  create pods/default/a
        1.000s subject  create pods/default/a  <<< a crash
        2.000s subject  create pods/default/b
        3.000s subject  create pods/default/b
        4.000s subject  create pods/default/b
        5.000s subject  create pods/default/b
        6.000s subject  create pods/default/b
        …
       15.000s subject  create secrets/default/c
`
	if got := b.String(); got != want {
		t.Errorf("the course is\n%s\nwant\n%s", got, want)
	}
}

// A path without a field ignores all objects of a resource, and no others. The group may be left out.
func TestIgnoreResource(t *testing.T) {
	short := &Want{End: state("pods/default/a=1", "things.example/default/a=1"), Ignore: []string{"things:*"}}
	if !short.Equals(state("pods/default/a=1")) || short.Equals(state("things.example/default/a=1")) {
		t.Error("a resource without its group is not ignored, or another one is")
	}
	want := &Want{End: state("pods/default/a=1", "things.example/default/a=1"), Ignore: []string{"things.example:*"}}
	for _, tt := range []struct {
		end   State
		equal bool
	}{
		{state("pods/default/a=1", "things.example/default/a=2", "things.example/default/b=1"), true},
		{state("pods/default/a=1"), true},
		{state("things.example/default/a=1"), false},
		{state("pods/default/a=1", "things.example.com/default/a=1", "things.example/default/a=1"), false},
	} {
		if got := want.Equals(tt.end); got != tt.equal {
			t.Errorf("%v is equal: %t", tt.end, got)
		}
	}
}

// A search that ends after enough findings says so.
func TestReportOfManyFindings(t *testing.T) {
	f := Finding{Symptoms: []Symptom{{Verdict: Left, About: "pods/default/a"}}}
	text := Text(&Report{Planned: 9, Played: 5, Findings: []Finding{f, f, f, f, f}}, Names{})
	if want := "\n  4 single faults were not played: the search ends after 5 findings"; !strings.Contains(text, want) {
		t.Errorf("the report has no %q:\n%s", want, text)
	}
}
