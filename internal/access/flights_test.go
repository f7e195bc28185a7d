package access

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFlights: three callers share one request, which replaces that of an earlier caller who leaves.
func TestFlights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f flights[string, int]
		canceled, leave := context.WithCancel(t.Context())
		asked := 0
		find := func(ctx context.Context) func() (int, error) {
			return func() (int, error) {
				asked++
				select {
				case <-time.After(time.Minute):
					return asked, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
		}
		go func() { _, _ = f.do(canceled, "k", find(canceled)) }() // this caller leaves
		synctest.Wait()
		results := make(chan int, 3)
		for range 3 {
			go func() {
				v, err := f.do(t.Context(), "k", find(t.Context()))
				if err != nil {
					t.Error(err)
				}
				results <- v
			}()
		}
		synctest.Wait()
		leave()
		for range 3 {
			if v := <-results; v != 2 {
				t.Errorf("asked %d times", v)
			}
		}
	})
}
