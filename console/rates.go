package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/pages"
)

// sample holds the counters at one time.
type sample struct {
	at    time.Time
	count map[string]float64
}

// rates keeps the counters of the last hour.
type rates struct {
	take func() map[string]float64

	mu      sync.Mutex
	samples []sample
}

const (
	rateEvery = 30 * time.Second
	rateFor   = time.Hour
)

func newRates(take func() map[string]float64) *rates { return &rates{take: take} }

func (r *rates) run(ctx context.Context) error {
	for {
		r.record(time.Now())
		if pages.Pause(ctx, rateEvery) != nil {
			return nil
		}
	}
}

// record takes a sample.
func (r *rates) record(at time.Time) {
	s := sample{at, r.take()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(slices.DeleteFunc(r.samples, func(old sample) bool { return at.Sub(old.at) > rateFor }), s)
}

// point is a value for the interval before a time.
type point struct {
	At    time.Time
	Value float64
}

// ratio returns the growth of a counter divided by that of another one, or per second if by is empty.
func (r *rates) ratio(of, by string) (all []point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.samples); i++ {
		before, now := r.samples[i-1], r.samples[i]
		grown := now.count[of] - before.count[of]
		divisor := now.at.Sub(before.at).Seconds()
		if by != "" {
			divisor = now.count[by] - before.count[by]
		}
		value := 0.0
		if divisor > 0 && grown > 0 {
			value = grown / divisor
		}
		all = append(all, point{now.at, value})
	}
	return all
}
