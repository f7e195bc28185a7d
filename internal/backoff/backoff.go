// Package backoff computes how long to wait before the next try: exponential growth with full or equal jitter
// (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015), and the Retry-After header of HTTP.
//
//	p := backoff.Policy{Base: time.Second, Cap: 5 * time.Minute}
//	err := backoff.Pause(ctx, p.Delay(0, rand.Float64)) // after the first failure: at most 1s
//	err = backoff.Pause(ctx, p.Delay(3, rand.Float64))  // after the fourth: at most 8s
//
// Everything here but Pause is a pure function: no clock, no global source of randomness, no allocation.
package backoff

import (
	"math"
	"time"
)

// Defaults of a Policy whose fields are zero.
const (
	DefaultBase   = time.Second
	DefaultCap    = 5 * time.Minute
	DefaultFactor = 2.0
)

// Policy describes a series of delays. The zero value works: 1s, 2s, 4s … up to 5m, each with full jitter.
// A Policy is a value; it is safe for concurrent use.
type Policy struct {
	Base   time.Duration // upper bound of the first delay; default 1s
	Cap    time.Duration // upper bound of every delay; default 5m; below Base it lowers Base
	Factor float64       // growth per attempt; default 2; values below 1, NaN and infinities count as the default
	// Floor is what no delay goes below, so that full jitter cannot produce a busy loop. The default is a tenth of
	// Base. A Floor over the upper bound of a delay is lowered to it.
	Floor time.Duration
	// Equal draws from the upper half of what Ceiling bounds ("equal jitter"): no delay is below half its upper bound.
	Equal bool
}

// Ceiling is the upper bound of the delay after the given attempt: min(Cap, Base × Factor^attempt). Attempt 0 is the
// first one; negative attempts count as 0. It never overflows.
func (p Policy) Ceiling(attempt int) time.Duration {
	p = p.withDefaults()
	grown := float64(p.Base) * math.Pow(p.Factor, float64(max(attempt, 0)))
	if !(grown < float64(p.Cap)) { // also true for NaN and +Inf
		return p.Cap
	}
	return time.Duration(grown)
}

// Delay is a duration drawn uniformly from [Floor, Ceiling(attempt)], or from the upper half of that bound if Equal is
// set. rnd returns a number in [0,1), for example rand.Float64; nil stands for a source that always says 1, which gives
// the ceiling itself.
func (p Policy) Delay(attempt int, rnd func() float64) time.Duration {
	ceiling := p.Ceiling(attempt)
	if rnd == nil {
		return ceiling
	}
	p = p.withDefaults()
	floor := min(p.Floor, ceiling)
	if p.Equal {
		floor = max(floor, ceiling/2)
	}
	share := rnd()
	if share >= 1 { // beyond the promise of rnd; also keeps the product below from rounding over an int64
		return ceiling
	}
	if !(share >= 0) {
		share = 0
	}
	return floor + time.Duration(share*float64(ceiling-floor))
}

func (p Policy) withDefaults() Policy {
	if p.Base <= 0 {
		p.Base = DefaultBase
	}
	if p.Cap <= 0 {
		p.Cap = DefaultCap
	}
	p.Base = min(p.Base, p.Cap)
	if !(p.Factor >= 1) || math.IsInf(p.Factor, 0) {
		p.Factor = DefaultFactor
	}
	if p.Floor <= 0 {
		p.Floor = max(p.Base/10, 1)
	}
	return p
}
