package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var pods = schema.GroupResource{Resource: "pods"}

// Two runs that differ only in values assigned by the server have equal normalized objects.
func TestNormalizer(t *testing.T) {
	object := func(suffix, uid, at string, generation, observed int64) map[string]any {
		n := NewNormalizer(nil)
		owner := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
			"name": "web-" + suffix, "namespace": "a", "generateName": "web-", "uid": uid,
		}}}
		n.Learn(pods, owner)
		return n.Object(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{
				"name": "child-of-web-" + suffix, "uid": "x" + uid, "resourceVersion": uid, "creationTimestamp": at,
				"generation": generation, "annotations": map[string]any{Touched: at},
				"ownerReferences": []any{map[string]any{"name": "web-" + suffix, "uid": uid}},
			},
			"spec":   map[string]any{"size": int64(3), "at": at},
			"status": map[string]any{"observedGeneration": observed},
		}})
	}
	a, b := object("x7x2k", "1", "2026-01-01T00:00:00Z", 4, 4), object("2wvtp", "2", "2026-02-01T00:00:00.5Z", 7, 7)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the runs differ:\n%s", diff)
	}
	if Hash(a) != Hash(b) || Hash(nil) != "" {
		t.Errorf("the hashes are %s, %s and %q", Hash(a), Hash(b), Hash(nil))
	}
	c := object("2wvtp", "2", "2026-02-01T00:00:00Z", 7, 6)
	if got := Summary(a, c, 3); !slices.Equal(got, []string{`status.observedGeneration: "<current>" → "<outdated>"`}) {
		t.Errorf("the difference is %q", got)
	}
}

// A name is generated if the API server has appended a random text to the generateName, of which it takes as much as
// fits. The pods of a StatefulSet have a generateName, and names of their own.
func TestNormalizerKnowsGeneratedNames(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, tt := range []struct{ name, from, want string }{
		{"web-x7x2k", "web-", "web-*"},
		{"web-0", "web-", "web-0"},
		{"web-12345", "web-", "web-12345"},
		{"x7x2k", "", "x7x2k"},
		{"x7x2k", "web-", "x7x2k"},
		{long[:58] + "x7x2k", long, long + "*"},
	} {
		n := NewNormalizer(nil)
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetName(tt.name)
		obj.SetGenerateName(tt.from)
		n.Learn(pods, obj)
		if got := n.Ref(pods, "", tt.name); got != "pods/"+tt.want {
			t.Errorf("the reference of %s with generateName %q is %s, want pods/%s", tt.name, tt.from, got, tt.want)
		}
	}
}

func state(objects ...string) State {
	s := State{}
	for _, o := range objects {
		ref, value, _ := strings.Cut(o, "=")
		s[ref] = append(s[ref], map[string]any{"value": value})
	}
	return s
}

// Each verdict has its symptoms, the most telling one first.
func TestJudge(t *testing.T) {
	ref := NewReference([]*Outcome{
		{End: state("pods/a=1", "pods/noise=1", "pods/ignored=1"), Quiet: true, Calls: map[string]int{"POST x": 1}},
		{End: state("pods/a=1", "pods/noise=2", "pods/ignored=1"), Quiet: true, Calls: map[string]int{"POST x": 1}},
	}, []string{"pods:value.x"})
	end := func(objects ...string) State { return state(append(objects, "pods/noise=3", "pods/ignored=1")...) }
	for _, tt := range []struct {
		name string
		out  Outcome
		want []Verdict
		says string
	}{
		{"Same", Outcome{End: end("pods/a=1"), Quiet: true}, nil, ""},
		{
			"Field",
			Outcome{End: end("pods/a=2"), Quiet: true},
			[]Verdict{Differs},
			`pods/a: value is "2"; without the fault it is "1"`,
		},
		{"Missing", Outcome{End: end(), Quiet: true}, []Verdict{Differs}, "pods/a is missing"},
		{
			"Left",
			Outcome{End: end("pods/a=1", "pods/b=1"), Quiet: true},
			[]Verdict{Left},
			"pods/b exists; without the fault it does not",
		},
		{"Twice", Outcome{End: end("pods/a=1", "pods/a=1"), Quiet: true}, []Verdict{Left}, "pods/a exists 2 times"},
		{
			"Call",
			Outcome{End: end("pods/a=1"), Quiet: true, Calls: map[string]int{"POST x": 2}},
			[]Verdict{Doubled},
			"2 times",
		},
		{
			"Stuck",
			Outcome{End: end(), Stuck: &Stuck{Step: 1, Name: "await", Reason: "no"}},
			[]Verdict{Missed, Restless},
			"step 2, await: no",
		},
		{
			"Busy",
			Outcome{End: end("pods/a=1"), Busy: []Repeat{{Request: "the get of x", Times: 90, Within: time.Minute}}},
			[]Verdict{Restless},
			"the get of x is repeated while nothing changes: 90 times in 1m0s",
		},
		{
			"All",
			Outcome{End: end(), Quiet: true, Exits: []string{"panic"}, Broken: []Broken{{Reason: "rule"}}},
			[]Verdict{Exited, Violated, Differs},
			"panic",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Verdict
			found := Judge(ref, &tt.out)
			for _, s := range found {
				got = append(got, s.Verdict)
			}
			if !slices.Equal(got, tt.want) {
				t.Fatalf("the verdicts are %q, want %q", got, tt.want)
			}
			if len(found) > 0 && !strings.Contains(found[0].Text, tt.says) {
				t.Errorf("the first symptom is %q, want %q", found[0].Text, tt.says)
			}
		})
	}
}

// Calls whose bodies differ without faults are counted by their endpoint.
func TestJudgeCountsVaryingCalls(t *testing.T) {
	run := func(calls ...string) *Outcome {
		out := &Outcome{Quiet: true, Calls: map[string]int{}}
		for _, call := range calls {
			out.Calls[call]++
		}
		return out
	}
	ref := NewReference([]*Outcome{run("POST x/a 1", "POST x/b 1"), run("POST x/a 2", "POST x/b 1")}, nil)
	for _, tt := range []struct {
		out  *Outcome
		want string
	}{
		{run("POST x/a 3", "POST x/b 1"), ""},
		{run("POST x/a 3", "POST x/a 3", "POST x/b 1"), "POST x/a had its effect 2 times; without the fault 1"},
		{run("POST x/a 3", "POST x/b 2"), "POST x/b 2 had its effect 1 times; without the fault 0"},
	} {
		got := ""
		for _, s := range Judge(ref, tt.out) {
			got += s.Text
		}
		if got != tt.want {
			t.Errorf("the calls %v lead to %q, want %q", tt.out.Calls, got, tt.want)
		}
	}
}

// script is a driver whose subject makes two writes. If flaky returns true, two faults together lead to a wrong end: a
// crash after the first write and a lost response to the second.
type script struct{ flaky func(seed uint64) bool }

func write(n int) Moment { return Moment{Verb: "update", Object: "pods/default/a", N: n} }

func (d script) Play(_ context.Context, p Plan, _ *Want) (*Outcome, error) {
	out := &Outcome{End: state("pods/default/a=1"), Quiet: true, Reached: make([]bool, len(p.Faults))}
	for n := range 2 {
		out.Trace = append(out.Trace, Event{Actor: Subject, Write: write(n + 1)})
	}
	var crash, lost bool
	for i, f := range p.Faults {
		out.Reached[i] = true
		crash = crash || f.Kind == CrashAfter && f.At == write(1)
		lost = lost || f.Kind == Lost && f.At == write(2)
	}
	if crash && lost && d.flaky(p.Seed) {
		out.End = state("pods/default/a=2")
	}
	return out, nil
}

// A bug that needs two faults is found among the pairs, confirmed, and reported with exactly these two faults.
func TestSearchFindsPairs(t *testing.T) {
	always := func(uint64) bool { return true }
	r, err := Search(t.Context(), script{always}, Options{Seed: 7, Schedules: 1000, Steps: 1, Workers: 2})
	if err != nil || len(r.Findings) != 1 {
		t.Fatalf("the report is %+v, error %v", r, err)
	}
	f := r.Findings[0]
	if want := []Fault{{Kind: CrashAfter, At: write(1)}, {Kind: Lost, At: write(2)}}; !slices.Equal(f.Plan.Faults, want) {
		t.Errorf("the faults are %v, want %v", f.Plan.Faults, want)
	}
	if f.Shown != replays || r.Pairs == 0 || r.Planned == 0 || r.Played != r.Planned+r.Pairs {
		t.Errorf("the report is %+v", r)
	}
	text := Text(r, Names{Replay: func(plan string) string { return "play '" + plan + "'" }})
	_, plan, _ := strings.Cut(text, "play '")
	plan, _, _ = strings.Cut(plan, "'")
	again, err := ParsePlan(plan)
	if err != nil || again.key() != f.Plan.key() || again.Seed != f.Plan.Seed {
		t.Errorf("the plan in the report is %v, error %v\n%s", again, err, text)
	}
	var page bytes.Buffer
	if err := HTML(&page, f); err != nil || !strings.Contains(page.String(), "other end") {
		t.Errorf("the page is %s, error %v", page.String(), err)
	}
}

// Faults of several classes may show one symptom and have different causes. The report names one of each class.
func TestTextNamesOtherClasses(t *testing.T) {
	d := driverFunc(func(p Plan) (*Outcome, error) {
		out, err := script{func(uint64) bool { return false }}.Play(t.Context(), p, nil)
		for _, f := range p.Faults {
			if class := f.Kind.class(); class == "crash" || class == "lost" {
				out.End = state("pods/default/a=2")
			}
		}
		return out, err
	})
	kinds := slices.Concat(Classes["crash"], Classes["lost"], Classes["error"])
	r, err := Search(t.Context(), d, Options{Steps: 1, Faults: kinds})
	if err != nil || len(r.Findings) != 1 {
		t.Fatalf("the report is %+v, error %v", r, err)
	}
	text := Text(r, Names{})
	for _, want := range []string{
		" (3 schedules of class crash, not replayed)\n",
		"\n  or:     the answer to the 1st update of pods/default/a is lost (2 schedules of class lost, not replayed)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "class error") {
		t.Errorf("the report names schedules without the symptom:\n%s", text)
	}
	var page bytes.Buffer
	if err := HTML(&page, r.Findings[0]); err != nil || !strings.Contains(page.String(), "(2 of class lost)") {
		t.Errorf("the page is %s, error %v", page.String(), err)
	}
}

// Without faults, a step that is not reached is shown with what happened last and with what the driver warns of.
func TestNotReachedWithoutFaults(t *testing.T) {
	d := driverFunc(func(p Plan) (*Outcome, error) {
		out, err := script{}.Play(t.Context(), p, nil)
		out.Trace[1].Status = 422
		out.Stuck = &Stuck{Name: "await", Reason: "no"}
		out.Warnings = []string{"not modelled: gravity"}
		return out, err
	})
	_, err := Search(t.Context(), d, Options{Steps: 1})
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, want := range []string{
		"step 1, await, was not reached: no\n", "update pods/default/a → 422\n", "\n  not modelled: gravity",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q:\n%v", want, err)
		}
	}
}

// A symptom that does not repeat is not a finding.
func TestSearchConfirms(t *testing.T) {
	once := func(seed uint64) bool { return seed == 7 }
	r, err := Search(t.Context(), script{once}, Options{Seed: 7, Schedules: 300, Steps: 1})
	if err != nil || len(r.Findings) != 0 || r.Unconfirmed == 0 {
		t.Errorf("the report is %+v, error %v", r, err)
	}
}

// Schedules that cannot be judged are counted, with their reasons.
func TestSearchCountsFailures(t *testing.T) {
	d := driverFunc(func(p Plan) (*Outcome, error) {
		if len(p.Faults) > 0 {
			return nil, fmt.Errorf("no memory for %d faults", len(p.Faults))
		}
		return script{}.Play(t.Context(), p, nil)
	})
	r, err := Search(t.Context(), d, Options{Steps: 1, Schedules: 12})
	if err != nil || r.FailedCount != 12 || len(r.Failed) != 10 ||
		!strings.Contains(Text(r, Names{}), "12 schedules could not be judged") {
		t.Errorf("the report is %+v, error %v", r, err)
	}
}

// The report names the fields that are not compared, the faults that did not come, and what the driver warns of.
func TestTextHidesNothing(t *testing.T) {
	d := driverFunc(func(p Plan) (*Outcome, error) {
		out, err := script{func(uint64) bool { return false }}.Play(t.Context(), p, nil)
		out.End = state("pods/default/a=1", fmt.Sprint("pods/default/noise=", p.Seed))
		if p.Seed == 2 {
			out.End["pods/default/rare"] = []map[string]any{{}}
		}
		out.Warnings = []string{"not modelled: gravity"}
		for i, f := range p.Faults {
			out.Reached[i] = f.Kind != Lost
		}
		return out, err
	})
	r, err := Search(t.Context(), d, Options{Steps: 1, Schedules: 20, Faults: Classes["lost"]})
	if err != nil || len(r.Findings) > 0 {
		t.Fatalf("the report is %+v, error %v", r, err)
	}
	for _, want := range []string{
		"\n  2 objects and fields are not compared, since the runs without faults differ there:\n" +
			"    pods/default/noise value\n    pods/default/rare exists 0, 0 and 1 times\n",
		"schedules ended before the moment of the fault came:\n    the answer to the 1st update of pods/default/a is lost\n",
		"\n  not modelled: gravity",
	} {
		if text := Text(r, Names{}); !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
}

type driverFunc func(p Plan) (*Outcome, error)

func (f driverFunc) Play(_ context.Context, p Plan, _ *Want) (*Outcome, error) { return f(p) }
