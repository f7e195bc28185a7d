package call

import (
	"math"
	"sync"
	"time"
)

// Budget bounds the retries towards one server: a token bucket from which every retry takes one. It fills by PerSecond,
// and by Ratio for every call begun, so that a busy client may retry in proportion to its traffic. A retry that finds
// it empty waits for its token; a call whose wait would be longer than MaxWait fails with ErrBudget instead. The zero
// value works; a Budget must not be copied after first use.
//
// The shape is that of the retry budgets of Finagle and Linkerd, with a queue in front.
type Budget struct {
	PerSecond float64       // 10
	Ratio     float64       // 0.2; negative: none
	Burst     float64       // 100: the size of the bucket, full at the start
	MaxWait   time.Duration // 30 s

	mu     sync.Mutex
	tokens float64 // negative: owed to those who wait
	at     time.Time
}

func (b *Budget) params() (rate, ratio, burst float64, wait time.Duration) {
	rate, ratio, burst = b.PerSecond, b.Ratio, b.Burst
	if !(rate > 0) { // or no number
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

// fill brings the bucket up to date; b.mu is held.
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

// deposit counts a call begun.
func (b *Budget) deposit(now time.Time) {
	rate, ratio, burst, _ := b.params()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now, rate, burst)
	b.tokens = min(burst, b.tokens+ratio)
}

// reserve takes one token for a retry that is due after a delay, and returns the delay that it must really have; false,
// and nothing taken, when that would be too long.
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
	if seconds > maxWait.Seconds() { // before it becomes a duration, which a very slow bucket would run over
		return 0, false
	}
	b.tokens = left
	return max(delay, time.Duration(seconds*float64(time.Second))), true
}

// giveBack returns the token of a retry that is not made after all.
func (b *Budget) giveBack() {
	_, _, burst, _ := b.params()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(burst, b.tokens+1)
}
