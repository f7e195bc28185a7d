package call

import (
	"math"
	"sync"
	"time"
)

// Budget bounds the retries towards one server. It is a token bucket; every retry takes one token. It gains PerSecond
// tokens per second and Ratio tokens per call, so a busy client may retry in proportion to its traffic. If the bucket
// is empty, a retry waits for its token. If that wait exceeded MaxWait, the call fails with ErrBudget instead. The zero
// value is ready to use. A Budget must not be copied after first use.
//
// The design is that of the retry budgets of Finagle and Linkerd, with a queue in front.
type Budget struct {
	PerSecond float64       // 10 by default
	Ratio     float64       // 0.2 by default; negative: none
	Burst     float64       // size of the bucket, full at the start; 100 by default
	MaxWait   time.Duration // 30 s by default

	mu     sync.Mutex
	tokens float64 // negative: reserved by waiting retries
	at     time.Time
}

func (b *Budget) params() (rate, ratio, burst float64, wait time.Duration) {
	rate, ratio, burst = b.PerSecond, b.Ratio, b.Burst
	if !(rate > 0) { // or NaN
		rate = 10
	}
	if ratio == 0 || math.IsNaN(ratio) {
		ratio = 0.2
	}
	if !(burst > 0) {
		burst = 100
	}
	return rate, max(ratio, 0), burst, orDefault(b.MaxWait, 30*time.Second)
}

// fill adds the tokens for the elapsed time; the caller holds b.mu.
func (b *Budget) fill(now time.Time, rate, burst float64) {
	if b.at.IsZero() {
		b.tokens = burst
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(burst, b.tokens+passed.Seconds()*rate)
	} else {
		return
	}
	b.at = now
}

// deposit adds the tokens for one call.
func (b *Budget) deposit(now time.Time) {
	rate, ratio, burst, _ := b.params()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now, rate, burst)
	b.tokens = min(burst, b.tokens+ratio)
}

// reserve takes one token for a retry that is due after delay, and returns the necessary delay. If that would exceed
// MaxWait, reserve takes no token and returns false.
func (b *Budget) reserve(now time.Time, delay time.Duration) (time.Duration, bool) {
	rate, _, burst, maxWait := b.params()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now, rate, burst)
	left := b.tokens - 1
	if left >= 0 {
		b.tokens = left
		return delay, true
	}
	seconds := -left / rate
	if seconds > maxWait.Seconds() { // compare as float: a very slow rate would overflow a Duration
		return 0, false
	}
	b.tokens = left
	return max(delay, time.Duration(seconds*float64(time.Second))), true
}

// giveBack returns the token of a retry that is not made.
func (b *Budget) giveBack() {
	_, _, burst, _ := b.params()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(burst, b.tokens+1)
}
