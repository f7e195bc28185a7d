package executor_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestNoPlaceWhileBehind changes an operation just before its first attempt is recorded, so that it falls behind
// another one. Its call waits for the only slot, and leaves that slot to the operation ahead.
func TestNoPlaceWhileBehind(t *testing.T) {
	b := setup(t)
	for _, name := range []string{"one", "two", "other"} {
		b.Webhook(name, nil)
	}
	lock := []operations.Resource{{Type: "db", ID: "7"}}
	var done atomic.Bool
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		name := v1alpha1.OperationName(shop.Type, shop.ID)
		if strings.HasSuffix(r.URL.Path, "/operations/"+name+"/status") && done.CompareAndSwap(false, true) {
			other := operations.Resource{Type: "app", ID: "other"}
			b.Schedule(operations.Request{Resource: other, Webhooks: []string{"other"}, Lock: lock})
			b.Eventually("behind the first one", func() bool {
				op, err := b.Scheduler.Get(b.Ctx, other)
				return err == nil && operations.ViewOf(op).Waiting != ""
			})
			b.Touch(name)
		}
		return next.RoundTrip(r)
	})
	b.Start(func(o *executor.Options) { o.Calls, o.MaxCalls = calls, 1 })
	op := b.Schedule(operations.Request{Webhooks: []string{"one", "two"}, Lock: lock, Execution: operations.Parallel})
	if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", got.Status)
	}
}
