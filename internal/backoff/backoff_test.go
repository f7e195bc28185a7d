package backoff_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

func TestCeiling(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		policy  backoff.Policy
		attempt int
		want    time.Duration
	}{
		{"the zero value starts at a second", backoff.Policy{}, 0, time.Second},
		{"it doubles by default", backoff.Policy{}, 3, 8 * time.Second},
		{"it stops at the cap", backoff.Policy{}, 20, 5 * time.Minute},
		{"it cannot overflow", backoff.Policy{Factor: 1e300}, math.MaxInt, 5 * time.Minute},
		{"a negative attempt is the first", backoff.Policy{Base: time.Minute}, -7, time.Minute},
		{"a cap below the base lowers the base", backoff.Policy{Base: time.Minute, Cap: time.Second}, 0, time.Second},
		{"a factor of one keeps it constant", backoff.Policy{Base: time.Second, Factor: 1}, 50, time.Second},
		{"a factor below one is the default", backoff.Policy{Base: time.Second, Factor: 0.5}, 1, 2 * time.Second},
		{"NaN is the default", backoff.Policy{Base: time.Second, Factor: math.NaN()}, 1, 2 * time.Second},
		{"the longest cap is no overflow", backoff.Policy{Cap: math.MaxInt64}, 1000, math.MaxInt64},
	} {
		if got := tc.policy.Ceiling(tc.attempt); got != tc.want {
			t.Errorf("%s: Ceiling(%d) = %v, want %v", tc.reason, tc.attempt, got, tc.want)
		}
	}
}

func TestDelayBounds(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Base: 10 * time.Second, Cap: time.Minute}
	for _, tc := range []struct {
		reason string
		rnd    func() float64
		want   time.Duration
	}{
		{"the least is the floor, a tenth of the base", func() float64 { return 0 }, time.Second},
		{"the middle lies between floor and ceiling", func() float64 { return 0.5 }, 10*time.Second + 500*time.Millisecond},
		{"no source gives the ceiling", nil, 20 * time.Second},
		{"an invalid random source is bounded above", func() float64 { return 7 }, 20 * time.Second},
		{"and below", func() float64 { return math.NaN() }, time.Second},
	} {
		if got := p.Delay(1, tc.rnd); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}

func TestDelayProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := backoff.Policy{
			Base:   time.Duration(rapid.Int64().Draw(t, "base")),
			Cap:    time.Duration(rapid.Int64().Draw(t, "cap")),
			Factor: rapid.Float64().Draw(t, "factor"),
			Floor:  time.Duration(rapid.Int64().Draw(t, "floor")),
			Equal:  rapid.Bool().Draw(t, "equal"),
		}
		attempt := rapid.Int().Draw(t, "attempt")
		got, ceiling := p.Delay(attempt, rand.Float64), p.Ceiling(attempt)
		if got <= 0 || got > ceiling {
			t.Fatalf("Delay = %v is outside (0, %v]", got, ceiling)
		}
		if p.Cap > 0 && ceiling > p.Cap {
			t.Fatalf("Ceiling = %v exceeds the cap %v", ceiling, p.Cap)
		}
		if p.Floor > 0 && got < min(p.Floor, ceiling) {
			t.Fatalf("Delay = %v is below the floor %v", got, p.Floor)
		}
		if p.Equal && got < ceiling/2 {
			t.Fatalf("Delay = %v is in the lower half of %v", got, ceiling)
		}
		if attempt < math.MaxInt && p.Ceiling(attempt+1) < ceiling {
			t.Fatalf("Ceiling shrinks after attempt %d", attempt)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason, header string
		want           time.Duration
		ok             bool
	}{
		{"absent", "", 0, false},
		{"seconds", "120", 2 * time.Minute, true},
		{"white space around", " 5 ", 5 * time.Second, true},
		{"zero", "0", 0, true},
		{"negative", "-3", 0, false},
		{"a fraction is not in the RFC", "1.5", 0, false},
		{"a date", "Fri, 20 Nov 2026 12:01:00 GMT", time.Minute, true},
		{"a date in the past", "Fri, 20 Nov 2026 11:00:00 GMT", 0, true},
		{"a date far away", "Fri, 20 Nov 2099 11:00:00 GMT", backoff.MaxRetryAfter, true},
		{"more than a day", "9999999", backoff.MaxRetryAfter, true},
		{"more than an int64", "99999999999999999999999999", backoff.MaxRetryAfter, true},
		{"garbage", "soon", 0, false},
	} {
		h := http.Header{}
		if tc.header != "" {
			h.Set("Retry-After", tc.header)
		}
		if got, ok := backoff.RetryAfter(h, now); got != tc.want || ok != tc.ok {
			t.Errorf("%s: got %v, %v; want %v, %v", tc.reason, got, ok, tc.want, tc.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("1")
	f.Add("Fri, 20 Nov 2026 12:01:00 GMT")
	f.Add("99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := backoff.RetryAfter(http.Header{"Retry-After": {text}}, time.Unix(1e9, 0))
		if got < 0 || got > backoff.MaxRetryAfter || (!ok && got != 0) {
			t.Fatalf("RetryAfter(%q) = %v, %v", text, got, ok)
		}
	})
}
