package executor_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestWrites checks bar P2: an operation takes two requests, its creation included. It takes three if its first call
// must be recorded.
func TestWrites(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	requests := make(map[string][]string) // by operation; the empty name has all others
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		_, path, _ := strings.Cut(r.URL.Path, "/operations")
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		mu.Lock()
		requests[name] = append(requests[name], r.Method+" "+path)
		mu.Unlock()
		return next.RoundTrip(r)
	})
	scheduler, err := operations.NewScheduler(operations.Options{Config: b.Config, Calls: calls, Namespace: b.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	b.Webhook("cleanup", nil)
	b.Start(func(o *executor.Options) { o.Calls = calls })
	b.Eventually("status of the webhook written", func() bool { return b.Hook("cleanup").Status.ObservedGeneration > 0 })
	b.proves()
	b.Eventually("status of the other webhook written",
		func() bool { return b.Hook("peek").Status.ObservedGeneration > 0 })
	tests := []struct {
		kind   string
		writes int // by the executor
		change func(*operations.Request)
	}{
		{"ordinary", 1, func(*operations.Request) {}},
		{"parallel", 2, func(r *operations.Request) { r.Execution = operations.Parallel }},
		// The last case, since it delays others until its end is known.
		{"locking", 2, func(r *operations.Request) { r.Lock = []operations.Resource{{Type: "db", ID: "7"}} }},
	}
	for _, tc := range tests {
		mu.Lock()
		clear(requests)
		mu.Unlock()
		const n = 20
		want := 0
		for i := range n {
			request := operations.Request{
				Type: operations.Delete, Webhooks: []string{"cleanup"},
				Resource: operations.Resource{Type: tc.kind, ID: fmt.Sprint(i)},
			}
			tc.change(&request)
			op, err := scheduler.Schedule(b.Ctx, request)
			if err != nil {
				t.Fatal(err)
			}
			ended := b.End(op) // over other connections
			if got := b.Receiver.Counts(op.EffectiveID())["cleanup"]; got != 1 {
				t.Errorf("%s: %d calls", tc.kind, got)
			}
			writes := tc.writes
			mu.Lock()
			got := requests[op.Name]
			mu.Unlock()
			if call := ended.Status.Webhooks[0]; len(got) == 2 &&
				call.FinishedAt.Sub(call.StartedAt.Time) >= 500*time.Millisecond {
				writes = 2 // the machine was slow, so the call was recorded
			}
			if want += 1 + writes; len(got) != writes {
				t.Errorf("%s: %d requests of the executor, not %d: %q", tc.kind, len(got), writes, got)
			}
		}
		mu.Lock()
		all := 0
		for _, some := range requests {
			all += len(some)
		}
		if all != want {
			t.Errorf("%s: %d requests for %d operations, not %d: %q", tc.kind, all, n, want, requests[""])
		}
		mu.Unlock()
	}
}

func TestMetrics(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- ""
		operationbed.Pause(r, answer)
	}
	b.Webhook("cleanup", nil)
	registry := prometheus.NewPedanticRegistry()
	now := atomic.Int64{}
	b.Start(func(o *executor.Options) {
		o.Registerer = registry
		o.Now = func() time.Time { return time.Now().Add(time.Duration(now.Load())) }
	})
	op := b.Schedule(operations.Request{Webhooks: []string{"cleanup"}, Category: "unregister"})
	b.Received(asked)
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
	expect("while it runs", map[string]float64{
		"fairlead_operations_in_progress": 1, "fairlead_operations_near_timeout": 0, "fairlead_operations_started_total": 1,
	})
	now.Store(int64(v1alpha1.DefaultTimeout / 100 * 95))
	expect("near its timeout", map[string]float64{"fairlead_operations_near_timeout": 1})
	now.Store(0)
	close(answer)
	b.End(op)
	atTheEnd := map[string]float64{
		"fairlead_operations_in_progress": 0, "fairlead_operations_near_timeout": 0, "fairlead_operations_finished_total": 1,
		"fairlead_operation_duration_seconds": 1, "fairlead_webhook_tries_total": 1, "fairlead_webhook_calls_queued": 0,
	}
	b.Eventually("counted", func() bool { // the status is written before the metric counts it
		for name, v := range atTheEnd {
			if value(name) != v {
				return false
			}
		}
		return true
	})
}
