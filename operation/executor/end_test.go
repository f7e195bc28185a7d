package executor_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
)

func TestCancel(t *testing.T) {
	b := setup(t)
	asked, aborted := make(chan string, 1), make(chan string, 1)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			asked <- path
			<-r.Context().Done()
			aborted <- path
		}
	}
	for _, name := range []string{"first", "hang", "never", "undo"} {
		b.webhook(name, nil)
	}
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"first", "hang", "never"}, Compensate: []string{"undo"}})
	b.received(asked)
	if _, err := b.scheduler.Cancel(b.ctx, shop, op.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	b.received(aborted)
	ended := b.end(op)
	if got := b.reason(ended); got != v1alpha1.ReasonCanceled {
		t.Errorf("reason %s", got)
	}
	want := map[string]int{"first": 1, "hang": 1, "undo.compensate": 1}
	if diff := cmp.Diff(want, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("no new call starts and compensation runs: -want +got:\n%s", diff)
	}
	for _, w := range ended.Status.Webhooks {
		if !w.State.Terminal() {
			t.Errorf("webhook %s is %s after the end", w.WebhookID, w.State)
		}
	}
}

func TestDeletedWhileItWaits(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		if path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.webhook("busy", nil)
	b.webhook("tell", nil)
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"busy"}, Notify: "tell"})
	b.eventually("held by the finalizer", func() bool { return len(b.get().Finalizers) == 1 })
	b.delete(op.Name)
	b.eventually("gone", func() bool { _, err := b.scheduler.Get(b.ctx, shop); return errors.Is(err, operation.ErrNotFound) })
	if diff := cmp.Diff(map[string]int{"busy": 1, "tell.notify": 1}, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("a deleted operation is cancelled, and that is told: -want +got:\n%s", diff)
	}
}

func TestTTLAndHistory(t *testing.T) {
	b := setup(t)
	b.start(nil)
	for range v1alpha1.MaxHistory + 2 {
		b.end(b.schedule(operation.Request{Type: operation.Update}))
	}
	op := b.get()
	if len(op.Status.History) != v1alpha1.MaxHistory {
		t.Errorf("history has %d entries", len(op.Status.History))
	}
	if len(op.Finalizers) != 0 {
		t.Errorf("finalizers %v on an operation that never waited", op.Finalizers)
	}
	b.schedule(operation.Request{TTLAfterFinished: new(50 * time.Millisecond)})
	b.eventually("deleted after its time to live", func() bool {
		_, err := b.scheduler.Get(b.ctx, shop)
		return errors.Is(err, operation.ErrNotFound)
	})
}

func TestTimedOutWhileNobodyRan(t *testing.T) {
	b := setup(t)
	b.webhook("cleanup", nil)
	op := b.schedule(operation.Request{Webhooks: []string{"cleanup"}, Timeout: time.Nanosecond})
	b.start(nil)
	if got := b.reason(b.end(op)); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
	if n := len(b.receiver.counts(op.EffectiveID())); n != 0 {
		t.Errorf("%d calls after the deadline", n)
	}
}

func TestDeadlineCutsTheCall(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { <-r.Context().Done() }
	b.webhook("hang", nil)
	b.start(nil)
	began := time.Now()
	op := b.end(b.schedule(operation.Request{Webhooks: []string{"hang"}, Timeout: time.Second}))
	if got := b.reason(op); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v, though the timeout of a try is 30 s", took)
	}
}

func TestWebhookTimeout(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	b.webhook("busy", func(s *v1alpha1.WebhookSpec) {
		s.Timeout = metav1.Duration{Duration: 300 * time.Millisecond}
		s.Retry.MaxAttempts = 1000000
	})
	b.start(nil)
	if got := b.reason(b.end(b.schedule(operation.Request{Webhooks: []string{"busy"}}))); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
}
