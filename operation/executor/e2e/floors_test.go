package e2e_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/install"
	"github.com/fairlead-io/fairlead/webhook"
)

// TestStoredBeforeTheFloors makes Webhooks and Operations under the custom resources from before the floors and caps,
// and then brings the present ones: what is stored still has its status written, is retried, cancelled, finalized,
// replaced and ended, no faster than at the floor.
func TestStoredBeforeTheFloors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	config := clustertest.Start(t, cluster.Options{}).Config()
	config.QPS = -1
	clustertest.InstallCRDs(t, config, clustertest.CRDsIn(os.DirFS("testdata/crds-before-floors")))
	b := operationbed.OnFor(ctx, t, config, clustertest.Namespace(t, config))
	const tries = 10
	var mu sync.Mutex
	came, again := map[string][]time.Time{}, make(chan string, 100)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		mu.Lock()
		came[path] = append(came[path], time.Now())
		mu.Unlock()
		switch {
		case path == "/poll":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case path == "/jobs/1":
			_, _ = w.Write([]byte(`{"status":"IN_PROGRESS"}`))
		case path != "/some" || n < tries:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if n == 3 {
			select {
			case again <- path:
			default:
			}
		}
	}
	beyond := func(s *v1alpha1.WebhookSpec) {
		tiny, huge := metav1.Duration{Duration: time.Nanosecond}, metav1.Duration{Duration: 9000 * time.Hour}
		s.Retry = v1alpha1.WebhookRetry{InitialInterval: tiny, MaxInterval: tiny, MaxAttempts: 1<<31 - 1}
		s.Poll.Interval, s.RequestTimeout, s.Timeout = tiny, huge, huge
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1 << 30, OpenFor: huge}
	}
	for _, name := range []string{"some", "never", "poll"} {
		b.Webhook(name, func(s *v1alpha1.WebhookSpec) {
			beyond(s)
			if name == "poll" {
				s.Mode = v1alpha1.ModeAsync
			}
		})
	}
	b.Webhook("long", func(s *v1alpha1.WebhookSpec) {
		beyond(s)
		s.Response.Success = "response.status == 200" + strings.Repeat(" || false", 600)
	})
	begin := func(id string) *v1alpha1.Operation {
		return b.Schedule(operation.Request{Webhooks: []string{id}, Resource: operationbed.App(id)})
	}
	stop := b.Start(nil)
	never, poll := begin("never"), begin("poll")
	for seen := map[string]bool{}; !seen["/never"] || !seen["/jobs/1"]; {
		seen[b.Received(again)] = true
	}
	stop()
	before := map[string]int{}
	mu.Lock()
	for path, times := range came {
		before[path] = len(times)
	}
	mu.Unlock()
	if err := install.CRDs(ctx, b.Calls); err != nil {
		t.Fatal(err)
	}
	b.Eventually("refused by the API server", func() bool {
		w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: b.Namespace}}
		w.Spec.Request.URL = b.Receiver.URL
		beyond(&w.Spec)
		_, err := call.Do(ctx, b.Calls, call.Request{
			Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: b.Namespace,
			Object: w, Name: "new",
			Query: map[string][]string{"dryRun": {"All"}},
		}, call.Policy{})
		return apierrors.IsInvalid(err)
	})
	b.Start(nil)
	for name, want := range map[string]metav1.ConditionStatus{
		"some": metav1.ConditionTrue, "never": metav1.ConditionTrue, "long": metav1.ConditionFalse,
	} {
		b.Eventually("status of "+name, func() bool {
			valid := meta.FindStatusCondition(b.Hook(name).Status.Conditions, v1alpha1.ConditionValid)
			return valid != nil && valid.Status == want
		})
	}
	if v := operation.ViewOf(b.End(begin("some"))); v.Status != operation.Succeeded {
		t.Errorf("tried again and again: %+v", v)
	}
	if v := operation.ViewOf(b.End(begin("long"))); v.Reason != v1alpha1.ReasonInvalid ||
		!strings.Contains(v.Error, "spec.response.success") {
		t.Errorf("with an expression that is too long: %+v", v)
	}
	if _, err := b.Scheduler.Cancel(ctx, operationbed.App("never"), ""); err != nil {
		t.Fatal(err)
	}
	if v := operation.ViewOf(b.End(never)); v.Reason != v1alpha1.ReasonCanceled {
		t.Errorf("cancelled: %+v", v)
	}
	b.Delete(poll.Name)
	b.Eventually("finalized", func() bool {
		_, err := b.Scheduler.Get(ctx, operationbed.App("poll"))
		return err != nil
	})
	mu.Lock()
	defer mu.Unlock()
	for path, times := range came {
		times = times[before[path]:]
		if n := len(times) - 1; n > 3 { // half, since the first one may have come late
			if took, least := times[n].Sub(times[0]), time.Duration(n)*webhook.MinInterval/2; took < least {
				t.Errorf("%s came %d times within %v", path, n, took)
			}
		}
	}
}
