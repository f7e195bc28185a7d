package executor_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/why"
)

// TestStuckOperationsAreCounted: the metric counts the stuck operations by the first cause that why gives. It follows
// them into and out of trouble.
func TestStuckOperationsAreCounted(t *testing.T) {
	b := setup(t)
	asked, open := b.gate("/hold")
	defer open()
	hold := b.Receiver.Answer
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch path {
		case "/broken", "/dead":
			w.WriteHeader(http.StatusInternalServerError)
		case "/later":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/poll":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		default:
			hold(w, r, path, n)
		}
	}
	b.Webhook("hold", nil)
	b.Webhook("next", nil)
	b.Webhook("later", nil)
	b.Webhook("poll", func(s *v1alpha1.WebhookSpec) { s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, hours(1) })
	b.Webhook("broken", func(s *v1alpha1.WebhookSpec) {
		s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300),
			hours(300)
	})
	b.Webhook("dead", func(s *v1alpha1.WebhookSpec) {
		s.Retry.MaxAttempts, s.Breaker = 1, v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hours(1)}
	})
	registry := prometheus.NewRegistry()
	r := b.Prepare(b.Config, func(o *executor.Options) { o.Registerer = registry })
	r.Begin()
	a := asking{b, r.Executor}

	b.Schedule(operations.Request{
		Resource: app("holder"), Webhooks: []string{"hold"},
		Lock: []operations.Resource{database},
	})
	b.Received(asked)
	b.Schedule(operations.Request{
		Resource: app("behind"), Webhooks: []string{"next"},
		Lock: []operations.Resource{database},
	})
	for i := range 3 {
		b.Schedule(operations.Request{Resource: app(fmt.Sprint("missing", i)), Webhooks: []string{"nowhere"}})
	}
	b.End(b.Schedule(operations.Request{Resource: app("dead0"), Webhooks: []string{"dead"}}))
	for _, hook := range []string{"broken", "later", "poll", "dead"} {
		b.Schedule(operations.Request{Resource: app(hook), Webhooks: []string{hook}})
	}
	for r, want := range map[operations.Resource]why.Type{
		app("broken"): why.BackOff, app("dead"): why.CircuitOpen, app("behind"): why.LockHeld, app("later"): why.RetryAfter,
	} {
		a.awaitFirst(r, want)
	}
	a.awaitEvidence(app("poll"), "waitsFor", "poll")
	counts := func(want map[string]float64) {
		t.Helper()
		var got map[string]float64
		b.Eventually(fmt.Sprint("stuck: ", want), func() bool {
			got = stuckCounts(t, registry)
			return cmp.Equal(want, got)
		})
	}
	counts(map[string]float64{"WebhookMissing": 3, "BackOff": 1, "CircuitOpen": 1, "LockHeld": 1})
	if got := len(r.Stuck()); got != 6 {
		t.Errorf("%d operations are stuck, want 6", got)
	}

	b.Webhook("nowhere", func(s *v1alpha1.WebhookSpec) { s.Request.URL = b.Receiver.URL + "/next" })
	counts(map[string]float64{"BackOff": 1, "CircuitOpen": 1, "LockHeld": 1})
	open()
	counts(map[string]float64{"BackOff": 1, "CircuitOpen": 1})
	if _, err := b.Scheduler.Cancel(b.Ctx, app("broken"), ""); err != nil {
		t.Fatal(err)
	}
	b.Delete(nameOf(app("dead")))
	counts(map[string]float64{})
}

// stuckCounts returns the nonzero values of the metric, by cause.
func stuckCounts(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetGauge().GetValue(); f.GetName() == "fairlead_operations_stuck" && n != 0 {
				counts[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return counts
}
