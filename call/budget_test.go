package call

import (
	"math"
	"testing"
	"time"
)

// No budget permits more retries than its burst and the tokens that arrive while they wait.
func TestBudgetBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		budget *Budget
		want   int // retries permitted at one moment
	}{
		{"the defaults: 100 at once, and 30 s of 10 a second", &Budget{}, 400},
		{"a bucket that hardly ever fills", &Budget{PerSecond: 1e-12, Burst: 3}, 3},
		{"one that never fills", &Budget{PerSecond: math.SmallestNonzeroFloat64, Burst: 3}, 3},
		{
			"invalid numbers mean the defaults", &Budget{PerSecond: math.NaN(), Burst: math.NaN(), Ratio: math.NaN()},
			400,
		},
		{"with a burst below one each retry waits", &Budget{PerSecond: 1, Burst: 0.5, MaxWait: 3 * time.Second}, 3},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1, 0)
			passed, longest := 0, time.Duration(0)
			for range 1000 {
				after, ok := tc.budget.reserve(now, time.Millisecond)
				if !ok {
					continue
				}
				if passed++; after < time.Millisecond {
					t.Errorf("retry %d waits %v, less than its back-off", passed, after)
				}
				longest = max(longest, after)
			}
			_, _, _, wait := tc.budget.params()
			if passed != tc.want || longest > max(wait, time.Millisecond) {
				t.Errorf("%d retries pass, and wait up to %v; want %d and %v", passed, longest, tc.want, wait)
			}
			// A clock that moves backwards adds nothing. Calls add their share, up to the burst.
			if _, ok := tc.budget.reserve(now.Add(-time.Hour), 0); ok {
				t.Error("a clock that moves backwards fills the bucket")
			}
		})
	}
}
