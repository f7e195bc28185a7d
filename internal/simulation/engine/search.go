package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	references  = 3 // runs without faults that the reference is made of
	replays     = 3 // of a suspicious plan
	confirmed   = 2 // of these replays must show the symptom
	maxFindings = 5
	otherTimes  = 100 // is added to the seed of a plan that is replayed
	maxLines    = 10  // of the report about one subject
	// overtime bounds the time after Until in which a schedule may end and what it shows may be confirmed. It is enough
	// for two replays in which a program gets stuck, and three runs without faults.
	overtime = 3 * time.Minute
)

// errTime is the cause of a context that ends with the time of its search.
var errTime = errors.New("the time of the search has ended")

// Options configure a search. The zero value plays all faults, without a bound.
type Options struct {
	Seed      uint64
	Schedules int // largest number of schedules with faults; 0: no bound
	// Until bounds a search, including the runs without faults; 0: no bound. No new schedule begins after it. A schedule
	// in progress, and the confirmation of what it shows, may take three minutes more. Until does not bound a replay.
	Until    time.Duration
	Deadline time.Time   // all ends before it; zero: none
	Faults   []FaultKind // default: all, in the order of Classes
	Kinds    []string    // resources whose moments are used; default: all
	Ignore   []string    // paths that are not compared
	// Late is how long watches are late. It has to be longer than the usual back-off of a controller, and than its wait
	// for its own cache, so that the controller acts on its old cache. Default: 20 s.
	Late  time.Duration
	Steps int // number of steps of the workload
	// EarlyEnd is the number of steps before the last deletion. Half of the schedules end there, because a deletion also
	// removes objects that should not exist. 0: there is no deletion.
	EarlyEnd int
	Workers  int // schedules at the same time; default 1
	// Progress is called now and then with a line of text.
	Progress func(string)
}

// A Finding is a confirmed plan with a symptom.
type Finding struct {
	Plan     Plan      `json:"plan"`
	Symptoms []Symptom `json:"symptoms"`
	Shown    int       `json:"shown"` // replays that show the first symptom
	Of       int       `json:"of"`    // replays
	Steps    int       `json:"steps"` // steps of the workload that were played
	Trace    []Event   `json:"trace"`
	Without  []Event   `json:"without"`            // the trace without faults
	Unshrunk bool      `json:"unshrunk,omitempty"` // the search ended before the plan was shrunk
	// Others are schedules with the same first symptom, which may have another cause. They were not replayed.
	Others []Others `json:"others,omitempty"`
}

// A Doubt is a symptom that did not repeat.
type Doubt struct {
	Symptom Symptom `json:"symptom"`
	Count   int     `json:"count"` // schedules that showed it
	Plan    Plan    `json:"plan"`  // of the first of them
}

// Others are the schedules of one class of faults that have the first symptom of a finding.
type Others struct {
	Class string `json:"class"`
	Count int    `json:"count"`
	Plan  Plan   `json:"plan"` // the first one
}

// A Report is the result of a search.
type Report struct {
	Findings []Finding `json:"findings"`
	// Suspicions are those that the search could not confirm before its end.
	Suspicions []Finding `json:"suspicions,omitempty"`
	// Writes and Changes are the numbers of distinct moments of the reference, Planned that of plans with one fault.
	Writes  int `json:"writes"`
	Changes int `json:"changes"`
	Planned int `json:"planned"`
	// Played counts schedules with faults, Pairs those with two. Unreached counts schedules of which no fault came; Never
	// holds the first of their plans. Unconfirmed counts those whose symptom did not repeat; Doubts holds the first of
	// these symptoms. Otherwise counts those with another course and the same end.
	Played      int      `json:"played"`
	Pairs       int      `json:"pairs"`
	Unreached   int      `json:"unreached"`
	Never       []string `json:"never,omitempty"`
	Unconfirmed int      `json:"unconfirmed"`
	Doubts      []Doubt  `json:"doubts,omitempty"`
	Otherwise   int      `json:"otherwise"`
	// Failed are schedules that could not be judged, with the reason. The first of them are kept.
	Failed      []string      `json:"failed,omitempty"`
	FailedCount int           `json:"failedCount"`
	Disagree    []string      `json:"disagree,omitempty"`
	Warnings    []string      `json:"warnings,omitempty"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Seed        uint64        `json:"seed"`
	Elapsed     time.Duration `json:"elapsed"`
}

// Unjudged returns why a report without findings does not show that there is no bug, or nil.
func (r *Report) Unjudged() error {
	switch {
	case r.Interrupted:
		return errors.New("interrupted")
	case len(r.Suspicions) > 0:
		return fmt.Errorf("%s could not be confirmed in time; replay it, or give the search more time",
			number(len(r.Suspicions), "suspicion"))
	case r.FailedCount == r.Played:
		return errors.New("no schedule could be judged")
	}
	return nil
}

// NotJudgedError means that there is no verdict: the subject does not even work without faults.
type NotJudgedError struct{ Reason string }

func (e *NotJudgedError) Error() string { return "could not be judged: " + e.Reason }

// Play replays a plan, or searches if there is none.
func Play(ctx context.Context, d Driver, o Options, plan *Plan) (*Report, error) {
	if plan != nil {
		return Replay(ctx, d, o, *plan)
	}
	return Search(ctx, d, o)
}

// Search plays the workload without faults, then every single fault at every moment, then random pairs. It stops after
// the single faults if it has found anything. If ctx ends, it returns the report so far.
func Search(ctx context.Context, d Driver, o Options) (*Report, error) {
	s := newSearch(d, o, o.Seed)
	if s.o.Faults == nil {
		for _, class := range []string{"crash", "late", "lost", "error", "expired", "pause", "depose"} {
			s.o.Faults = append(s.o.Faults, Classes[class]...)
		}
	}
	if s.o.Late == 0 {
		s.o.Late = late
	}
	bounded, cancel := s.bound(ctx)
	defer cancel()
	err := s.run(bounded)
	for i, f := range s.report.Findings {
		s.report.Findings[i].Others = s.others[f.Symptoms[0].key()]
	}
	s.report.Elapsed = time.Since(s.start)
	s.report.Interrupted = ctx.Err() != nil
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return s.report, err
}

// search is one search in progress.
type search struct {
	driver Driver
	o      Options
	start  time.Time
	end    time.Time // no new schedule begins after it; zero: no bound

	mu     sync.Mutex
	report *Report
	begun  int                 // schedules with faults
	found  map[string]bool     // keys of symptoms that have been reported or are being confirmed
	others map[string][]Others // schedules with a symptom of found, by its key
	shown  time.Time           // of the last progress
}

func newSearch(d Driver, o Options, seed uint64) *search {
	o.Seed, o.Workers = seed, max(o.Workers, 1)
	return &search{
		driver: d, o: o, start: time.Now(), report: &Report{Seed: seed}, found: map[string]bool{},
		others: map[string][]Others{},
	}
}

// bound sets the end of the search. It returns the context of all its runs, which ends after the overtime, or at the
// deadline.
func (s *search) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	last := s.o.Deadline
	if s.o.Until > 0 {
		s.end = s.start.Add(s.o.Until)
		last = earlier(last, s.end.Add(overtime))
	}
	s.end = earlier(s.end, s.o.Deadline)
	if last.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, last, errTime)
}

// earlier returns the earlier one of two times. A zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ended reports whether the time for new schedules has passed.
func (s *search) ended() bool { return !s.end.IsZero() && !time.Now().Before(s.end) }

func (s *search) run(ctx context.Context) error {
	ref, err := s.comparison(ctx)
	if err != nil {
		return err
	}
	s.report.Writes, s.report.Changes, s.report.Disagree = len(ref.Writes), len(ref.Changes), ref.Disagree
	s.report.Warnings = ref.Warnings
	if s.faultless(ref, 0) {
		return nil
	}
	refs := map[int]*Reference{0: ref}
	single := Single(ref, s.o.Faults, s.o.Late, s.o.Kinds)
	switch early, err := s.earlyReference(ctx, ref); {
	case err != nil:
		return err
	case early != nil && s.faultless(early, s.o.EarlyEnd):
		return nil
	case early != nil:
		refs[s.o.EarlyEnd] = early
		single = mixed(early, Single(early, s.o.Faults, s.o.Late, s.o.Kinds), single, s.o.EarlyEnd)
	}
	s.report.Planned = len(single)
	if len(single) == 0 {
		return &NotJudgedError{"the subject wrote nothing and nothing that it watches changed, so there is no moment for a " +
			"fault"}
	}
	s.play(ctx, refs, single)
	if len(s.report.Findings) > 0 {
		return nil
	}
	rnd := rand.New(rand.NewPCG(s.o.Seed, 1))
	known := map[string]bool{}
	for dry := 0; !s.over(ctx) && s.o.Schedules+int(s.o.Until) > 0 && len(s.report.Findings) == 0 && dry < 100; {
		var plans []Plan
		for len(plans) < 10*s.o.Workers && dry < 100 {
			p := pair(rnd, single, refs)
			if len(p.Faults) < 2 || known[p.key()] {
				dry++
				continue
			}
			known[p.key()], dry = true, 0
			plans = append(plans, p)
		}
		s.play(ctx, refs, plans)
	}
	return nil
}

// faultless reports as a finding what is wrong without any fault. It returns false if nothing is.
func (s *search) faultless(ref *Reference, steps int) bool {
	w := ref.flaws
	if len(w.Symptoms) == 0 {
		return false
	}
	f := Finding{
		Symptoms: w.Symptoms, Shown: w.Shown, Of: references, Steps: steps, Trace: w.Trace, Without: w.Trace,
		Plan: Plan{Seed: s.o.Seed + uint64(w.Run), Steps: steps, Names: ref.Names, Varies: ref.Varies},
	}
	if steps == 0 {
		f.Steps = s.o.Steps
	}
	s.report.Findings = []Finding{f}
	return true
}

// parallel calls fn for 0 to n-1, on all workers.
func (s *search) parallel(n int, fn func(int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(s.o.Workers, n) {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// over reports whether no further schedule may begin.
func (s *search) over(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overLocked(ctx)
}

func (s *search) overLocked(ctx context.Context) bool {
	return ctx.Err() != nil || s.o.Schedules > 0 && s.begun >= s.o.Schedules ||
		s.ended() || len(s.report.Findings) >= maxFindings
}

// queue hands out plans in order. The lock of the search guards it.
type queue struct{ plans []Plan }

// begin removes the next plan of a queue and counts it. It returns false if no further schedule may begin.
func (s *search) begin(ctx context.Context, q *queue) (p Plan, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.plans) == 0 || s.overLocked(ctx) {
		return p, false
	}
	p, q.plans = q.plans[0], q.plans[1:]
	s.begun++
	return p, true
}

// play plays plans and follows up what is suspicious. If not all can be played, it plays the first ones. References are
// by the number of steps that are played.
func (s *search) play(ctx context.Context, refs map[int]*Reference, plans []Plan) {
	q := &queue{plans}
	s.parallel(len(plans), func(int) {
		p, ok := s.begin(ctx, q)
		if !ok {
			return
		}
		ref := refs[p.Steps]
		p.Seed, p.Names, p.Varies = s.o.Seed, ref.Names, ref.Varies
		out, err := s.driver.Play(ctx, p, ref.Want)
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errTime):
			err = errTime
		case err != nil && ctx.Err() != nil: // interrupted
			return
		}
		var found []Symptom
		if err == nil {
			found = Judge(ref, out)
		}
		s.count(ref, p, out, found, err)
		// The symptoms after the first one are its consequences.
		if len(found) > 0 && s.claim(found[0], p) {
			s.follow(ctx, ref, p, out, found[0])
		}
	})
}

// count adds a schedule to the report.
func (s *search) count(ref *Reference, p Plan, out *Outcome, found []Symptom, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Played++
	if len(p.Faults) > 1 {
		r.Pairs++
	}
	switch {
	case err != nil:
		r.FailedCount++
		if len(r.Failed) < maxLines {
			r.Failed = append(r.Failed, fmt.Sprintf("%s: %v", p, err))
		}
	case !slices.Contains(out.Reached, true):
		if r.Unreached++; len(r.Never) < maxLines {
			r.Never = append(r.Never, p.String())
		}
	case len(found) == 0 && AnotherCourse(ref, out):
		r.Otherwise++
	}
	if time.Since(s.shown) > 10*time.Second {
		s.shown = time.Now()
		s.progress("%d of %s and %s played, %s", r.Played-r.Pairs, number(r.Planned, "single fault"),
			number(r.Pairs, "pair"), number(len(r.Findings), "finding"))
	}
}

func (s *search) announce(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress(format, args...)
}

// progress reports a line. The caller holds the lock.
func (s *search) progress(format string, args ...any) {
	if s.o.Progress != nil {
		s.o.Progress(fmt.Sprintf(format, args...))
	}
}

// claim reports whether the symptom of a plan is new, and keeps others from following it.
func (s *search) claim(symptom Symptom, p Plan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found[symptom.key()] {
		s.others[symptom.key()] = count(s.others[symptom.key()], p)
		return false
	}
	s.found[symptom.key()] = true
	return true
}

// count counts a plan with its class of faults.
func count(others []Others, p Plan) []Others {
	i := slices.IndexFunc(others, func(o Others) bool { return o.Class == p.class() })
	if i < 0 {
		return append(others, Others{Class: p.class(), Count: 1, Plan: p})
	}
	others[i].Count++
	return others
}

// Replay plays one plan as a search would, and returns the report with the finding, if there is one.
func Replay(ctx context.Context, d Driver, o Options, p Plan) (*Report, error) {
	s := newSearch(d, o, p.Seed)
	ref, err := s.reference(ctx, p.Steps, &p)
	if err != nil {
		return s.report, err
	}
	out, err := d.Play(ctx, p, ref.Want)
	if err != nil {
		return s.report, &NotJudgedError{err.Error()}
	}
	s.report.Planned = 1
	symptoms := Judge(ref, out)
	s.count(ref, p, out, symptoms, nil)
	if len(p.Faults) == 0 {
		symptoms = append(symptoms, ref.flaws.Symptoms...)
	}
	if len(symptoms) > 0 {
		steps := p.Steps
		if steps == 0 {
			steps = o.Steps
		}
		s.report.Findings = []Finding{{
			Plan: p, Symptoms: symptoms, Shown: 1, Of: 1, Steps: steps, Trace: out.Trace, Without: ref.Trace,
		}}
	}
	s.report.Elapsed = time.Since(s.start)
	return s.report, nil
}
