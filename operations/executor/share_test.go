package executor_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// neighbour returns a bench of another namespace that the executors of b serve, too.
func (b *bench) neighbour() *bench { return &bench{b.Neighbour("neighbour")} }

// share returns the value of a metric of the shares of namespaces.
func share(t *testing.T, registry *prometheus.Registry, name, of string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == of {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// TestTenantsOfOneNamespace: the calls of one namespace hang, each for a tenant of its own. They leave half of the
// slots to others, and waiting operations report the reason.
func TestTenantsOfOneNamespace(t *testing.T) {
	b := setup(t)
	victim := b.neighbour()
	open := make(chan struct{})
	hanging := make(chan string, 100)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			hanging <- path
			operationbed.Pause(r, open)
		}
	}
	b.Webhook("hang", nil)
	victim.Webhook("quick", nil)
	registry := prometheus.NewRegistry()
	b.Start(func(o *executor.Options) { o.MaxCalls, o.Registerer = 8, registry })
	request := func(i int) operations.Request {
		return operations.Request{Webhooks: []string{"hang"}, TenantID: fmt.Sprint("t", i), Resource: app(fmt.Sprint(i))}
	}
	for i := range 12 {
		b.Schedule(request(i))
	}
	for range 4 {
		b.Received(hanging)
	}
	says := "waiting for the share of namespace " + b.Namespace + " of calls under way"
	waits := 0
	b.Eventually("the others report why they wait", func() bool {
		waits = 0
		for i := range 12 {
			op, err := b.Scheduler.Get(b.Ctx, request(i).Resource)
			if err != nil {
				t.Fatal(err)
			}
			if v := operations.ViewOf(op); v.Waiting == says {
				waits++
			}
		}
		return waits == 8
	})
	if got := share(t, registry, "fairlead_share_waiting", "places"); got != 8 {
		t.Errorf("%v wait", got)
	}
	for i := range 3 {
		if v := victim.Run(operations.Request{
			Webhooks: []string{"quick"},
			Resource: app(fmt.Sprint(i)),
		}); v.Status != operations.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
	close(open)
	for i := range 12 {
		if _, err := b.Scheduler.Wait(b.Ctx, request(i).Resource, "", nil); err != nil {
			t.Error(err)
		}
	}
}

// writesOf counts the status writes of operations in a namespace, and their bytes.
type writesOf struct{ number, bytes atomic.Int64 }

func (b *bench) counted(w *writesOf) func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+b.Namespace+"/operations/") {
			w.number.Add(1)
			w.bytes.Add(r.ContentLength)
		}
		return next.RoundTrip(r)
	}
}

// TestWritesOfOneNamespace: repeated tries write no more than their namespace's share, in number and in bytes. They
// report that, end when canceled, and do not delay another namespace.
func TestWritesOfOneNamespace(t *testing.T) {
	const n = 6
	tests := map[string]struct {
		reason string
		object any
		budget executor.Budget
		most   func(seconds float64) (number, bytes float64)
	}{
		"Number": {
			reason: "A try that repeats counts as five; the first one, its answer, the end and the finalizer, twice, as one.",
			object: "small", budget: executor.Budget{Writes: 10},
			most: func(s float64) (float64, float64) { return 5*n + (100+10*s)/5, 1e9 },
		},
		"Bytes": {
			reason: "Large objects cost what they have.", object: strings.Repeat("x", 100<<10),
			budget: executor.Budget{WriteBytes: 200 << 10},
			most:   func(s float64) (float64, float64) { return 1e9, (16+s)*200*1024 + 3*n*110*1024 },
		},
		"Values": {
			reason: "Objects of many values cost more.", object: make([]int, 5_000),
			budget: executor.Budget{WriteBytes: 1 << 20},
			most:   func(s float64) (float64, float64) { return 1e9, (16+s)*(1<<20)/20 + 3*n*12*1024 },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			victim := b.neighbour()
			var failed sync.Map
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
				if path == "/busy" {
					failed.Store(r.Header.Get("Idempotency-Key"), true)
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
			b.Webhook("busy", func(s *v1alpha1.WebhookSpec) {
				s.Retry.MaxAttempts, s.Retry.MaxInterval = 100_000, metav1.Duration{Duration: webhook.MinInterval}
				s.Breaker.Failures = 1_000_000
			})
			victim.Webhook("quick", nil)
			var w writesOf
			calls := b.Tapped(b.counted(&w))
			registry := prometheus.NewRegistry()
			b.Start(func(o *executor.Options) { o.Calls, o.Budget, o.Registerer = calls, tc.budget, registry })
			begun := time.Now()
			for i := range n {
				b.Schedule(operations.Request{
					Webhooks: []string{"busy"}, Resource: app(fmt.Sprint(i)), TenantID: fmt.Sprint(i % 2),
					Object: map[string]any{"x": tc.object},
				})
			}
			b.Eventually("waiting", func() bool { return share(t, registry, "fairlead_share_waits_total", "writes") > 2*n })
			says := "waiting for the share of namespace " + b.Namespace + " of writes to the API server"
			b.Eventually("saying so", func() bool {
				for i := range n {
					if op, err := b.Scheduler.Get(b.Ctx, app(fmt.Sprint(i))); err == nil && operations.ViewOf(op).Waiting == says {
						return true
					}
				}
				return false
			})
			if v := victim.Run(operations.Request{Webhooks: []string{"quick"}}); v.Status != operations.Succeeded {
				t.Errorf("outcome of the other namespace %+v", v)
			}
			for i := range n {
				if _, err := b.Scheduler.Cancel(b.Ctx, app(fmt.Sprint(i)), ""); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				if v, err := b.Scheduler.Wait(b.Ctx, app(fmt.Sprint(i)), "", nil); err != nil ||
					v.Reason != v1alpha1.ReasonCanceled {
					t.Errorf("%+v, %v", v, err)
				}
			}
			number, bytes := tc.most(time.Since(begun).Seconds())
			if got := float64(w.number.Load()); got > number {
				t.Errorf("%s %v writes, want at most %v", tc.reason, got, number)
			}
			if got := float64(w.bytes.Load()); got > bytes {
				t.Errorf("%s %v bytes, want at most %v", tc.reason, got, bytes)
			}
		})
	}
}

// TestCallsOfOneNamespace: polls do not exceed the share of their namespace, and do not delay another one.
func TestCallsOfOneNamespace(t *testing.T) {
	b := setup(t)
	victim := b.neighbour()
	var polls atomic.Int64
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		switch {
		case path == "/slow":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodGet:
			polls.Add(1)
			_, _ = w.Write([]byte(`{"status":"IN_PROGRESS"}`))
		}
	}
	b.Webhook("slow", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: webhook.MinInterval}
	})
	victim.Webhook("quick", nil)
	registry := prometheus.NewRegistry()
	begun := time.Now()
	b.Start(func(o *executor.Options) { o.Budget, o.Registerer = executor.Budget{Calls: 5}, registry })
	for i := range 4 {
		b.Schedule(operations.Request{Webhooks: []string{"slow"}, Resource: app(fmt.Sprint(i))})
	}
	b.Eventually("waiting", func() bool { return share(t, registry, "fairlead_share_waits_total", "calls") > 20 })
	if v := victim.Run(operations.Request{Webhooks: []string{"quick"}}); v.Status != operations.Succeeded {
		t.Errorf("outcome of the other namespace %+v", v)
	}
	got, most := polls.Load(), 5*(4+time.Since(begun).Seconds())+1
	if float64(got) > most {
		t.Errorf("%d polls, want at most %v", got, most)
	}
}

// TestPollsThatChangeNothing: polls follow the interval of the Webhook, and are written every five seconds.
func TestPollsThatChangeNothing(t *testing.T) {
	b := setup(t)
	const polls = 60
	many := make(chan string, 1)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch {
		case path == "/slow":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case n < polls:
			_, _ = w.Write([]byte(`{"status":"IN_PROGRESS"}`))
		default:
			select {
			case many <- path:
			default:
			}
			_, _ = w.Write([]byte(`{"status":"SUCCEEDED"}`))
		}
	}
	b.Webhook("slow", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: webhook.MinInterval}
	})
	var w writesOf
	calls := b.Tapped(b.counted(&w))
	b.Start(func(o *executor.Options) { o.Calls = calls })
	begun := time.Now()
	op := b.Schedule(operations.Request{Webhooks: []string{"slow"}})
	b.Received(many)
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
	// Attempt, answer, finalizer, first poll, end, finalizer again, and one write for each five seconds.
	if got, most := w.number.Load(), 6+int64(time.Since(begun)/(5*time.Second)); got > most {
		t.Errorf("%d writes, want at most %d", got, most)
	}
}

// TestConstantEdits: constant edits of a Webhook in one namespace do not delay changed Webhooks of another
// namespace.
func TestConstantEdits(t *testing.T) {
	b := setup(t)
	victim := b.neighbour()
	b.Webhook("edited", nil)
	b.Start(nil)
	for i := range 50 {
		b.Schedule(operations.Request{Webhooks: []string{"missing"}, Resource: app(fmt.Sprint(i))})
	}
	ctx, cancel := context.WithCancel(b.Ctx)
	var editing sync.WaitGroup
	editing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			b.Edit("edited", fmt.Sprintf(`{"spec":{"request":{"body":%q}}}`, fmt.Sprint(i)))
		}
	})
	defer editing.Wait()
	defer cancel()
	late := victim.Schedule(operations.Request{Webhooks: []string{"late"}})
	victim.says("waiting for webhook late, which does not exist in namespace " + victim.Namespace)
	victim.Webhook("late", nil)
	if v := operations.ViewOf(victim.End(late)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
	b.Webhook("missing", nil)
	for i := range 50 {
		if _, err := b.Scheduler.Wait(b.Ctx, app(fmt.Sprint(i)), "", nil); err != nil {
			t.Error(err)
		}
	}
}
