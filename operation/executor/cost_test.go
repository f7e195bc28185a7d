package executor_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
)

// TestWrites is bar P2.
func TestWrites(t *testing.T) {
	b := setup(t)
	var requests atomic.Int64
	var all atomic.Value
	all.Store("")
	calls := b.tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		requests.Add(1)
		all.Store(all.Load().(string) + "\n" + r.Method + " " + r.URL.Path)
		return next.RoundTrip(r)
	})
	scheduler, err := operation.NewScheduler(operation.Options{Config: b.config, Calls: calls, Namespace: b.namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	b.webhook("cleanup", nil)
	b.start(func(o *executor.Options) { o.Calls = calls })
	b.eventually("status of the webhook written", func() bool { return b.hook("cleanup").Status.ObservedGeneration > 0 })
	const n = 20
	requests.Store(0)
	all.Store("")
	for i := range n {
		request := operation.Request{
			Type: operation.Delete, Webhooks: []string{"cleanup"},
			Resource: operation.Resource{Type: "app", ID: fmt.Sprint(i)},
		}
		if i%2 == 1 { // a lock that nobody holds costs nothing
			request.Lock = []operation.Resource{{Type: "db", ID: "7"}}
		}
		op, err := scheduler.Schedule(b.ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		b.end(op) // reads through other connections
		if got := b.receiver.counts(op.EffectiveID())["cleanup"]; got != 1 {
			t.Errorf("%d calls", got)
		}
	}
	if got := requests.Load(); got > 3*n {
		t.Errorf("%d requests for %d operations, more than 3 each:%s", got, n, all.Load())
	}
}

func TestMetrics(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { asked <- ""; pause(r, answer) }
	b.webhook("cleanup", nil)
	registry := prometheus.NewPedanticRegistry()
	now := atomic.Int64{}
	b.start(func(o *executor.Options) {
		o.Registerer = registry
		o.Now = func() time.Time { return time.Now().Add(time.Duration(now.Load())) }
	})
	op := b.schedule(operation.Request{Webhooks: []string{"cleanup"}, Category: "unregister"})
	b.received(asked)
	value := func(name string) float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				m := f.GetMetric()[0]
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return -1
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		for name, v := range want {
			if got := value(name); got != v {
				t.Errorf("%s: %s is %v, want %v", when, name, got, v)
			}
		}
	}
	expect("while it runs", map[string]float64{"fairlead_operations_in_progress": 1, "fairlead_operations_near_timeout": 0, "fairlead_operations_started_total": 1})
	now.Store(int64(v1alpha1.DefaultTimeout / 100 * 95))
	expect("near its timeout", map[string]float64{"fairlead_operations_near_timeout": 1})
	now.Store(0)
	close(answer)
	b.end(op)
	b.eventually("counted", func() bool { return value("fairlead_operations_in_progress") == 0 })
	expect("at the end", map[string]float64{
		"fairlead_operations_near_timeout": 0, "fairlead_operations_finished_total": 1,
		"fairlead_operation_duration_seconds": 1, "fairlead_webhook_tries_total": 1, "fairlead_webhook_calls_queued": 0,
	})
}
