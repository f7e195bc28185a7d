// Package backoff computes the delay before a retry: exponential growth with full or equal jitter (M. Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015), and the Retry-After header of HTTP.
//
//	p := backoff.Policy{Base: time.Second, Cap: 5 * time.Minute}
//	err := backoff.Pause(ctx, p.Delay(0, rand.Float64)) // after the first failure: at most 1s
//	err = backoff.Pause(ctx, p.Delay(3, rand.Float64))  // after the fourth: at most 8s
//
// All functions except Pause are pure: they use no clock and no global random source, and do not allocate.
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

// Policy describes a series of delays. The zero value is valid: 1s, 2s, 4s … up to 5m, each with full jitter. A Policy
// is a value and is safe for concurrent use.
type Policy struct {
	Base   time.Duration // upper bound of the first delay; default 1s
	Cap    time.Duration // upper bound of every delay; default 5m; below Base it lowers Base
	Factor float64       // growth per attempt; default 2; values below 1, NaN and infinities count as the default
	// Floor is the minimum of every delay, so that full jitter cannot cause a busy loop. The default is a tenth of Base. A
	// Floor above the upper bound of a delay is reduced to that bound.
	Floor time.Duration
	// Equal selects equal jitter: every delay is at least half of its upper bound.
	Equal bool
}

// Ceiling returns the upper bound of the delay after the given attempt: min(Cap, Base × Factor^attempt). Attempt 0 is
// the first one, and negative attempts count as 0. It never overflows.
func (p Policy) Ceiling(attempt int) time.Duration {
	p = p.withDefaults()
	grown := float64(p.Base) * math.Pow(p.Factor, float64(max(attempt, 0)))
	if !(grown < float64(p.Cap)) { // also true for NaN and +Inf
		return p.Cap
	}
	return time.Duration(grown)
}

// Delay returns a random duration from [Floor, Ceiling(attempt)], or from the upper half of that bound if Equal is set.
// rnd returns a number in [0,1), for example rand.Float64. With a nil rnd, Delay returns the ceiling.
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
	if share >= 1 { // an invalid result of rnd; the check also prevents an overflow of the product
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
