package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// comparison returns the reference of the search.
func (s *search) comparison(ctx context.Context) (*Reference, error) {
	if !s.end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, s.end, errTime)
		defer cancel()
	}
	s.announce("the workload is being played without faults")
	ref, err := s.reference(ctx, 0, nil)
	if errors.Is(err, errTime) {
		return nil, &NotJudgedError{fmt.Sprintf("the runs without faults did not end in %s: %v",
			s.end.Sub(s.start).Round(time.Second), err)}
	}
	return ref, err
}

// reference plays the first steps of the workload without faults; 0 means all. If known is nil, it finds the names that
// the subject makes up, and then the fields that vary. After each it plays the workload once more, with what it found.
func (s *search) reference(ctx context.Context, steps int, known *Plan) (*Reference, error) {
	p := Plan{Seed: s.o.Seed, Steps: steps}
	if known != nil {
		p.Names, p.Varies = known.Names, known.Varies
	}
	runs, err := s.without(ctx, p)
	if err != nil {
		return nil, err
	}
	if known == nil {
		if p.Names = randomNames(runs); len(p.Names) > 0 {
			if runs, err = s.without(ctx, p); err != nil {
				return nil, err
			}
		}
		if p.Varies = varyingFields(runs); len(p.Varies) > 0 {
			if runs, err = s.without(ctx, p); err != nil {
				return nil, err
			}
		}
	}
	ref := NewReference(runs, s.o.Ignore)
	ref.Names, ref.Varies = p.Names, p.Varies
	return ref, nil
}

// without plays a plan without faults several times, each time with another seed. It ends at the first run that does
// not work, since the others would not either.
func (s *search) without(ctx context.Context, p Plan) ([]*Outcome, error) {
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed sync.Once
	var failure error
	runs := make([]*Outcome, references)
	s.parallel(references, func(i int) {
		if all.Err() != nil {
			return
		}
		p := p
		p.Seed += uint64(i)
		out, err := s.driver.Play(all, p, nil)
		switch {
		case err == nil:
			err = works(out)
		case ctx.Err() == nil:
			err = &NotJudgedError{"without faults: " + err.Error()}
		default:
			err = fmt.Errorf("%w%s", context.Cause(ctx), unfinished(out))
		}
		if runs[i] = out; err != nil {
			failed.Do(func() { failure = err })
			cancel()
		}
	})
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	return runs, failure
}

// works returns why a run without faults cannot be a reference, or nil.
func works(run *Outcome) error {
	unserved := ""
	if len(run.Unserved) > 0 {
		unserved = "the API server never served " + strings.Join(run.Unserved, ", ") +
			", which a condition or an invariant names\n"
	}
	switch {
	case len(run.Exits) > 0:
		return &NotJudgedError{"without faults: " + run.Exits[0]}
	case run.Stuck != nil:
		return &NotJudgedError{fmt.Sprintf("without faults, step %d, %s, was not reached: %s\n%s%s",
			run.Stuck.Step+1, run.Stuck.Name, run.Stuck.Reason, unserved, lastEvents(run))}
	case unserved != "":
		return &NotJudgedError{unserved + lastEvents(run)}
	case !run.Quiet && len(run.Busy) == 0:
		return &NotJudgedError{fmt.Sprintf("the workload never settles without faults; these objects keep changing: %s\n%s",
			lastChanges(run.Trace), lastEvents(run))}
	}
	return nil
}

// unfinished returns what a run without faults has not reached when its context ended. out may be nil.
func unfinished(out *Outcome) string {
	switch {
	case out == nil:
		return ""
	case out.Stuck != nil:
		return fmt.Sprintf(": step %d, %s, was not reached: %s", out.Stuck.Step+1, out.Stuck.Name, out.Stuck.Reason)
	case !out.Quiet:
		return ": the workload has not settled; these objects changed last: " + lastChanges(out.Trace)
	}
	return ""
}

// A deletion also removes objects that should not exist, so the state after it does not show them. The steps before the
// last deletion are therefore a second, shorter workload, with a reference and schedules of its own.

// earlyAtLeast is the least time for the runs without faults of the shorter workload. They may take twice as long as
// those of the whole one.
const earlyAtLeast = 30 * time.Second

// errEarlyTime is the cause of a context that ends with this time.
var errEarlyTime = errors.New("the runs without faults take too long before it")

// earlyReference returns the reference of the steps before the last deletion. It is nil if there is no deletion, if the
// workload does not settle before it, or if the runs without faults have already taken a quarter of the time. In the
// last two cases the report has a warning.
func (s *search) earlyReference(ctx context.Context, whole *Reference) (*Reference, error) {
	if s.o.EarlyEnd == 0 {
		return nil, nil
	}
	took := time.Since(s.start)
	reason := fmt.Sprintf("the runs without faults took %s", took.Round(time.Second))
	if s.end.IsZero() || took < s.end.Sub(s.start)/4 {
		bounded, cancel := context.WithTimeoutCause(ctx, max(earlyAtLeast, 2*took), errEarlyTime)
		defer cancel()
		ref, err := s.reference(bounded, s.o.EarlyEnd, &Plan{Names: whole.Names, Varies: whole.Varies})
		unjudged, ok := errors.AsType[*NotJudgedError](err)
		switch {
		case err == nil:
			s.report.Disagree = slices.Compact(slices.Sorted(slices.Values(append(s.report.Disagree, ref.Disagree...))))
			return ref, nil
		case ok:
			reason = unjudged.Reason
		case ctx.Err() == nil && errors.Is(err, errEarlyTime):
			reason = err.Error()
		default:
			return nil, err
		}
	}
	reason, _, _ = strings.Cut(reason, "\n")
	s.report.Warnings = append(s.report.Warnings,
		fmt.Sprintf("the state before step %d, a deletion, is not compared: %s", s.o.EarlyEnd+1, reason))
	return nil, nil
}
