package reconcile

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// TestWorkers: a worker performs reconciliations until there are none. A worker whose goroutine ends early is replaced.
func TestWorkers(t *testing.T) {
	t.Parallel()
	var handed, performed, replaced atomic.Int32
	var w *workers
	w = &workers{
		next: func(id goroutine.ID) (context.Context, *reconciliation) {
			if id != goroutine.Current() || handed.Add(1) > 10 {
				return nil, nil
			}
			return t.Context(), &reconciliation{}
		},
		perform: func(context.Context, *reconciliation) {
			if performed.Add(1) == 5 {
				runtime.Goexit()
			}
		},
		replace: func() { replaced.Add(1); w.start() },
	}
	w.start()
	w.start()
	w.wait()
	if n, m := performed.Load(), replaced.Load(); n != 10 || m != 1 {
		t.Errorf("%d of 10 were performed, %d workers replaced", n, m)
	}
}
