package flow

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBlockedSince: an engine is blocked if workers do not return and no other worker may take over. It is not blocked
// before they have run their steps for a minute.
func TestBlockedSince(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		opt    EngineOptions
		stuck  []string // groups of the fibers whose code does not return; they start a second apart
		ready  []string // groups of later fibers
		want   time.Duration
	}{
		"all": {
			reason: "No worker is free.", opt: EngineOptions{Workers: 2}, stuck: []string{"a", "b"}, want: time.Second,
		},
		"some": {
			reason: "A worker is free.", opt: EngineOptions{Workers: 3}, stuck: []string{"a", "b"}, ready: []string{"a"},
			want: -1,
		},
		"group": {
			reason: "The group may have no other worker.", opt: EngineOptions{Workers: 3, PerGroup: 1},
			stuck: []string{"a"}, ready: []string{"a"}, want: 0,
		},
		"full group": {
			reason: "Nothing of the group waits for a worker.", opt: EngineOptions{Workers: 3, PerGroup: 1},
			stuck: []string{"a"}, ready: []string{"b"}, want: -1,
		},
		"all, with ready ones": {
			reason: "No worker is free.", opt: EngineOptions{Workers: 2}, stuck: []string{"a", "b"}, ready: []string{"a", "c"},
			want: time.Second,
		},
		"earliest": {
			reason: "The group was blocked first.", opt: EngineOptions{Workers: 2, PerGroup: 1},
			stuck: []string{"a", "b"}, ready: []string{"a"}, want: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, tc.opt, func(t *testing.T, e *Engine) {
				began, done, ready := time.Now(), make(chan struct{}), []Handle(nil)
				hangs := New("f", Step("hang", func(_ context.Context, f *fib) Next {
					<-done
					return f.Next()
				}))
				for i, group := range tc.stuck {
					if i > 0 {
						time.Sleep(time.Second)
					}
					start(t, e, hangs, &packet{}, StartOptions{Key: group + "/stuck"})
				}
				var behind []string
				for _, group := range tc.ready {
					h := start(t, e, New("g", note("any")), &packet{}, StartOptions{Key: group + "/ready"})
					synctest.Wait()
					if h.Status() == Ready {
						behind = append(behind, h.Key())
					}
					ready = append(ready, h)
				}
				synctest.Wait()
				time.Sleep(blockedAfter - 2*time.Second)
				if since, blocked := e.BlockedSince(); blocked {
					t.Errorf("It is blocked since %v within a minute.", since.Sub(began))
				}
				if at, behind := e.Blocked(); len(at)+len(behind) > 0 {
					t.Errorf("%v and %v are blocked within a minute.", at, behind)
				}
				time.Sleep(7 * time.Minute)
				switch since, blocked := e.BlockedSince(); {
				case blocked != (tc.want >= 0):
					t.Errorf("%s Blocked is %v.", tc.reason, blocked)
				case blocked && since.Sub(began) != tc.want:
					t.Errorf("%s It is blocked since %v, want %v.", tc.reason, since.Sub(began), tc.want)
				}
				at := len(tc.stuck)
				if tc.want < 0 {
					at, behind = 0, nil
				}
				gotAt, got := e.Blocked()
				slices.Sort(got)
				if !slices.Equal(got, behind) || len(gotAt) != at {
					t.Errorf("%s %v and %v are blocked, want %d steps and %v.", tc.reason, gotAt, got, at, behind)
				}
				for _, h := range ready {
					if got, want := h.Blocked(), slices.Contains(behind, h.Key()); got != want {
						t.Errorf("%s %s is blocked: %v.", tc.reason, h.Key(), got)
					}
				}
				close(done)
				synctest.Wait()
				if since, blocked := e.BlockedSince(); blocked {
					t.Errorf("It is blocked since %v although all workers are free.", since.Sub(began))
				}
			})
		})
	}
}

// TestNotBlockedAfterWait: the time for which a fiber was parked at its step does not count.
func TestNotBlockedAfterWait(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		checks := 0
		start(t, e, New("f", Step("poll", func(_ context.Context, f *fib) Next {
			return f.Await(Func(func(context.Context) (bool, error) { // the only worker runs it
				if since, blocked := e.BlockedSince(); blocked {
					t.Errorf("It is blocked since %v at check %d.", since, checks)
				}
				checks++
				return checks > 2, nil
			}, time.Hour))
		})), &packet{}, StartOptions{})
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if checks != 3 {
			t.Errorf("There were %d checks, want 3.", checks)
		}
	})
}
