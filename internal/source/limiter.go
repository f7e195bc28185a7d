package source

import (
	"context"
	"sync"
	"time"
)

// Limiter is a token bucket that sources share. Urgent requests (watches) go before lists and probes, since a watch is
// cheap and saves a list. It is safe for concurrent use.
type Limiter struct {
	interval time.Duration // time to refill one token
	burst    int

	mu      sync.Mutex
	tokens  int
	filled  time.Time // time of the last refill
	urgent  []chan struct{}
	patient []chan struct{}
	timer   *time.Timer // runs while a request waits
}

// Defaults of a Limiter.
const (
	DefaultQPS   = 50
	DefaultBurst = 200
)

// NewLimiter returns a Limiter that allows qps requests per second on average and burst at once. Values of 0 or less
// select the defaults.
func NewLimiter(qps float64, burst int) *Limiter {
	if qps <= 0 {
		qps = DefaultQPS
	}
	if burst <= 0 {
		burst = DefaultBurst
	}
	return &Limiter{interval: time.Duration(float64(time.Second) / qps), burst: burst, tokens: burst}
}

// Wait blocks until a request may be made, or returns the cause of ctx. Urgent requests go before others.
func (l *Limiter) Wait(ctx context.Context, urgent bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	l.refill(time.Now())
	if l.tokens > 0 && len(l.urgent) == 0 && (urgent || len(l.patient) == 0) {
		l.tokens--
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if urgent {
		l.urgent = append(l.urgent, turn)
	} else {
		l.patient = append(l.patient, turn)
	}
	l.serve()
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		l.leave(turn)
		return context.Cause(ctx)
	}
}

func (l *Limiter) refill(now time.Time) {
	if l.filled.IsZero() {
		l.filled = now
	}
	n := int(now.Sub(l.filled) / l.interval)
	l.filled = l.filled.Add(time.Duration(n) * l.interval)
	if l.tokens += n; l.tokens >= l.burst {
		l.tokens, l.filled = l.burst, now
	}
}

// serve gives tokens to waiters and sets the timer for the next token. It must be called with mu held.
func (l *Limiter) serve() {
	l.refill(time.Now())
	for l.tokens > 0 && len(l.urgent)+len(l.patient) > 0 {
		queue := &l.urgent
		if len(l.urgent) == 0 {
			queue = &l.patient
		}
		close((*queue)[0])
		*queue = (*queue)[1:]
		l.tokens--
	}
	if len(l.urgent)+len(l.patient) == 0 {
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil
		}
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(l.filled.Add(l.interval)), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.timer = nil
			l.serve()
		})
	}
}

// leave removes a waiter from its queue, or returns the token that it has received in the meantime.
func (l *Limiter) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&l.urgent, &l.patient} {
		for i, t := range *queue {
			if t == turn {
				*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
				l.serve()
				return
			}
		}
	}
	l.tokens++
	l.serve()
}
