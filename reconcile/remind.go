package reconcile

import (
	"sync"
	"time"
)

// remind calls fn after d, then after twice the time, and so on, until stop is called. stop waits for a running call.
// fn receives the time since remind was called.
func remind(d time.Duration, fn func(waited time.Duration)) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	ended, waited := false, d
	again := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		fn(waited)
		timer.Reset(waited)
		waited *= 2
	}
	mu.Lock()
	timer = time.AfterFunc(d, again)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}
