package leasing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// TestStamp: AtMost and AtLeast bound the elapsed time by the clock that shows more, or less, when the clocks disagree.
func TestStamp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		reason          string
		stamp           time.Time
		atMost, atLeast time.Duration
	}{
		{"Both clocks agree.", now.Add(-time.Minute), time.Minute, time.Minute},
		{"Only the wall clock is known.", now.Add(-time.Minute).Round(0), time.Minute, time.Minute},
	} {
		s := leasing.Stamp{Time: tc.stamp}
		if s.AtMost(now) != tc.atMost || s.AtLeast(now) != tc.atLeast {
			t.Errorf("%s got %v and %v", tc.reason, s.AtMost(now), s.AtLeast(now))
		}
	}
}

// TestRenewal: a hold lasts for its bound from the start of a renewal, however late the response.
func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := leasing.Renewal{Bound: 6 * time.Second}
		if _, held := r.Age(); held || r.Fresh() {
			t.Error("there is a hold before the first renewal")
		}
		begun := leasing.Clock{}.Stamp()
		<-time.After(2 * time.Second)
		r.Renewed(begun)
		if age, held := r.Age(); !held || age != 2*time.Second || !r.Fresh() {
			t.Errorf("held: %t, for %v", held, age)
		}
		<-time.After(4*time.Second - 1)
		if !r.Fresh() {
			t.Error("the hold has expired before its bound")
		}
		<-time.After(1)
		if _, held := r.Age(); !held || r.Fresh() {
			t.Errorf("the hold is fresh after its bound; held: %t", held)
		}
		r.Renewed(leasing.Clock{}.Stamp())
		if r.End(); r.Fresh() {
			t.Error("the hold is fresh after its end")
		}
	})
}

// TestRun: the loop waits as its function asks, bounds each call, and ends with the hold, its function or its context.
func TestRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	const second = time.Second
	for _, tc := range []struct {
		reason string
		take   []time.Duration // of each renewal
		fail   int             // the first renewal that fails, as do all later ones; 0: none
		end    error           // of the last renewal
		cancel time.Duration   // 0: never
		want   error
		lasts  time.Duration
	}{
		{reason: "the context ends", cancel: 10 * second, lasts: 10 * second},
		{reason: "a renewal ends the loop", take: []time.Duration{0, second}, end: broken, want: broken, lasts: 5 * second},
		{reason: "renewals fail", fail: 2, want: leasing.ErrExpired, lasts: 8 * second},
		{
			reason: "a renewal takes too long", take: []time.Duration{0, time.Hour}, fail: 2, want: leasing.ErrExpired,
			lasts: 8 * second,
		},
		{
			reason: "a response comes late", take: []time.Duration{3 * second}, end: broken, want: broken, lasts: 7 * second,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.cancel > 0 {
				time.AfterFunc(tc.cancel, cancel)
			}
			r := leasing.Renewal{Bound: 6 * second}
			begun, n := time.Now(), 0
			r.Renewed(leasing.Clock{}.Stamp())
			// The first renewal begins after 2 s, and others 2 s after a renewal or 500 ms after a failure.
			err := r.Run(ctx, 2*second, func(ctx context.Context, begun leasing.Stamp) (time.Duration, error) {
				n++
				if n <= len(tc.take) {
					select {
					case <-time.After(tc.take[n-1]):
					case <-ctx.Done():
					}
				}
				if tc.end != nil && n > len(tc.take)-1 && n > 1 {
					return 0, tc.end
				}
				if tc.fail > 0 && n >= tc.fail {
					return 500 * time.Millisecond, nil
				}
				r.Renewed(begun)
				return 2 * second, nil
			})
			if !errors.Is(err, tc.want) || time.Since(begun) != tc.lasts {
				t.Errorf("%s: the loop ended after %v with %v", tc.reason, time.Since(begun), err)
			}
		})
	}
}

// TestPaused: a process that was paused beyond the bound does not renew, although the server would accept it.
func TestPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var jump time.Duration
		r := leasing.Renewal{Bound: 6 * time.Second, Clock: leasing.Clock{
			Now: func() time.Time { return time.Now().Add(jump) },
			After: func(d time.Duration) <-chan time.Time {
				jump = 5 * time.Second
				return time.After(d)
			},
		}}
		r.Renewed(r.Clock.Stamp())
		err := r.Run(t.Context(), 2*time.Second, func(context.Context, leasing.Stamp) (time.Duration, error) {
			t.Error("the expired hold is renewed")
			return time.Hour, nil
		})
		if !errors.Is(err, leasing.ErrExpired) || r.Fresh() {
			t.Errorf("the loop ended with %v", err)
		}
	})
}

// TestObservation: time counts from the first observation of the newest version, by the local clock only.
func TestObservation(t *testing.T) {
	t.Parallel()
	var o leasing.Observation
	begun := time.Now()
	for _, tc := range []struct {
		reason  string
		version string
		at      time.Duration
		news    bool
		want    time.Duration // time since the last change
	}{
		{"The first version.", "7", 0, true, 0},
		{"The same version.", "7", time.Second, false, time.Second},
		{"A newer version.", "12", 2 * time.Second, true, 0},
		{"An older version that arrives late.", "8", 3 * time.Second, false, time.Second},
		{"Another format.", "x", 4 * time.Second, true, 0},
	} {
		now := begun.Add(tc.at)
		l := &leasing.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: tc.version}}
		if news := o.See(l, leasing.Stamp{Time: now}); news != tc.news || o.Unchanged(now) != tc.want ||
			(o.Lease() == l) != news {
			t.Errorf("%s news: %t, unchanged for %v", tc.reason, news, o.Unchanged(now))
		}
	}
}
