package flow

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffDelay(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	for _, tc := range []struct {
		reason      string
		backoff     Backoff
		attempt     int
		least, most time.Duration
	}{
		{"the first is the base", Backoff{Base: sec, Max: time.Minute}, 1, sec, sec},
		{"the second begins at the base too", Backoff{Base: sec, Max: time.Minute}, 2, sec, 2 * sec},
		{"then they are drawn from the upper half", Backoff{Base: sec, Max: time.Minute}, 5, 8 * sec, 16 * sec},
		{"up to the maximum", Backoff{Base: sec, Max: time.Minute}, math.MaxInt, time.Minute / 2, time.Minute},
		{"a maximum below the base is the base", Backoff{Base: sec, Max: time.Millisecond}, 9, sec, sec},
		{"the zero value starts at 400 ms", Backoff{}, 1, 400 * time.Millisecond, 400 * time.Millisecond},
		{"and ends at 10 s", Backoff{}, 99, 5 * sec, 10 * sec},
		{"no attempt is the first", Backoff{Base: sec}, math.MinInt, sec, sec},
	} {
		for range 100 {
			if got := tc.backoff.Delay(tc.attempt); got < tc.least || got > tc.most {
				t.Fatalf("%s: %v, want from %v to %v", tc.reason, got, tc.least, tc.most)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{Base: time.Duration(rapid.Int64().Draw(t, "base")), Max: time.Duration(rapid.Int64().Draw(t, "max"))}
		if got := b.Delay(rapid.Int().Draw(t, "attempt")); got <= 0 || b.Base > 0 && got < b.Base ||
			b.Max > 0 && got > max(b.Base, b.Max, 400*time.Millisecond) {
			t.Fatalf("%+v: %v", b, got)
		}
	})
}
