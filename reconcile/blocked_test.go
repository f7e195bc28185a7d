package reconcile_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// TestBlockedWorkers: a controller whose workers are all blocked for minutes is reported as blocked. Why shows the
// stack of the worker for the object in progress and for a waiting object.
func TestBlockedWorkers(t *testing.T) {
	bubble(t, func(b *bench) {
		release := make(chan struct{})
		c := reconcile.New[gateway](b.host, "gateways", reconcile.Func[gateway](
			func(context.Context, *gateway) (reconcile.Result, error) {
				<-release
				return reconcile.Done, nil
			}), reconcile.Workers(1))
		b.put("web")
		b.start()
		b.put("other")
		b.settle()
		if d := c.Describe(0); d.BlockedSince != nil {
			t.Errorf("blocked after a few seconds: %v", d.BlockedSince)
		}
		time.Sleep(7 * time.Minute)
		d := c.Describe(0)
		if d.BlockedSince == nil || time.Since(*d.BlockedSince) < 7*time.Minute {
			t.Errorf("blocked since %v", d.BlockedSince)
		}
		w := httptest.NewRecorder()
		reconcile.DebugHandler(func() []*reconcile.Controller { return []*reconcile.Controller{c} }).ServeHTTP(w,
			httptest.NewRequestWithContext(t.Context(), "GET", "/debug/controllers", nil))
		if !strings.Contains(w.Body.String(), "blocked: all workers have been at the same objects since") {
			t.Errorf("the page does not say so:\n%s", w.Body)
		}
		for name, want := range map[string]why.Type{"web": why.Parked, "other": why.QueuedBehind} {
			got := c.Why(t.Context(), why.Object{Group: "test.fairlead.io", Kind: "Gateway", Namespace: "a", Name: name})
			if len(got) == 0 || got[0].Type != want || !strings.Contains(got[0].Evidence["stack"], "TestBlockedWorkers") {
				t.Errorf("%s: %+v", name, got)
			}
		}
		close(release)
		synctest.Wait()
	})
}
