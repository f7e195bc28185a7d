package flowtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// Trace is what the steps of a fiber see, run after run: where they are, at which attempt, and what they note. After a
// crash they have to see the same, from where the position says: after a delay or the time before another try the step
// that follows, before a step with Save that step, and in an await, a suspension or a fork the step that has returned
// it, once more, if its time is not over; without a position, or after the end, all of it. And the fiber has to end
// with the same error. That holds for steps that decide by what a position keeps, or by what they find outside whenever
// they run. The steps of children are not compared. The zero value is ready for use; it is safe for concurrent use.
type Trace struct {
	// Times has the times compared, too: each step runs when it would have, or at the start after the crash if that is
	// later, and deadlines count from the same time. Waits that are looked at from time to time, or retried with
	// jitter, cannot promise that.
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

// Note adds to what the step that runs sees: what Value, Err or Checkpoint say, for instance.
func (tr *Trace) Note(args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if n := len(tr.runs); n > 0 {
		tr.runs[n-1].notes += " " + fmt.Sprint(args...)
	}
}

// begin forgets what was before.
func (tr *Trace) begin() {
	if tr == nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.runs = nil
}

// add notes that a step runs.
func (tr *Trace) add(i flow.Info) {
	if tr == nil || i.Parent != 0 {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.runs = append(tr.runs, stepRun{path: i.Path, attempt: i.Attempt, at: time.Now(), entered: i.Entered})
}

// mark is where a start goes on.
type mark struct {
	runs  int       // after so many of the run that was cut short
	at    string    // the path of the step that it goes on at
	since time.Time // when that was entered, if it was
	cut   bool      // the first of them is of a step that has run before, and does not if its time is over
	again bool      // it is a run of its own
}

// after is where a start from this position goes on.
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
		m.since = time.Time{} // the next one is not entered yet
	case "await", "suspend", "fork":
		m.runs, m.cut = m.runs-1, true
	}
	return m
}

// story is what is told of one start: what its steps saw, and what comes before it.
type story struct {
	runs    []stepRun
	ended   bool
	err     error
	began   time.Time // of the start
	end     time.Time
	cut     bool
	at      string    // the step that it goes on at,
	entered time.Time // entered then, if it was
	base    int       // runs of the whole that it does not repeat
	again   bool      // it is a run of its own: at other times
	next    mark
	another bool // there is a next
}

// add goes on with another start.
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

// compare fails the test unless the story is what is told in whole, from base on.
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

// skips says whether the story goes on after the step that was cut short, whose time is over.
func (s *story) skips(step stepRun) bool {
	switch {
	case !s.cut:
		return false
	case len(s.runs) > 0:
		return s.runs[0].path != step.path || s.runs[0].attempt != step.attempt
	}
	return s.ended || s.another && s.next.at != step.path
}

// sameRun says whether run i is the wanted one.
func (s *story) sameRun(i int, want stepRun, times bool) bool {
	got := s.runs[i]
	if got.path != want.path || got.attempt != want.attempt || got.notes != want.notes {
		return false
	}
	return !times || got.at.Equal(s.notBefore(want.at)) && s.sameEntry(i, want)
}

// sameEntry says whether the deadline of run i counts from the right time: that which was saved, that of an earlier run
// of the step, or that of the whole story, but for a step that is entered after the start.
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
	return got.entered.Before(s.began) // by an earlier start
}

// notBefore is t, or the start if that is later.
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
