package fair

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestWorkers: work added before Run starts with it, runs beside later work, and ends before Run returns.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers()
		ctx, cancel := context.WithCancel(t.Context())
		began, ended := make(chan int, 3), make(chan int, 3)
		work := func(n int) func(context.Context) {
			return func(ctx context.Context) {
				began <- n
				<-ctx.Done()
				ended <- n
			}
		}
		w.Add(work(1))
		w.Add(work(2))
		returned := make(chan struct{})
		go func() { w.Run(ctx); close(returned) }()
		synctest.Wait()
		w.Add(work(3))
		synctest.Wait()
		if len(began) != 3 {
			t.Errorf("%d of 3 have begun", len(began))
		}
		cancel()
		<-returned
		if len(ended) != 3 {
			t.Errorf("%d of 3 have ended when Run returns", len(ended))
		}
	})
}
