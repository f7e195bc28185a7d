package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a driver of which each run takes a minute. Its subject makes two writes. It ends otherwise if two steps of
// the workload are played, and the answer to the second write is lost. At the run with number at it calls call.
type slow struct {
	sound bool // there is no bug
	at    int
	call  func()

	unfinished *Outcome // of a run that is cut off
	played     int
}

func (d *slow) Play(ctx context.Context, p Plan, _ *Want) (*Outcome, error) {
	if d.played++; d.played == d.at {
		d.call()
	}
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return d.unfinished, context.Cause(ctx)
	}
	out := &Outcome{End: state("pods/default/a=1"), Quiet: true, Reached: make([]bool, len(p.Faults))}
	for n := range 2 {
		out.Trace = append(out.Trace, Event{Actor: Subject, Write: write(n + 1)})
	}
	for i, f := range p.Faults {
		out.Reached[i] = true
		if f.Kind == Lost && f.At == write(2) && p.Steps == 0 && !d.sound {
			out.End = state("pods/default/a=2")
		}
	}
	return out, nil
}

// lossy are the options of a search that finds the bug in its second schedule, after 3 runs without faults.
func lossy(until time.Duration) Options {
	return Options{Seed: 1, Steps: 2, Faults: Classes["lost"], Until: until}
}

// The time of a search counts from its start. Runs in progress at its end may take the overtime. Nothing that was seen
// is dropped: an error says why there is no verdict, a suspicion or a finding says what was left to do.
func TestSearchTime(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		reason string
		sound  bool
		until  time.Duration
		stop   time.Duration // deadline; 0: none
		took   time.Duration
		err    string
		says   []string
	}{
		{
			"the runs without faults take too long", false, 2 * minute, 0, 2 * minute,
			"could not be judged: the runs without faults did not end in 2m0s: the time of the search has ended", nil,
		},
		{"a schedule in progress ends", true, 3*minute + 30*time.Second, 0, 4 * minute, "", []string{
			"simulate: 0 findings in 1 schedule ", "\n  1 single fault was not played: the time ",
		}},
		{"the search ends after all schedules", true, 10 * minute, 0, 6 * minute, "", []string{
			"simulate: 0 findings in 3 schedules, 1 of them with two faults ",
		}},
		{"the overtime ends after two replays", false, 4*minute + 30*time.Second, 0, 7*minute + 30*time.Second, "", []string{
			"simulate: suspicion 1 (other end, not confirmed before the end: shown by 2 of 2 replays)\n  pods/default/a: value",
			"replay: again {", "\n  1 suspicion could not be confirmed before the end: no finding yet",
		}},
		{"the time ends in the confirmation", false, 10 * minute, 0, 11 * minute, "", []string{
			"simulate: finding 1 (other end, shown by 3 of 3 replays)", "note:   the search ended before it could look",
		}},
		{"the finding is shrunk in time", false, 20 * minute, 0, 15 * minute, "", []string{
			"is lost\n  course:",
		}},
		{"the deadline has no overtime", false, 0, 6*minute + 30*time.Second, 6*minute + 30*time.Second, "", []string{
			"simulate: suspicion 1 (other end, not confirmed before the end: shown by 1 of 1 replays)",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := lossy(tt.until)
			begin := time.Now()
			if tt.stop > 0 {
				o.Deadline = begin.Add(tt.stop)
			}
			r, err := Search(t.Context(), &slow{sound: tt.sound}, o)
			if took := time.Since(begin); took != tt.took {
				t.Errorf("%s: it took %s, want %s", tt.reason, took, tt.took)
			}
			if got := fmt.Sprint(err); tt.err != "" && got != tt.err || tt.err == "" && err != nil {
				t.Errorf("%s: the error is %v, want %q", tt.reason, err, tt.err)
			}
			text := Text(r, Names{Replay: func(plan string) string { return "again " + plan }})
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the report has no %q:\n%s", tt.reason, want, text)
				}
			}
		})
	}
}

// A search that is interrupted returns at once, with all that it has seen.
func TestSearchInterrupted(t *testing.T) {
	for _, tt := range []struct {
		reason           string
		at               int
		played           int
		finding, suspect bool
	}{
		{"in the second run without faults", 2, 0, false, false},
		{"in the first schedule", 4, 0, false, false},
		{"in the second replay of a suspicion", 7, 2, false, true},
		{"in the last run without faults that confirms it", 11, 2, false, true},
		{"while it is shrunk", 13, 2, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			begin := time.Now()
			r, err := Search(ctx, &slow{at: tt.at, call: cancel}, lossy(0))
			if took := time.Since(begin); took != time.Duration(tt.at-1)*time.Minute {
				t.Errorf("%s: it took %s", tt.reason, took)
			}
			if err != nil || !r.Interrupted || r.Unjudged() == nil {
				t.Fatalf("%s: the report is %+v, error %v", tt.reason, r, err)
			}
			if (len(r.Findings) == 1) != tt.finding || (len(r.Suspicions) == 1) != tt.suspect || r.Played != tt.played {
				t.Errorf("%s: the report is\n%s", tt.reason, Text(r, Names{}))
			}
			if tt.finding && !r.Findings[0].Unshrunk {
				t.Errorf("%s: the finding seems to be shrunk", tt.reason)
			}
		})
	}
}

// The first run without faults that does not work ends the others, and is what the error is about.
func TestFirstFailure(t *testing.T) {
	played := 0
	d := driverFunc(func(Plan) (*Outcome, error) {
		played++
		return &Outcome{Stuck: &Stuck{Name: "await", Reason: fmt.Sprint("no ", played)}}, nil
	})
	_, err := Search(t.Context(), d, Options{Steps: 1})
	const want = "could not be judged: without faults, step 1, await, was not reached: no 1\n"
	if !strings.HasPrefix(fmt.Sprint(err), want) || played != 1 {
		t.Errorf("after %d runs the error is %v", played, err)
	}
}

// If the time ends in a run without faults, the error says what that has not reached.
func TestUnfinished(t *testing.T) {
	for _, tt := range []struct {
		out  *Outcome
		want string
	}{
		{nil, ""},
		{&Outcome{Stuck: &Stuck{Step: 1, Name: "await", Reason: "no"}}, ": step 2, await, was not reached: no"},
		{
			&Outcome{Trace: []Event{{Changed: Moment{Verb: Change, Object: "pods/default/a"}}}},
			": the workload has not settled; these objects changed last: pods/default/a",
		},
		{&Outcome{Quiet: true}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := Search(t.Context(), &slow{unfinished: tt.out}, lossy(time.Second))
			const begin = "could not be judged: the runs without faults did not end in 1s: the time of the search has ended"
			if fmt.Sprint(err) != begin+tt.want {
				t.Errorf("the error is %v\nwant %s%s", err, begin, tt.want)
			}
		})
	}
}
