package console

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBulkRate: all readers together change no more than 50 operations a second.
func TestBulkRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &pace{}
		begun := time.Now()
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for range 100 {
					if err := b.wait(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		readers.Wait()
		if took := time.Since(begun); took != 399*bulkEvery || bulkEvery < time.Second/50 {
			t.Errorf("400 operations took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.wait(ctx) == nil {
			t.Error("it waits for a reader who has left")
		}
	})
}
