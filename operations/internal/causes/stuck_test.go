package causes_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// TestStuck checks the definition of stuck. The operation is in progress, and its last try has failed or its wait has
// passed its bound. It has made no progress since.
func TestStuck(t *testing.T) {
	t.Parallel()
	const silent = "no answer within 10m0s"
	justNow := now.Add(-time.Second)
	tests := map[string]struct {
		reason string
		change func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus)
		known  causes.Known
		want   why.Type // empty: not stuck
	}{
		"FirstTry": {
			reason: "A call within its requestTimeout is on its way,",
			known:  causes.Known{Try: of(10 * time.Minute), Began: beganAt(now.Add(-9 * time.Minute))},
		},
		"Overdue": {
			reason: "and for no longer than that.",
			known:  causes.Known{Try: of(30 * time.Second), Began: beganAt(now.Add(-time.Minute))}, want: why.Parked,
		},
		"WebhookTimeout": {
			reason: "The timeout of the Webhook bounds it too.",
			known: causes.Known{
				Try: of(10 * time.Minute), Timeout: of(59 * time.Minute), Began: beganAt(now.Add(-time.Minute)),
			},
			want: why.Parked,
		},
		"SecondTry": {
			reason: "The error of the previous try counts during the next one.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) { e.RetriesCount, e.Message = 1, silent },
			known:  causes.Known{Began: beganAt(justNow)}, want: why.BackOff,
		},
		"SecondTryElsewhere": {
			reason: "The same holds for a reader of the object.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) { e.RetriesCount, e.Message = 4, silent },
			want:   why.BackOff,
		},
		"BackOff": {
			reason: "A failed try counts until the next one.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.Message = at(later), silent
			},
			want: why.BackOff,
		},
		"RetryAfter": {
			reason: "Retry-After is a declared bound,",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.RetryAfter, e.LastStatusCode, e.Message = at(later), true, 429, "answered 429"
			},
		},
		"RetryAfterPassed": {
			reason: "until it has passed.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.RetryAfter = at(now.Add(-time.Minute)), true
			},
			want: why.RetryAfter,
		},
		"Poll": {
			reason: "So is the interval of polls,",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.WebhookPollURL, e.NextAttemptAt, e.LastStatusCode = "http://crm/jobs/1", at(later), 202
			},
		},
		"PollAfterRetry": {
			reason: "also of a call that was accepted at its third try,",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.WebhookPollURL, e.NextAttemptAt, e.LastStatusCode, e.RetriesCount = "http://crm/jobs/1", at(later), 202, 2
			},
		},
		"PollNotMade": {
			reason: "until it has passed,",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.WebhookPollURL, e.NextAttemptAt, e.LastStatusCode = "http://crm/jobs/1", at(now.Add(-time.Minute)), 202
			},
			want: why.Parked,
		},
		"PollFailed": {
			reason: "or a poll has failed.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.WebhookPollURL, e.NextAttemptAt, e.LastStatusCode, e.Message = "http://crm/jobs/1", at(later), 503, "answered 503"
				e.LastPollTimestamp = at(created)
			},
			want: why.BackOff,
		},
		"Callback": {
			reason: "A callback has until the timeout,",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.LastStatusCode, e.Message, e.RetriesCount = 202, "waiting for the callback", 1
			},
			known: causes.Known{Timeout: of(90 * time.Minute)},
		},
		"CallbackLate": {
			reason: "and no longer.",
			change: func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.LastStatusCode, e.Message = 202, "waiting for the callback"
			},
			known: causes.Known{Timeout: of(59 * time.Minute)}, want: why.Parked,
		},
		"Missing": {
			reason: "Nothing bounds the wait for a Webhook.",
			change: func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForWebhook, "waiting for webhook cleanup, which does not exist in namespace prod")
			},
			want: why.WebhookMissing,
		},
		"Scheduled": {
			reason: "A request is picked up in a moment,",
			change: func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.CreationTimestamp, op.Status = metav1.NewTime(now), v1alpha1.OperationStatus{}
			},
		},
		"Ignored": {
			reason: "or no controller runs.",
			change: func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) { op.Status = v1alpha1.OperationStatus{} },
			want:   why.Parked,
		},
		"Late": {
			reason: "The first cause is that of the answer.",
			change: func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Timeout.Duration, e.NextAttemptAt = time.Minute, at(created)
			},
			want: why.DeadlinePassed,
		},
		"Parallel": {
			reason: "One call that is stuck is enough.",
			change: func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Execution, op.Spec.WebhookIDs = v1alpha1.ExecutionParallel, []string{"cleanup", "other"}
				e.StartedAt = at(justNow)
				op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
					WebhookID: "other", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(created),
					NextAttemptAt: at(later),
				})
			},
			want: why.BackOff,
		},
		"NextWebhook": {
			reason: "Progress is a call that has succeeded since.",
			change: func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.WebhookIDs = []string{"cleanup", "other"}
				e.State, e.FinishedAt, e.RetriesCount = v1alpha1.PhaseSuccess, at(justNow), 3
				op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
					WebhookID: "other", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(justNow),
				})
			},
		},
		"Failed": {
			reason: "What has ended is not in progress, however it has ended.",
			change: func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, e.State, e.Message = v1alpha1.PhaseFailed, v1alpha1.PhaseFailed, silent
				failed(op, v1alpha1.ReasonRetriesExhausted, silent)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := running(tc.change)
			all := causes.Of(op, tc.known, now)
			if got, stuck := causes.Stuck(all); got != tc.want || stuck != (tc.want != "") {
				t.Errorf("%s It is stuck by %q, want %q: %+v", tc.reason, got, tc.want, all)
			}
			if got := first(causes.Troubles(op, tc.known, now), now); got != tc.want {
				t.Errorf("%s A list gives %q, want %q.", tc.reason, got, tc.want)
			}
			// A list that was made before the bound has passed gives the same result now.
			if got := first(causes.Troubles(op, tc.known, created), now); got != tc.want {
				t.Errorf("%s A list made earlier gives %q, want %q.", tc.reason, got, tc.want)
			}
		})
	}
}

// first returns the type that these troubles have at a moment.
func first(all []causes.Trouble, now time.Time) why.Type {
	for _, one := range all {
		if !now.Before(one.From) {
			return one.Cause
		}
	}
	return ""
}

func of(d time.Duration) func(string) time.Duration { return func(string) time.Duration { return d } }

func beganAt(began time.Time) func(record.Target) time.Time {
	return func(record.Target) time.Time { return began }
}

// TestLastError: the error of a try is kept until the call has a better result.
func TestLastError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call v1alpha1.WebhookCallStatus
		want string
	}{
		"under way again": {
			v1alpha1.WebhookCallStatus{AttemptID: "b", RetriesCount: 1, Message: "answered 500"},
			"answered 500",
		},
		"waits for a try": {v1alpha1.WebhookCallStatus{NextAttemptAt: at(later), Message: "answered 500"}, "answered 500"},
		"first try":       {v1alpha1.WebhookCallStatus{AttemptID: "a"}, ""},
		"awaits callback": {v1alpha1.WebhookCallStatus{
			AttemptID: "a", LastStatusCode: 202,
			Message: "waiting for the callback",
		}, ""},
		"polled": {v1alpha1.WebhookCallStatus{
			WebhookPollURL: "u", LastPollTimestamp: at(now), LastStatusCode: 200,
			Message: "in progress",
		}, ""},
		"poll has failed": {
			v1alpha1.WebhookCallStatus{WebhookPollURL: "u", LastPollTimestamp: at(now), Message: "EOF"},
			"EOF",
		},
		"over":             {v1alpha1.WebhookCallStatus{State: v1alpha1.PhaseFailed, Message: "answered 400"}, ""},
		"accepted to poll": {v1alpha1.WebhookCallStatus{WebhookPollURL: "u", RetriesCount: 2, LastStatusCode: 202}, ""},
	} {
		if diff := cmp.Diff(tc.want, causes.LastError(&tc.call)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
