package engine

import (
	"context"
	"slices"
	"strings"
	"time"
)

// follow confirms a suspicion, shrinks its plan and reports it. If the search ends before, it reports a suspicion, or a
// finding that is not shrunk.
func (s *search) follow(ctx context.Context, ref *Reference, p Plan, out *Outcome, symptom Symptom) {
	text, _, _ := strings.Cut(symptom.Text, "\n")
	s.announce("a suspicion is being confirmed: %s: %s", symptom.Verdict, text)
	shown, of, repeats := s.confirm(ctx, ref, p, symptom)
	switch {
	case !repeats && ctx.Err() == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Unconfirmed++
		delete(s.found, symptom.key())
		return
	case !repeats:
		f := s.finding(ref, p, out, symptom)
		f.Shown, f.Of = shown, of
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Suspicions = append(s.report.Suspicions, f)
		return
	}
	s.announce("a finding is being shrunk")
	f := s.shrink(ctx, ref, p, out, symptom)
	f.Shown, f.Of = shown, of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Findings = append(s.report.Findings, f)
}

// confirm replays a plan, and then the workload without faults. It reports whether the symptom repeats, and needs the
// faults. If ctx ends before that is known, repeats is false.
func (s *search) confirm(ctx context.Context, ref *Reference, p Plan, symptom Symptom) (shown, of int, repeats bool) {
	for ; of < replays && of-shown <= replays-confirmed; of++ {
		if shown >= confirmed && s.ended() {
			break // the time left is for the runs without faults
		}
		again := p
		again.Seed += 100 + uint64(of)
		_, ok := s.shows(ctx, ref, again, symptom)
		if ctx.Err() != nil {
			return shown, of, false
		}
		if ok {
			shown++
		}
	}
	if shown < confirmed {
		return shown, of, false
	}
	for i := range uint64(replays) {
		_, ok := s.shows(ctx, ref, Plan{Seed: p.Seed + 100 + i, Steps: p.Steps, Names: p.Names, Varies: p.Varies}, symptom)
		if ok || ctx.Err() != nil {
			return shown, of, false
		}
	}
	return shown, of, true
}

// shows plays a plan and reports whether the outcome has the symptom.
func (s *search) shows(ctx context.Context, ref *Reference, p Plan, symptom Symptom) (*Outcome, bool) {
	out, err := s.driver.Play(ctx, p, ref.Want)
	if err != nil {
		return nil, false
	}
	return out, slices.ContainsFunc(Judge(ref, out), symptom.same)
}

// shrink returns the finding with the fewest faults, the shortest delay and the shortest workload that show the
// symptom. If the time of the search ends, it returns what it has reached.
func (s *search) shrink(ctx context.Context, ref *Reference, p Plan, out *Outcome, symptom Symptom) Finding {
	cut := false
	over := func() bool {
		cut = cut || ctx.Err() != nil || s.ended()
		return cut
	}
	try := func(candidate Plan) bool {
		o, ok := s.shows(ctx, ref, candidate, symptom)
		cut = ctx.Err() != nil
		if ok {
			p, out = candidate, o
		}
		return ok
	}
	for i := 0; i < len(p.Faults) && len(p.Faults) > 1 && !over(); {
		candidate := p
		candidate.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		if !try(candidate) {
			i++
		}
	}
	for i := range p.Faults {
		for !p.Faults[i].Kind.needsReplicas() && p.Faults[i].For > Duration(time.Second) && !over() {
			candidate := p
			candidate.Faults = slices.Clone(p.Faults)
			candidate.Faults[i].For = (p.Faults[i].For / 2).round()
			if !try(candidate) {
				break
			}
		}
	}
	most := s.o.Steps
	if p.Steps > 0 {
		most = p.Steps
	}
	for steps := 1; steps < most && !over(); steps++ {
		candidate := p
		candidate.Steps = steps
		if shorter, o := s.shorter(ctx, ref, candidate, symptom); shorter != nil {
			ref, p, out = shorter, candidate, o
			break
		}
		cut = ctx.Err() != nil
	}
	f := s.finding(ref, p, out, symptom)
	f.Unshrunk = cut
	return f
}

// shorter plays a plan with fewer steps. If it shows the symptom, it returns the reference of these steps.
func (s *search) shorter(ctx context.Context, ref *Reference, p Plan, symptom Symptom) (*Reference, *Outcome) {
	out, err := s.driver.Play(ctx, p, ref.Want)
	if err != nil || slices.Contains(out.Reached, false) {
		return nil, nil
	}
	shorter, err := s.reference(ctx, p.Steps, &p)
	if err != nil || len(faultless(shorter)) > 0 || !slices.ContainsFunc(Judge(shorter, out), symptom.same) {
		return nil, nil
	}
	return shorter, out
}

// finding returns a finding with the symptom first.
func (s *search) finding(ref *Reference, p Plan, out *Outcome, symptom Symptom) Finding {
	f := Finding{Plan: p, Symptoms: Judge(ref, out), Trace: out.Trace, Without: ref.Trace, Steps: p.Steps}
	if f.Steps == 0 {
		f.Steps = s.o.Steps
	}
	i := slices.IndexFunc(f.Symptoms, symptom.same)
	if i > 0 { // the confirmed one leads
		f.Symptoms = slices.Concat(f.Symptoms[i:i+1], f.Symptoms[:i], f.Symptoms[i+1:])
	}
	return f
}

// round rounds up to whole seconds.
func (d Duration) round() Duration {
	return Duration((time.Duration(d) + time.Second - 1).Truncate(time.Second))
}
