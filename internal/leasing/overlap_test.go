package leasing_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// TestRunOverlapping: renewals overlap, and freshness counts from sending. A negative time to take means no response.
func TestRunOverlapping(t *testing.T) {
	t.Parallel()
	const second = time.Second
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason string
		take   []time.Duration // of each renewal; the last value repeats
		fail   []int           // renewals that fail at their end
		end    int             // the renewal that returns broken; 0: none
		cancel time.Duration   // 0: never
		want   error
		lasts  time.Duration
		sent   []time.Duration // the first renewals
	}{
		{
			reason: "slow responses", take: []time.Duration{5 * second}, cancel: time.Minute, lasts: time.Minute,
			sent: []time.Duration{0, 2 * second, 3 * second, 4 * second, 5 * second},
		},
		{
			reason: "responses that are slow for a while", take: []time.Duration{9 * second / 2, 0},
			cancel: time.Minute, lasts: time.Minute,
			sent: []time.Duration{0, 2 * second, 3 * second, 4 * second, 5 * second, 7 * second},
		},
		{
			reason: "lost responses", take: []time.Duration{0, -1, -1, 0, -1, -1, 0}, cancel: time.Minute, lasts: time.Minute,
		},
		{reason: "no response at all", take: []time.Duration{-1}, want: leasing.ErrExpired, lasts: 8 * second},
		{reason: "no more responses", take: []time.Duration{0, 0, -1}, want: leasing.ErrExpired, lasts: 10 * second},
		{
			reason: "responses that are too slow", take: []time.Duration{0, 7 * second}, want: leasing.ErrExpired,
			lasts: 8 * second,
		},
		{
			reason: "a later response comes first", take: []time.Duration{0, 7 * second, 2 * second, -1},
			want: leasing.ErrExpired, lasts: 12 * second,
		},
		{
			reason: "a failure is repeated soon", take: []time.Duration{0}, fail: []int{1, 2}, cancel: 5 * second,
			lasts: 5 * second,
			sent:  []time.Duration{0, 2 * second / 3, 2 * (2 * second / 3), 2*(2*second/3) + 2*second},
		},
		{reason: "a renewal ends the run", take: []time.Duration{0, second}, end: 2, want: broken, lasts: 3 * second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.cancel > 0 {
				time.AfterFunc(tc.cancel, cancel)
			}
			r := leasing.Renewal{Bound: 8 * second}
			var mu sync.Mutex
			var sent []time.Duration
			start := time.Now()
			err := r.RunOverlapping(ctx, 2*second, func(ctx context.Context, begun leasing.Stamp) (bool, error) {
				mu.Lock()
				sent = append(sent, time.Since(start))
				n := len(sent)
				mu.Unlock()
				take := tc.take[min(n, len(tc.take))-1]
				if take < 0 {
					take = time.Hour
				}
				select {
				case <-time.After(take):
				case <-ctx.Done():
					return false, nil
				}
				switch {
				case n == tc.end:
					return false, broken
				case slices.Contains(tc.fail, n):
					return false, nil
				}
				return r.Extend(begun), nil
			})
			if !errors.Is(err, tc.want) || time.Since(start) != tc.lasts {
				t.Errorf("%s: the run ended after %v with %v", tc.reason, time.Since(start), err)
			}
			if len(sent) < len(tc.sent) || !slices.Equal(sent[:len(tc.sent)], tc.sent) {
				t.Errorf("%s: renewals at %v, want %v", tc.reason, sent, tc.sent)
			}
		})
	}
}

// TestExtend: an older renewal changes nothing, and an expired hold does not begin again.
func TestExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := leasing.Renewal{Bound: 8 * time.Second}
		first := leasing.Clock{}.Stamp()
		<-time.After(time.Second)
		second := leasing.Clock{}.Stamp()
		if !r.Extend(second) || !r.Extend(first) {
			t.Error("There is no hold.")
		}
		if age, _ := r.Age(); age != 0 || !r.HasAfter(first) || r.HasAfter(second) {
			t.Errorf("The hold counts from %v ago.", age)
		}
		<-time.After(8 * time.Second)
		if r.Extend(leasing.Clock{}.Stamp()) || r.Fresh() {
			t.Error("A hold that has expired begins again.")
		}
	})
}
