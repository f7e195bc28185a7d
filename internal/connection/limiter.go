package connection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Budget is a class of requests. Each has a token bucket of its own, so that no class delays another one.
type Budget int

// The budgets.
const (
	// Stores is for the lists and watches of stores: 50 per second after a burst of 200.
	Stores Budget = iota
	// Streams is for lists and watches on behalf of callers of the program, with the numbers of Stores.
	Streams
	// Calls is for reads and writes. It has no bound unless the rest.Config has a RateLimiter or a positive QPS.
	Calls
	// Events is for Kubernetes Events: 100 per second after a burst of 200, or QPS and Burst of the rest.Config.
	Events
	budgets
)

// Limiter bounds the requests of a Conn. A nil Limiter has no bound. It is safe for concurrent use.
type Limiter struct {
	buckets [budgets]bucket
	calls   flowcontrol.RateLimiter // instead of the bucket of Calls; may be nil
}

func newLimiter(cfg *rest.Config, storesBurst int) *Limiter {
	l := &Limiter{calls: cfg.RateLimiter}
	if storesBurst <= 0 {
		storesBurst = 200
	}
	l.buckets[Stores].set(50, storesBurst)
	l.buckets[Streams].set(50, 200)
	l.buckets[Events].set(100, 200)
	if cfg.QPS > 0 {
		l.buckets[Calls].set(cfg.QPS, max(cfg.Burst, 1))
		l.buckets[Events].set(cfg.QPS, max(cfg.Burst, 1))
	}
	return l
}

// Wait blocks until a request may be made, or returns the cause of ctx. Urgent requests go before others of the budget:
// a watch is cheap and saves a list. If the deadline of ctx is too early, Wait returns an error at once that matches
// [context.DeadlineExceeded].
func (l *Limiter) Wait(ctx context.Context, b Budget, urgent bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case l == nil:
		return nil
	case b != Calls || l.calls == nil:
		return l.buckets[b].wait(ctx, urgent)
	}
	if err := l.calls.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// bucket is a token bucket. The zero value has no bound.
type bucket struct {
	interval time.Duration // time to refill one token; 0: no bound
	burst    int

	mu      sync.Mutex
	tokens  int
	filled  time.Time // time of the last refill
	urgent  []chan struct{}
	patient []chan struct{}
	timer   *time.Timer // runs while a request waits
}

// set makes the bucket allow qps requests per second on average and burst at once.
func (b *bucket) set(qps float32, burst int) {
	b.interval, b.burst, b.tokens = time.Duration(min(1e9/float64(qps), 1e16)), burst, burst
}

func (b *bucket) wait(ctx context.Context, urgent bool) error {
	if b.interval <= 0 {
		return nil
	}
	b.mu.Lock()
	b.refill(time.Now())
	if b.tokens > 0 && len(b.urgent) == 0 && (urgent || len(b.patient) == 0) {
		b.tokens--
		b.mu.Unlock()
		return nil
	}
	queue, ahead := &b.urgent, len(b.urgent)
	if !urgent {
		queue, ahead = &b.patient, ahead+len(b.patient)
	}
	due := b.filled.Add(b.interval * time.Duration(ahead+1))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(due) {
		b.mu.Unlock()
		return fmt.Errorf("the rate limit allows the request too late: %w", context.DeadlineExceeded)
	}
	turn := make(chan struct{})
	*queue = append(*queue, turn)
	b.serve()
	b.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		b.leave(turn)
		return context.Cause(ctx)
	}
}

func (b *bucket) refill(now time.Time) {
	if b.filled.IsZero() {
		b.filled = now
	}
	n := int(now.Sub(b.filled) / b.interval)
	b.filled = b.filled.Add(time.Duration(n) * b.interval)
	if b.tokens += n; b.tokens >= b.burst {
		b.tokens, b.filled = b.burst, now
	}
}

// serve gives tokens to waiters and sets the timer for the next token. It must be called with mu held.
func (b *bucket) serve() {
	b.refill(time.Now())
	for b.tokens > 0 && len(b.urgent)+len(b.patient) > 0 {
		queue := &b.urgent
		if len(b.urgent) == 0 {
			queue = &b.patient
		}
		close((*queue)[0])
		*queue = (*queue)[1:]
		b.tokens--
	}
	if len(b.urgent)+len(b.patient) == 0 {
		if b.timer != nil {
			b.timer.Stop()
			b.timer = nil
		}
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(b.filled.Add(b.interval)), func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.timer = nil
			b.serve()
		})
	}
}

// leave removes a waiter from its queue, or returns the token that it has received in the meantime.
func (b *bucket) leave(turn chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&b.urgent, &b.patient} {
		for i, t := range *queue {
			if t == turn {
				*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
				b.serve()
				return
			}
		}
	}
	b.tokens++
	b.serve()
}
