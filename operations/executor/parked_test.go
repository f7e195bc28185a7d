package executor_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestParkedRunIsSmall bounds the size of a run, which is one allocation and takes a whole size class.
func TestParkedRunIsSmall(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(executor.Run{}); unsafe.Sizeof(uintptr(0)) == 8 && got > 192 {
		t.Errorf("a run has %d bytes, want at most 192", got)
	}
}

// TestWaitingOperations: an operation that waits for its next poll has made at most three writes and holds only its
// parked run. The store drops its own writes once the watch has delivered them.
func TestWaitingOperations(t *testing.T) {
	const n = 3
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		w.Header().Set("Location", path)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Hour}
	})
	registry := prometheus.NewRegistry()
	r := b.Prepare(b.Config, func(o *executor.Options) {
		o.Budget, o.Registerer = executor.Budget{Writes: 2}, registry // a burst of twenty
	})
	r.Begin()
	for i := range n {
		b.Schedule(operations.Request{Webhooks: []string{"slow"}, Resource: app(fmt.Sprint(i))})
	}
	for i := range n {
		b.Eventually("waiting", func() bool {
			op, err := b.Scheduler.Get(b.Ctx, app(fmt.Sprint(i)))
			return err == nil && slices.Contains(op.Finalizers, v1alpha1.Finalizer)
		})
	}
	b.Eventually("at rest", func() bool {
		runs, working := r.Runs()
		return runs == n && working == 0 && r.Operations.OverlayStats().Entries == 0
	})
	if waits := share(t, registry, "fairlead_share_waits_total", "writes"); waits != 0 {
		t.Errorf("%v writes had to wait for the share of their namespace", waits)
	}
}

// TestRunKeepsOnlyUnsavedChanges: a run that waits for its namespace's share or after a failed write keeps its unsaved
// changes. Other runs keep nothing.
func TestRunKeepsOnlyUnsavedChanges(t *testing.T) {
	t.Parallel()
	if got := executor.Kept(true); got != "changes" {
		t.Errorf("a run with changes that are not written keeps %q", got)
	}
	if got := executor.Kept(false); got != "" {
		t.Errorf("a run with nothing to do keeps %q", got)
	}
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	now := metav1.NowMicro()
	tests := map[string]struct {
		reason string
		call   v1alpha1.WebhookCallStatus
		want   bool
	}{
		"First": {reason: "The first try was a change of the operation.", call: v1alpha1.WebhookCallStatus{AttemptID: "a"}},
		"Accepted": {
			reason: "So was its answer, and the finalizer.",
			call:   v1alpha1.WebhookCallStatus{AttemptID: "a", NextAttemptAt: &now},
		},
		"Again": {
			reason: "Another try was not.", want: true,
			call: v1alpha1.WebhookCallStatus{AttemptID: "b", RetriesCount: 1},
		},
		"Polled": {
			reason: "Nor was a poll.", want: true,
			call: v1alpha1.WebhookCallStatus{AttemptID: "a", NextAttemptAt: &now, LastPollTimestamp: &now},
		},
		"Over": {
			reason: "An ended call repeats nothing.",
			call:   v1alpha1.WebhookCallStatus{AttemptID: "b", RetriesCount: 1, State: v1alpha1.PhaseSuccess},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range []v1alpha1.OperationStatus{
				{Webhooks: []v1alpha1.WebhookCallStatus{tc.call}},
				{Compensations: []v1alpha1.WebhookCallStatus{tc.call}},
				{Notification: &tc.call},
			} {
				if got := executor.Repeats(&s); got != tc.want {
					t.Errorf("%s It repeats: %v", tc.reason, got)
				}
			}
		})
	}
}
