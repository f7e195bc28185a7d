package executor_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// says waits until the view of the usual operation gives this reason to wait.
func (b *bench) says(want string) {
	b.T.Helper()
	b.Eventually(fmt.Sprintf("saying %q", want), func() bool { return operations.ViewOf(b.Get()).Waiting == want })
}

func TestMissingWebhook(t *testing.T) {
	tests := map[string]struct {
		reason  string
		exist   []string
		request operations.Request
		missing []string // created in this order
		says    []string // reasons before each of them is created, without the namespace
		reports int
		outcome operations.Status
	}{
		"First": {
			reason: "The first webhook is waited for.", request: operations.Request{Webhooks: []string{"a"}},
			missing: []string{"a"},
			says:    []string{"waiting for webhook a, which does not exist"}, reports: 1, outcome: operations.Succeeded,
		},
		"OneAfterTheOther": {
			reason:  "Each webhook of a sequence is reported when it is due.",
			request: operations.Request{Webhooks: []string{"a", "b"}}, missing: []string{"a", "b"},
			outcome: operations.Succeeded,
			says:    []string{"waiting for webhook a, which does not exist", "waiting for webhook b, which does not exist"},
			reports: 2,
		},
		"Parallel": {
			reason: "All missing webhooks are named, in one report.", exist: []string{"there"},
			request: operations.Request{Webhooks: []string{"a", "there", "b"}, Execution: operations.Parallel},
			missing: []string{"a", "b"}, outcome: operations.Succeeded,
			says:    []string{"waiting for webhooks a, b, which do not exist", "waiting for webhook b, which does not exist"},
			reports: 1,
		},
		"Notification": {
			reason: "A notification is waited for as well.", exist: []string{"there"},
			request: operations.Request{Webhooks: []string{"there"}, Notify: "tell"}, missing: []string{"tell"},
			says: []string{"waiting for webhook tell, which does not exist"}, reports: 1, outcome: operations.Succeeded,
		},
		"Compensation": {
			reason: "So is a compensation; the reason of the failure stays.", exist: []string{"there", "bad"},
			request: operations.Request{Webhooks: []string{"there", "bad"}, Compensate: []string{"undo"}},
			missing: []string{"undo"},
			says:    []string{"waiting for webhook undo, which does not exist"}, reports: 2, outcome: operations.Failed,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/bad" {
					w.WriteHeader(http.StatusBadRequest)
				}
			}
			for _, id := range tc.exist {
				b.Webhook(id, nil)
			}
			recorder := &operationbed.Warnings{}
			b.Start(func(o *executor.Options) { o.Recorder = recorder })
			op := b.Schedule(tc.request)
			for i, id := range tc.missing {
				b.says(tc.says[i] + " in namespace " + b.Namespace)
				b.Webhook(id, nil)
			}
			ended := b.End(op)
			b.Eventually("reported", func() bool { return len(recorder.Told()) >= tc.reports }) // the end is written first
			v := operations.ViewOf(ended)
			ready := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.ConditionReady)
			if v.Status != tc.outcome || v.Waiting != "" || strings.Contains(ready.Message, "waiting") ||
				ready.Reason == v1alpha1.ReasonWaitingForWebhook {
				t.Errorf("%s outcome %+v, %+v", tc.reason, v, ready)
			}
			reports := recorder.Told()
			if len(reports) != tc.reports || !strings.HasPrefix(reports[0], v1alpha1.ReasonWebhookNotFound+": "+tc.says[0]) &&
				tc.outcome == operations.Succeeded {
				t.Errorf("%s events %q", tc.reason, reports)
			}
		})
	}
}

// TestMissingWebhookCostsNothing: an operation that waits for its webhook makes no extra writes, however often it
// looks, and across a restart.
func TestMissingWebhookCostsNothing(t *testing.T) {
	b := setup(t)
	op := b.Schedule(operations.Request{Webhooks: []string{"late"}})
	var writes atomic.Int64
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/operations/"+op.Name+"/status") {
			writes.Add(1)
		}
		return next.RoundTrip(r)
	})
	recorder := &operationbed.Warnings{}
	start := func() (stop func()) {
		return b.Start(func(o *executor.Options) { o.Calls, o.Recorder = calls, recorder })
	}
	look := func(id string) { // A change of the object wakes it. The end of another operation shows that it woke.
		b.Touch(op.Name)
		b.Webhook(id, nil)
		if v := operations.ViewOf(
			b.End(b.Schedule(operations.Request{Webhooks: []string{id}, Resource: app(id)})),
		); v.Status != operations.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
	stop := start()
	says := "waiting for webhook late, which does not exist in namespace " + b.Namespace
	b.says(says)
	look("one")
	look("two")
	stop()
	start()
	look("three")
	if n := writes.Load(); n != 1 {
		t.Errorf("%d writes while it waits, want only that of the pick-up", n)
	}
	b.Webhook("late", nil)
	b.End(op)
	if n := writes.Load(); n < 2 || n > 3 {
		t.Errorf("%d writes in total, want 2 or 3: pick-up, attempt if needed, end", n)
	}
	// Other reasons may be reported, too: the watch of Webhooks may lag behind that of operations.
	reports := slices.DeleteFunc(recorder.Told(), func(e string) bool { return !strings.Contains(e, "webhook late,") })
	if diff := cmp.Diff([]string{v1alpha1.ReasonWebhookNotFound + ": " + says}, reports); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
