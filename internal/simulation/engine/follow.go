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
	c := s.confirm(ctx, ref, p, symptom)
	switch {
	case !c.repeats && ctx.Err() == nil:
		s.doubt(symptom, p)
		return
	case !c.repeats:
		f := s.finding(ref, p, out, symptom)
		f.Shown, f.Of = c.shown, c.of
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Suspicions = append(s.report.Suspicions, f)
		return
	case c.without != nil:
		p, out = c.plan, c.without
	}
	s.announce("a finding is being shrunk")
	f := s.shrink(ctx, ref, p, out, symptom)
	f.Shown, f.Of = c.shown, c.of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Findings = append(s.report.Findings, f)
}

// doubt reports a suspicion that did not repeat. Another schedule may show the symptom again.
func (s *search) doubt(symptom Symptom, p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Unconfirmed++
	delete(s.found, symptom.key())
	i := slices.IndexFunc(r.Doubts, func(d Doubt) bool { return d.Symptom.same(symptom) })
	switch {
	case i >= 0:
		r.Doubts[i].Count++
	case len(r.Doubts) < maxLines:
		r.Doubts = append(r.Doubts, Doubt{Symptom: symptom, Count: 1, Plan: p})
	}
}

// confirmation says whether a suspicion is a finding.
type confirmation struct {
	repeats   bool
	shown, of int // replays
	// If the symptom is wrong by itself and comes without any fault, these are the first plan and outcome that show it.
	plan    Plan
	without *Outcome
}

// confirm replays a plan with other timings, and then the workload without faults. The symptom has to repeat, and must
// not show without faults. One that is wrong by itself also counts if it repeats only with the first timing, or shows
// without faults. If ctx ends before that is known, repeats is false.
func (s *search) confirm(ctx context.Context, ref *Reference, p Plan, symptom Symptom) (c confirmation) {
	for ; c.of < replays && c.of-c.shown <= replays-confirmed; c.of++ {
		if c.shown >= confirmed && s.ended() {
			break // the time left is for the runs without faults
		}
		again := p
		again.Seed += otherTimes + uint64(c.of)
		_, ok := s.shows(ctx, ref, again, symptom)
		if ctx.Err() != nil {
			return c
		}
		if ok {
			c.shown++
		}
	}
	if c.shown < confirmed {
		if !symptom.alone() {
			return c
		}
		if _, ok := s.shows(ctx, ref, p, symptom); !ok {
			return c
		}
		c.shown, c.of = c.shown+1, c.of+1
	}
	shown := 0
	for i := range uint64(replays) {
		plan := Plan{Seed: p.Seed + otherTimes + i, Steps: p.Steps, Names: p.Names, Varies: p.Varies}
		out, ok := s.shows(ctx, ref, plan, symptom)
		if ctx.Err() != nil || ok && !symptom.alone() {
			return c
		}
		if !ok {
			continue
		}
		if shown++; c.without == nil {
			c.plan, c.without = plan, out
		}
	}
	if c.repeats = true; shown > 0 {
		c.shown, c.of = shown, replays
	}
	return c
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
	if err != nil || len(shorter.flaws.Symptoms) > 0 || !slices.ContainsFunc(Judge(shorter, out), symptom.same) {
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
