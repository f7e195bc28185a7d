package flow

import (
	"context"
	"sync"
	"time"
)

// Timeout ends an await with an error that matches ErrTimeout when d has passed. The other conditions are checked live
// one last time before that.
func Timeout(d time.Duration) Wait { return timeout(d) }

type timeout time.Duration

func (timeout) Watch(Waker) func()                        { return nil }
func (timeout) Check(context.Context, bool) (bool, error) { return false, nil }

// Until holds from t on.
func Until(t time.Time) Wait { return until(t) }

type until time.Time

func (until) Watch(Waker) func()                        { return nil }
func (until) Check(context.Context, bool) (bool, error) { return false, nil }

// Func is a condition without events. The engine calls check once, then every interval, and when another wait of the
// same await wakes. If interval is zero or less, there is no periodic call. Without another wait beside it, such a Func
// fails the step with an error that matches ErrInvalid. So does a nil check. A check that sends requests with a client
// of another library should do so in [Blocking], or it holds a worker meanwhile.
func Func(check func(ctx context.Context) (bool, error), interval time.Duration) Wait {
	return polled{check, interval}
}

type polled struct {
	check    func(context.Context) (bool, error)
	interval time.Duration
}

func (polled) Watch(Waker) func()                                { return nil }
func (p polled) Check(ctx context.Context, _ bool) (bool, error) { return p.check(ctx) }
func (p polled) Backstop() time.Duration                         { return p.interval }

// Signal is a condition in memory. It is false until Set, then true until Clear. The zero value is ready for use. A
// Signal is safe for concurrent use and must not be copied.
type Signal struct {
	mu     sync.Mutex
	set    bool
	wakers map[Waker]struct{}
}

// Set makes the signal true and wakes the fibers that wait for it.
func (s *Signal) Set() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = true
	for w := range s.wakers {
		w.Wake()
	}
}

// Clear makes the signal false.
func (s *Signal) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = false
}

// isSet reports whether the signal is true.
func (s *Signal) isSet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set
}

// Watch implements Wait.
func (s *Signal) Watch(w Waker) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakers == nil {
		s.wakers = map[Waker]struct{}{}
	}
	s.wakers[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakers, w)
	}
}

// Check implements Wait.
func (s *Signal) Check(context.Context, bool) (bool, error) { return s.isSet(), nil }

// Backstop implements Backstopped. It disables live checks, because a Signal misses no event.
func (s *Signal) Backstop() time.Duration { return 0 }
