package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/reconcile"
)

// The bubble stops the host while the reconciler still works, and waits for it.
func TestStopWhileReconciling(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, _ int, _ *gateway) (reconcile.Result, error) {
			<-ctx.Done()
			<-time.After(time.Second) // it is slow to stop
			return reconcile.Retry(context.Cause(ctx))
		})
		b.put("web")
		b.start()
		b.wantCalls(1, "it is at work")
	})
}
