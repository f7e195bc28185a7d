package flowtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// failures is a test that records its failures.
type failures struct {
	testing.TB
	text []string
}

func (t *failures) Errorf(format string, args ...any) {
	t.text = append(t.text, fmt.Sprintf(format, args...))
}
func (t *failures) Helper() {}

func TestATraceShowsDifferences(t *testing.T) {
	t.Parallel()
	zero := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	run := func(path string, attempt, s, entered int, notes string) stepRun {
		return stepRun{path, attempt, at(s), at(entered), notes}
	}
	whole := story{
		ended: true, end: at(9),
		runs: []stepRun{run("f/a", 0, 0, 0, " x"), run("f/b", 0, 2, 2, ""), run("f/b", 1, 5, 2, "")},
	}
	for _, c := range []struct {
		reason string
		after  story
		want   string // "" is the same
	}{
		{"the same", story{ended: true, runs: whole.runs}, ""},
		{"cut short", story{runs: whole.runs[:1]}, ""},
		{"from the position", story{ended: true, base: 1, runs: whole.runs[1:], began: at(1)}, ""},
		{"later, after downtime", story{ended: true, base: 2, runs: []stepRun{run("f/b", 1, 7, 2, "")}, began: at(7)}, ""},
		{"entered again", story{
			ended: true, base: 1, runs: []stepRun{run("f/b", 0, 3, 3, ""), run("f/b", 1, 5, 3, "")},
			began: at(3),
		}, ""},
		{"a separate run, at other times", story{
			ended: true, again: true,
			runs: []stepRun{run("f/a", 0, 10, 10, " x"), run("f/b", 0, 12, 12, ""), run("f/b", 1, 15, 12, "")},
		}, ""},
		{"an expired wait", story{ended: true, cut: true, base: 1, runs: whole.runs[2:], began: at(5)}, ""},
		{
			"a wait that has not expired",
			story{ended: true, cut: true, base: 1, runs: whole.runs[2:], began: at(4)},
			"would have seen",
		},
		{"a step too many", story{ended: true, base: 1, runs: whole.runs}, "would have seen"},
		{"a step too few", story{ended: true, runs: whole.runs[:2]}, "would have seen"},
		{"another step", story{runs: []stepRun{run("f/c", 0, 0, 0, " x")}}, "would have seen"},
		{"another attempt", story{runs: []stepRun{run("f/a", 1, 0, 0, " x")}}, "would have seen"},
		{"another note", story{runs: []stepRun{run("f/a", 0, 0, 0, " y")}}, "would have seen"},
		{"too late", story{runs: []stepRun{run("f/a", 0, 1, 0, " x")}}, "would have seen"},
		{"too early", story{base: 1, runs: []stepRun{run("f/b", 0, 1, 1, "")}}, "would have seen"},
		{
			"its deadline counts from the restart",
			story{base: 2, runs: []stepRun{run("f/b", 1, 5, 3, "")}, began: at(3)},
			"would have seen",
		},
		{
			"its deadline counts from an earlier restart",
			story{base: 2, runs: []stepRun{run("f/b", 1, 5, 3, "")}, began: at(4)},
			"",
		},
		{"its deadline counts from another time than was saved", story{
			base: 1, at: "f/b", entered: at(2), runs: []stepRun{run("f/b", 0, 3, 3, "")}, began: at(3),
		}, "would have seen"},
		{
			"another error",
			story{ended: true, runs: whole.runs, err: errors.New("boom")},
			"it ended with boom, without a crash with <nil>",
		},
	} {
		to := &failures{TB: t}
		c.after.compare(to, whole, true)
		if got := strings.Join(to.text, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
	}
}

// A position shows where the next start continues, and how a trace continues after it.
func TestWhereATraceContinues(t *testing.T) {
	t.Parallel()
	tr := &Trace{}
	for range 3 {
		tr.add(flow.Info{Path: "f/a"})
	}
	tr.add(flow.Info{Path: "f/a[0]/kid", Parent: 1})
	tr.Note("n", 1)
	if got := tr.runs[2].notes; len(tr.runs) != 3 || got != " n1" && got != " n 1" {
		t.Errorf("noted %v", tr.runs)
	}
	for _, c := range []struct {
		p    flow.Position
		want mark
	}{
		{flow.Position{Flow: "f", Step: "b", Reason: "delay", Left: &flow.Place{Step: "a"}}, mark{runs: 3, at: "f/a"}},
		{
			flow.Position{Flow: "f", Step: "a", Reason: "retry", Started: time.Unix(1, 0)},
			mark{runs: 3, at: "f/a", since: time.Unix(1, 0)},
		},
		{flow.Position{Flow: "f", Step: "b", Reason: "save"}, mark{runs: 3, at: "f/b"}},
		{flow.Position{Flow: "f", Step: "a", Reason: "await"}, mark{runs: 2, at: "f/a", cut: true}},
		{flow.Position{Flow: "f", Step: "a", Reason: "failed", Ended: true}, mark{again: true}},
	} {
		if got := tr.after(c.p); got != c.want {
			t.Errorf("after %+v: %+v, want %+v", c.p, got, c.want)
		}
	}
	s := story{base: 4}
	s.add(tr, &crasher{at: "x", saved: &mark{runs: 2, cut: true}}, nil)
	s.add(tr, &crasher{at: "x"}, nil)
	if s.base != 6 || !s.cut || s.again {
		t.Errorf("it continues at %+v", s)
	}
	s.add(tr, &crasher{at: "x", saved: &mark{again: true}}, nil)
	if s.base != 6 || !s.cut {
		t.Errorf("without a save it continues at %+v", s)
	}
	s.add(tr, &crasher{}, nil)
	if s.base != 0 || !s.again || !s.ended {
		t.Errorf("after the end it continues at %+v", s)
	}
}
