package executor_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

func TestCancel(t *testing.T) {
	b := setup(t)
	asked, aborted := make(chan string, 1), make(chan string, 1)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			asked <- path
			<-r.Context().Done()
			aborted <- path
		}
	}
	for _, name := range []string{"first", "hang", "never", "undo"} {
		b.Webhook(name, nil)
	}
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"first", "hang", "never"}, Compensate: []string{"undo"}})
	b.Received(asked)
	if _, err := b.Scheduler.Cancel(b.Ctx, shop, op.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	b.Received(aborted)
	ended := b.End(op)
	if got := b.Reason(ended); got != v1alpha1.ReasonCanceled {
		t.Errorf("reason %s", got)
	}
	want := map[string]int{"first": 1, "hang": 1, "undo.compensate": 1}
	if diff := cmp.Diff(want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("no new call starts and compensation runs: -want +got:\n%s", diff)
	}
	for _, w := range ended.Status.Webhooks {
		if !w.State.Terminal() {
			t.Errorf("webhook %s is %s after the end", w.WebhookID, w.State)
		}
	}
}

// TestCancelInEveryState cancels an operation in each state in which that is possible, and checks its calls.
func TestCancelInEveryState(t *testing.T) {
	async := func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Hour}
	}
	tests := map[string]struct {
		reason  string
		hook    func(*v1alpha1.WebhookSpec) // of the webhook "work"; nil: it does not exist
		request operations.Request
		at      func(op *v1alpha1.Operation) bool // the state in which it is canceled; nil: before it is picked up
		want    string                            // reason of the end; empty: Success
		calls   map[string]int
	}{
		"Scheduled": {
			reason: "It is picked up to end, without a call.", hook: func(*v1alpha1.WebhookSpec) {},
			request: operations.Request{Webhooks: []string{"work"}, Notify: "tell"}, want: v1alpha1.ReasonCanceled,
			calls: map[string]int{"tell.notify": 1},
		},
		"ScheduledWithoutWebhooks": {
			reason: "There is no call to cancel.", request: operations.Request{}, calls: map[string]int{},
		},
		"Missing": {
			reason: "It does not wait for a Webhook any more.", request: operations.Request{Webhooks: []string{"work"}},
			want: v1alpha1.ReasonCanceled,
			at:   func(op *v1alpha1.Operation) bool { return op.PickedUp() }, calls: map[string]int{},
		},
		"Polling": {
			reason: "It does not wait for the next poll.", hook: async, want: v1alpha1.ReasonCanceled,
			request: operations.Request{Webhooks: []string{"work"}},
			at: func(op *v1alpha1.Operation) bool {
				return len(op.Status.Webhooks) == 1 && op.Status.Webhooks[0].WebhookPollURL != ""
			},
			calls: map[string]int{"work": 1},
		},
		"Callback": {
			reason: "Nor for the callback.", hook: operationbed.CallbackHook, want: v1alpha1.ReasonCanceled,
			request: operations.Request{Webhooks: []string{"work"}},
			at: func(op *v1alpha1.Operation) bool {
				return len(op.Status.Webhooks) == 1 && op.Status.Webhooks[0].LastStatusCode != 0
			},
			calls: map[string]int{"work": 1},
		},
		"Compensating": {
			reason: "The outcome is decided, and what follows it runs to its end.", hook: func(*v1alpha1.WebhookSpec) {},
			want:    v1alpha1.ReasonWebhookFailed,
			request: operations.Request{Webhooks: []string{"work", "fails"}, Compensate: []string{"gate"}, Notify: "tell"},
			at:      func(op *v1alpha1.Operation) bool { return len(op.Status.Compensations) == 1 },
			calls:   map[string]int{"work": 1, "fails": 1, "gate.compensate": 1, "tell.notify": 1},
		},
		"Notifying": {
			reason: "So is success.", hook: func(*v1alpha1.WebhookSpec) {},
			request: operations.Request{Webhooks: []string{"work"}, Compensate: []string{"undo"}, Notify: "gate"},
			at:      func(op *v1alpha1.Operation) bool { return op.Status.Notification != nil },
			calls:   map[string]int{"work": 1, "gate.notify": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			open := make(chan struct{})
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
				switch path {
				case "/work":
					w.Header().Set("Location", "/job")
					w.WriteHeader(http.StatusAccepted)
				case "/fails":
					w.WriteHeader(http.StatusBadRequest)
				case "/gate":
					operationbed.Pause(r, open)
				}
			}
			if tc.hook != nil {
				b.Webhook("work", tc.hook)
			}
			for _, other := range []string{"fails", "gate", "tell", "undo"} {
				b.Webhook(other, nil)
			}
			start := func() {
				b.Start(func(o *executor.Options) {
					o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
				})
			}
			op := b.Schedule(tc.request)
			if tc.at != nil {
				start()
				b.Eventually("in the state to be cancelled in", func() bool { return tc.at(b.Get()) })
			}
			if _, err := b.Scheduler.Cancel(b.Ctx, shop, op.EffectiveID()); err != nil {
				t.Fatal(err)
			}
			if tc.at == nil {
				start()
			}
			close(open)
			ended := b.End(op)
			if got := b.Reason(ended); got != tc.want {
				t.Errorf("%s: %s", tc.reason, got)
			}
			if diff := cmp.Diff(tc.calls, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("%s: calls, -want +got:\n%s", tc.reason, diff)
			}
			if _, err := b.Scheduler.Cancel(b.Ctx, shop, op.EffectiveID()); !errors.Is(err, operations.ErrEnded) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestDeletedWhileItWaits(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		if path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.Webhook("busy", nil)
	b.Webhook("tell", nil)
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"busy"}, Notify: "tell"})
	b.Eventually("held by the finalizer", func() bool { return len(b.Get().Finalizers) == 1 })
	b.Delete(op.Name)
	b.Eventually("gone",
		func() bool {
			_, err := b.Scheduler.Get(b.Ctx, shop)
			return errors.Is(err, operations.ErrNotFound)
		})
	if diff := cmp.Diff(map[string]int{"busy": 1, "tell.notify": 1}, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("the reports about a deleted operation, -want +got:\n%s", diff)
	}
}

func TestTTLAndHistory(t *testing.T) {
	b := setup(t)
	b.Start(nil)
	var want, got []string // newest first, without the current one
	for range v1alpha1.MaxHistory + 2 {
		op := b.End(b.Schedule(operations.Request{Type: operations.Update}))
		want = append([]string{op.EffectiveID()}, want...)
	}
	op := b.Get()
	for _, h := range op.Status.History {
		got = append(got, h.OperationID)
	}
	if diff := cmp.Diff(want[1:v1alpha1.MaxHistory+1], got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if len(op.Finalizers) != 0 {
		t.Errorf("finalizers %v on an operation that never waited", op.Finalizers)
	}
	b.Schedule(operations.Request{TTLAfterFinished: new(50 * time.Millisecond)})
	b.Eventually("deleted after its time to live", func() bool {
		_, err := b.Scheduler.Get(b.Ctx, shop)
		return errors.Is(err, operations.ErrNotFound)
	})
}

func TestTimedOutWithoutAnExecutor(t *testing.T) {
	b := setup(t)
	b.Webhook("cleanup", nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"cleanup"}, Timeout: time.Nanosecond})
	b.Start(nil)
	if got := b.Reason(b.End(op)); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
	if n := len(b.Receiver.Counts(op.EffectiveID())); n != 0 {
		t.Errorf("%d calls after the deadline", n)
	}
}

func TestDeadlineCutsTheCall(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { <-r.Context().Done() }
	b.Webhook("hang", nil)
	b.Start(nil)
	op := b.End(b.Schedule(operations.Request{Webhooks: []string{"hang"}, Timeout: time.Second}))
	if got := b.Reason(op); got != v1alpha1.ReasonTimedOut { // long before the timeout of its try
		t.Errorf("reason %s", got)
	}
}

func TestWebhookTimeout(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	b.Webhook("busy", func(s *v1alpha1.WebhookSpec) {
		s.Timeout = metav1.Duration{Duration: 300 * time.Millisecond}
		s.Retry.MaxAttempts = webhook.MaxAttempts
	})
	b.Start(nil)
	if got := b.Reason(b.End(b.Schedule(operations.Request{Webhooks: []string{"busy"}}))); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
}
