package connection

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(&rest.Config{QPS: 1, Burst: 2}, 0)
		began := time.Now()
		order := make(chan string, 10)
		take := func(name string, urgent bool) {
			if err := l.Wait(t.Context(), Calls, urgent); err != nil {
				t.Error(err)
			}
			order <- name
		}
		take("burst", false)
		take("burst", false)
		for _, name := range []string{"list 1", "list 2"} {
			go take(name, false)
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- l.Wait(ctx, Calls, true) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		go take("watch", true)
		synctest.Wait()
		short, done := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer done()
		if err := l.Wait(short, Calls, false); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
			t.Errorf("a fourth waiter whose deadline is too early: %v after %v", err, time.Since(began))
		}
		var got []string
		for range 5 {
			got = append(got, <-order)
		}
		if want := "burst burst watch list 1 list 2"; strings.Join(got, " ") != want {
			t.Errorf("order %q, want %q", got, want)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("took %v, want 3s", d)
		}
	})
}

// slow is a RateLimiter of a configuration that rejects every request.
type slow struct{ noLimit }

type noLimit struct{}

func (noLimit) TryAccept() bool            { return true }
func (noLimit) Accept()                    {}
func (noLimit) Stop()                      {}
func (noLimit) QPS() float32               { return 1 }
func (noLimit) Wait(context.Context) error { return nil }

func (slow) Wait(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("too slow")
}

// TestBudgets: each budget allows its burst, and its rate afterwards, whatever the other budgets have used.
func TestBudgets(t *testing.T) {
	t.Parallel()
	const (
		endless = 10_000
		list    = 20 * time.Millisecond
		half    = time.Second / 2
	)
	for reason, tc := range map[string]struct {
		cfg    rest.Config
		stores int
		want   [budgets]int // requests that are allowed at once
		paced  [budgets]time.Duration
	}{
		"defaults": {
			want:  [budgets]int{Stores: 200, Streams: 200, Calls: endless, Events: 200},
			paced: [budgets]time.Duration{Stores: list, Streams: list, Events: 10 * time.Millisecond},
		},
		"QPS bounds calls and Events, not lists": {
			cfg:   rest.Config{QPS: 2, Burst: 3},
			want:  [budgets]int{Stores: 200, Streams: 200, Calls: 3, Events: 3},
			paced: [budgets]time.Duration{Stores: list, Streams: list, Calls: half, Events: half},
		},
		"without a burst": {
			cfg:   rest.Config{QPS: 2},
			want:  [budgets]int{Stores: 200, Streams: 200, Calls: 1, Events: 1},
			paced: [budgets]time.Duration{Stores: list, Streams: list, Calls: half, Events: half},
		},
		"a negative QPS": {
			cfg:   rest.Config{QPS: -1, Burst: 3},
			want:  [budgets]int{Stores: 200, Streams: 200, Calls: endless, Events: 200},
			paced: [budgets]time.Duration{Stores: list, Streams: list, Events: 10 * time.Millisecond},
		},
		"a RateLimiter overrides QPS": {
			cfg: rest.Config{QPS: 2, Burst: 3, RateLimiter: noLimit{}}, stores: 500,
			want:  [budgets]int{Stores: 500, Streams: 200, Calls: endless, Events: 3},
			paced: [budgets]time.Duration{Stores: list, Streams: list, Events: half},
		},
		"a very low QPS": {
			cfg:   rest.Config{QPS: 1e-30, Burst: 1},
			want:  [budgets]int{Stores: 200, Streams: 200, Calls: 1, Events: 1},
			paced: [budgets]time.Duration{Stores: list, Streams: list},
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(&tc.cfg, tc.stores)
				for b := range budgets {
					began, n := time.Now(), 0
					for n < endless {
						ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
						err := l.Wait(ctx, b, false)
						cancel()
						if err != nil {
							break
						}
						n++
					}
					if n != tc.want[b] || time.Since(began) > 0 {
						t.Errorf("budget %d allows %d requests at once, in %v; want %d", b, n, time.Since(began), tc.want[b])
					}
				}
				for b, pace := range tc.paced {
					if pace == 0 {
						continue
					}
					began := time.Now()
					if err := l.Wait(t.Context(), Budget(b), false); err != nil || time.Since(began) > pace {
						t.Errorf("budget %d: %v after %v, want the next request after %v", b, err, time.Since(began), pace)
					}
				}
			})
		})
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := newLimiter(&rest.Config{RateLimiter: slow{}}, 0)
	time.AfterFunc(time.Millisecond, func() { cancel(stop) })
	if err := l.Wait(ctx, Calls, false); !errors.Is(err, stop) {
		t.Errorf("error %v, want the cause of the context", err)
	}
}
