package flowtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// Trace records what the steps of a fiber see: for each run the path, the attempt and the notes of the step. After a
// crash, the steps must see the same as without the crash, from the saved position on:
//
//   - After a delay, or a wait for a retry, this is the step that follows.
//   - Before a step with Save, this is that step.
//   - In an await, a suspension or a fork, this is the step that returned it, unless its deadline has passed.
//   - Without a position, or after the end, these are all steps.
//
// The fiber must also end with the same error. This holds for steps whose decisions depend only on the position, or on
// external state that is the same at any time. The steps of children are not compared. The zero value is ready for
// use. A Trace is safe for concurrent use.
type Trace struct {
	// Times compares the times, too. Each step must run at the same time as without the crash, or at the start after
	// the crash if that is later. Deadlines must count from the same time. Waits with periodic checks, and retries with
	// jitter, do not satisfy this.
	Times bool

	mu   sync.Mutex
	runs []stepRun
}

type stepRun struct {
	path        string
	attempt     int
	at, entered time.Time
	notes       string
}

func (s stepRun) String() string {
	return fmt.Sprintf("%s attempt %d at %s, entered at %s:%s", s.path, s.attempt, s.at.UTC().Format(clock),
		s.entered.UTC().Format(clock), s.notes)
}

const clock = "15:04:05.999999999"

// Note adds args to what the running step sees, such as the results of Value, Err or Checkpoint.
func (tr *Trace) Note(args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if n := len(tr.runs); n > 0 {
		tr.runs[n-1].notes += " " + fmt.Sprint(args...)
	}
}

// begin clears the trace.
func (tr *Trace) begin() {
	if tr == nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.runs = nil
}

// add records a run of a step.
func (tr *Trace) add(i flow.Info) {
	if tr == nil || i.Parent != 0 {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.runs = append(tr.runs, stepRun{path: i.Path, attempt: i.Attempt, at: time.Now(), entered: i.Entered})
}

// mark is where a start continues.
type mark struct {
	runs  int       // number of runs of the interrupted start that are not repeated
	at    string    // path of the step at which the start continues
	since time.Time // when that step was entered; zero if it was not
	cut   bool      // the first run repeats a step, which is skipped if its deadline has passed
	again bool      // the start begins a new run
}

// after returns where a start from position p continues.
func (tr *Trace) after(p flow.Position) mark {
	if tr == nil || p.Ended {
		return mark{again: true}
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	m := mark{runs: len(tr.runs), at: p.Flow + "/" + p.Step, since: p.Started}
	if p.Left != nil {
		m.at, m.since = p.Flow+"/"+p.Left.Step, p.Left.Started
	}
	switch p.Reason {
	case "delay":
		m.since = time.Time{} // the next step is not entered yet
	case "await", "suspend", "fork":
		m.runs, m.cut = m.runs-1, true
	}
	return m
}

// story has the runs of one start, and how they relate to the runs without a crash.
type story struct {
	runs    []stepRun
	ended   bool
	err     error
	began   time.Time // when it started
	end     time.Time
	cut     bool
	at      string    // path of the step at which it continues
	entered time.Time // when that step was entered; zero if it was not
	base    int       // number of runs of the whole story that it does not repeat
	again   bool      // it is a new run, whose times differ
	next    mark
	another bool // next is valid
}

// add replaces s with the story of the next start.
func (s *story) add(tr *Trace, c *crasher, err error) {
	if s.another {
		s.cut, s.at, s.entered = s.next.cut, s.next.at, s.next.since
		if s.again = s.again || s.next.again; s.next.again {
			s.base = 0
		} else {
			s.base += s.next.runs
		}
	}
	s.ended, s.err, s.another = c.at == "", err, c.saved != nil
	if s.another {
		s.next = *c.saved
	}
	s.began, s.end = c.began, time.Now()
	if tr != nil {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		s.runs = tr.runs
	}
}

// compare fails the test unless the story equals whole from s.base on.
func (s *story) compare(t testing.TB, whole story, times bool) {
	t.Helper()
	want := whole.runs[min(s.base, len(whole.runs)):]
	if len(want) > 0 && s.skips(want[0]) {
		over := whole.end
		if len(want) > 1 {
			over = want[1].at
		}
		if !over.After(s.began) {
			want = want[1:]
			s.base++
		}
	}
	same := len(s.runs) <= len(want) && (!s.ended || len(s.runs) == len(want))
	for i := 0; same && i < len(s.runs); i++ {
		same = s.sameRun(i, want[i], times && !s.again)
	}
	if !same {
		t.Errorf("the steps after the start at %s saw%s\nwithout a crash they would have seen%s",
			s.began.UTC().Format(clock), list(s.runs), list(want))
	}
	if s.ended && fmt.Sprint(s.err) != fmt.Sprint(whole.err) {
		t.Errorf("it ended with %v, without a crash with %v", s.err, whole.err)
	}
}

// skips reports whether the story continues after the interrupted step, whose deadline has passed.
func (s *story) skips(step stepRun) bool {
	switch {
	case !s.cut:
		return false
	case len(s.runs) > 0:
		return s.runs[0].path != step.path || s.runs[0].attempt != step.attempt
	}
	return s.ended || s.another && s.next.at != step.path
}

// sameRun reports whether run i equals want.
func (s *story) sameRun(i int, want stepRun, times bool) bool {
	got := s.runs[i]
	if got.path != want.path || got.attempt != want.attempt || got.notes != want.notes {
		return false
	}
	return !times || got.at.Equal(s.notBefore(want.at)) && s.sameEntry(i, want)
}

// sameEntry reports whether the deadline of run i counts from the right time. That is the saved time, the time of an
// earlier run of the step, or the time in the whole story. A step that is entered after the start may count from the
// start.
func (s *story) sameEntry(i int, want stepRun) bool {
	got := s.runs[i]
	if i == 0 && !s.entered.IsZero() && got.path == s.at {
		return got.entered.Equal(s.entered)
	}
	if got.entered.Equal(want.entered) {
		return true
	}
	if got.attempt == 0 {
		return got.entered.Equal(s.notBefore(want.entered))
	}
	for j := i - 1; j >= 0; j-- {
		if s.runs[j].path == got.path {
			return got.entered.Equal(s.runs[j].entered)
		}
	}
	return got.entered.Before(s.began) // entered by an earlier start
}

// notBefore returns the later of t and the start.
func (s *story) notBefore(t time.Time) time.Time {
	if t.Before(s.began) {
		return s.began
	}
	return t
}

func list(runs []stepRun) string {
	var b strings.Builder
	for _, r := range runs {
		b.WriteString("\n\t")
		b.WriteString(r.String())
	}
	if len(runs) == 0 {
		return " nothing"
	}
	return b.String()
}
