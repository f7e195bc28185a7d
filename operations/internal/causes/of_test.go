package causes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

var (
	now     = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	created = now.Add(-time.Hour)
	later   = now.Add(time.Minute)
	limit   = created.Add(2*time.Hour + time.Second) // counted from the end of the second in which it was created
)

func at(t time.Time) *metav1.MicroTime { return new(metav1.NewMicroTime(t)) }

// running returns an operation that was picked up and has a call. change adds details.
func running(change func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus)) *v1alpha1.Operation {
	op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "application-shop", UID: "u", CreationTimestamp: metav1.NewTime(created),
	}}
	op.Spec.ResourceType, op.Spec.ResourceID = "application", "shop"
	op.Spec.OperationID, op.Spec.WebhookIDs = "op-1", []string{"cleanup"}
	op.Spec.Timeout.Duration = 2 * time.Hour
	op.Status = v1alpha1.OperationStatus{
		Phase: v1alpha1.PhaseInProgress, OperationID: "op-1", InitializedAt: at(created),
		Webhooks: []v1alpha1.WebhookCallStatus{{
			WebhookID: "cleanup", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(created),
		}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonInProgress},
			{Type: v1alpha1.ConditionError, Status: "False", Reason: v1alpha1.ReasonInProgress},
		},
	}
	if change != nil {
		change(op, &op.Status.Webhooks[0])
	}
	return op
}

func waits(op *v1alpha1.Operation, reason, message string) {
	op.Status.Webhooks = nil
	op.Status.Conditions[0].Reason, op.Status.Conditions[0].Message = reason, message
}

func failed(op *v1alpha1.Operation, reason, message string) {
	op.Status.Conditions[1] = metav1.Condition{
		Type: v1alpha1.ConditionError, Status: "True", Reason: reason, Message: message,
	}
}

// edited is the knowledge of a generation of the Webhooks.
var edited = causes.Known{Generation: func(string) int64 { return 3 }}

// TestOf derives causes from the object.
func TestOf(t *testing.T) {
	t.Parallel()
	hook := causes.WebhookObject("prod", "cleanup")
	tests := map[string]struct {
		reason string
		op     *v1alpha1.Operation
		known  causes.Known
		advice string      // prefix of the first cause's advice
		want   []why.Cause // type, times, evidence of the keys given here, about, progress; a part of the message
	}{
		"Succeeded": {
			reason: "An ended operation is not stuck.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseSuccess, at(created)
				op.Spec.TTLAfterFinished = &metav1.Duration{Duration: 2 * time.Hour}
			}),
			want: []why.Cause{{
				Type: why.Ended, Since: created, Until: created.Add(2 * time.Hour),
				Evidence: map[string]string{"phase": "Success", "reason": "Succeeded", "operation": "op-1"},
			}},
		},
		"Refused": {
			reason: "A failure is reported with its reason and error.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, at(created)
				failed(op, v1alpha1.ReasonTargetRefused, "127.0.0.1 is loopback")
			}),
			want: []why.Cause{{
				Type: why.Ended, Since: created,
				Evidence: map[string]string{"reason": "TargetRefused", "error": "127.0.0.1 is loopback"},
			}},
		},
		"ForeignFinalizer": {
			reason: "A deleted operation is kept by its finalizers.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, at(created)
				op.DeletionTimestamp, op.Finalizers = new(metav1.NewTime(created)), []string{"example.com/x"}
			}),
			want: []why.Cause{{
				Type: why.ForeignFinalizer, Since: created, Evidence: map[string]string{"finalizer": "example.com/x"},
			}},
		},
		"OwnFinalizer": {
			reason: "Ours goes first.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, at(created)
				op.DeletionTimestamp, op.Finalizers = new(metav1.NewTime(created)), []string{"example.com/x", v1alpha1.Finalizer}
			}),
			want: []why.Cause{{Type: why.Parked, Since: created, Evidence: map[string]string{"finalizer": v1alpha1.Finalizer}}},
		},
		"New": {
			reason: "A request that was not picked up names the ended one before it.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Spec.OperationID = "op-2"
			}),
			want: []why.Cause{{
				Type: why.Parked, Since: created, Until: limit,
				Evidence: map[string]string{"operation": "op-2", "earlier": "op-1"},
			}},
		},
		"JustNew": {
			reason: "It is picked up in a moment.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.CreationTimestamp, op.Status = metav1.NewTime(now), v1alpha1.OperationStatus{}
			}),
			want: []why.Cause{{Type: why.Parked, Since: now, Until: now.Add(2*time.Hour + time.Second), Progress: true}},
		},
		"Deadline": {
			reason: "An operation past its deadline has not ended, since no controller runs.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Timeout.Duration, e.NextAttemptAt = time.Minute, at(created)
			}),
			want: []why.Cause{
				{
					Type: why.DeadlinePassed, Since: created.Add(time.Minute + time.Second),
					Evidence: map[string]string{"timeout": "1m0s"},
				},
				{Type: why.BackOff, Since: created, Until: created},
			},
		},
		"DeadlineDecided": {
			reason: "After the deadline, a compensation continues: Led names the deadline.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Timeout.Duration, op.Spec.CompensateWebhookIDs = time.Minute, []string{"undo"}
				op.Spec.WebhookIDs = []string{"cleanup", "next"}
				e.State, e.FinishedAt = v1alpha1.PhaseSuccess, at(created)
				failed(op, v1alpha1.ReasonTimedOut, "not finished within 1m0s")
				op.Status.Compensations = []v1alpha1.WebhookCallStatus{{
					WebhookID: "undo", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(now),
				}}
			}),
			want: []why.Cause{
				{
					Type: why.Parked, Since: now, Progress: true,
					Evidence: map[string]string{"webhook": "undo", "purpose": "compensate"},
				},
			},
		},
		"NotifiesLate": {
			reason: "An operation that succeeded in time is not late, however long its notification takes.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Timeout.Duration, op.Spec.NotifyWebhookID = time.Minute, "tell"
				e.State, e.FinishedAt = v1alpha1.PhaseSuccess, at(created)
				op.Status.Notification = &v1alpha1.WebhookCallStatus{
					WebhookID: "tell", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(created),
					NextAttemptAt: at(later), RetriesCount: 2, LastStatusCode: 500, Message: "no",
				}
			}),
			want: []why.Cause{{Type: why.BackOff, Since: created, Until: later, Evidence: map[string]string{
				"webhook": "tell", "purpose": "notify", "attempts": "3", "status": "500", "error": "no",
			}}},
		},
		"Calls": {
			reason: "A call under way is progress.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.StartedAt = at(now.Add(-time.Second))
			}),
			want: []why.Cause{{
				Type: why.Parked, Since: now.Add(-time.Second), Progress: true, Evidence: map[string]string{"webhook": "cleanup"},
			}},
		},
		"Lost": {
			reason: "A call that lasts longer than a try may last is lost.",
			op:     running(nil),
			want:   []why.Cause{{Type: why.Parked, Since: created}},
		},
		"RetryAfter": {
			reason: "The receiver has sent Retry-After.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.RetryAfter, e.LastStatusCode = at(later), true, 429
			}),
			want: []why.Cause{{
				Type: why.RetryAfter, Since: created, Until: later, Progress: true, Evidence: map[string]string{"status": "429"},
			}},
		},
		"PollUnjudged": {
			reason: "A poll without a result is not progress.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookPollURL, e.LastStatusCode, e.LastPollTimestamp = at(later), "http://x/1", 200, at(created)
				e.Message = "neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html>"
			}),
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later,
				Message: "webhook cleanup is polled again at " + later.Format(time.RFC3339) +
					": neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html>",
			}},
		},
		"PollMisfit": {
			reason: "An expression that does not fit the answer is named.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookPollURL, e.LastStatusCode, e.LastPollTimestamp = at(later), "http://x/1", 200, at(created)
				e.Message = "spec.poll.succeeded: cannot evaluate expression on this answer: no such key: done"
			}),
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later, Evidence: map[string]string{"field": "spec.poll.succeeded"},
				Message: "spec.poll.succeeded of webhook cleanup cannot be evaluated on the answer to the last poll; " +
					"the next one is at " + later.Format(time.RFC3339),
			}},
		},
		"Edited": {
			reason: "The error of a try with an older generation of the Webhook does not apply to the current one.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookGeneration, e.LastStatusCode, e.Message = at(later), 2, 404, "answered 404"
			}),
			known: edited,
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later,
				Evidence: map[string]string{"generation": "2", "newGeneration": "3"},
				Message: "webhook cleanup failed and is called again at " + later.Format(time.RFC3339) +
					"; the Webhook was edited since (generation 2 is 3 now): the next attempt uses the new generation",
			}},
		},
		"EditedUnderWay": {
			reason: "A try under way keeps its generation.",
			op:     running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) { e.WebhookGeneration = 2 }),
			known:  edited,
			want: []why.Cause{{
				Type: why.Parked, Since: created, Evidence: map[string]string{"generation": "2"},
				Message: "it calls webhook cleanup; the Webhook was edited since (generation 2 is 3 now): the current attempt " +
					"uses the old " +
					"generation, and the next one uses the new one",
			}},
		},
		"EditedWhilePolled": {
			reason: "A poll URL stays.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookPollURL, e.LastStatusCode, e.WebhookGeneration = at(later), "http://x/1", 202, 2
			}),
			known: edited,
			want: []why.Cause{{
				Type: why.Parked, Since: created, Until: later, Progress: true, Evidence: map[string]string{"newGeneration": "3"},
				Message: "it waits for webhook cleanup, which has accepted the call, and polls it; the Webhook was edited since " +
					"(generation 2 is 3 now): the recorded poll URL stays; polls use everything else of the new generation",
			}},
		},
		"Terminating": {
			reason: "A token refused in a namespace that is being deleted is not an error of the account.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt = at(later)
				e.Message = `spec.auth.serviceAccountToken: serviceaccounts "robot" is forbidden: unable to create new content in ` +
					`namespace prod because it is being terminated`
			}),
			advice: "The namespace is being deleted",
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later,
				Message: "webhook cleanup failed and is called again at " + later.Format(time.RFC3339),
			}},
		},
		"NotEdited": {
			reason: "The same generation is not mentioned.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookGeneration, e.LastStatusCode, e.Message = at(later), 3, 404, "answered 404"
			}),
			known: edited,
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later,
				Message: "webhook cleanup failed and is called again at " + later.Format(time.RFC3339),
			}},
		},
		"Compensation": {
			reason: "The call that failed first is named before the compensation that fails.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.WebhookIDs, op.Spec.CompensateWebhookIDs = []string{"cleanup", "shop"}, []string{"undo"}
				e.State, e.FinishedAt = v1alpha1.PhaseSuccess, at(created)
				op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
					WebhookID: "shop", State: v1alpha1.PhaseFailed, FinishedAt: at(created), Message: "no such plan",
				})
				failed(op, v1alpha1.ReasonWebhookFailed, "no such plan")
				op.Status.Compensations = []v1alpha1.WebhookCallStatus{{
					WebhookID: "undo", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(created),
					NextAttemptAt:  at(later),
					LastStatusCode: 500, Message: "answered 500",
				}}
			}),
			want: []why.Cause{{
				Type: why.BackOff, Since: created, Until: later,
				Message: "webhook shop failed first: no such plan; then webhook undo (compensation) failed and is called again " +
					"at " +
					later.Format(time.RFC3339),
			}},
		},
		"Uncompensated": {
			reason: "The same holds if both have failed.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, at(now)
				failed(op, v1alpha1.ReasonWebhookFailed, "no such plan")
				e.State, e.FinishedAt, e.Message = v1alpha1.PhaseFailed, at(created), "no such plan"
				op.Status.Compensations = []v1alpha1.WebhookCallStatus{{
					WebhookID: "undo", State: v1alpha1.PhaseFailed, Message: "answered 500",
				}}
			}),
			want: []why.Cause{{
				Type: why.Ended, Since: now,
				Evidence: map[string]string{"webhook": "cleanup", "error": "no such plan", "compensation": "undo"},
				Message: "it ended at " + now.Format(time.RFC3339) + " with reason WebhookFailed; webhook cleanup failed first: " +
					"no such plan; then webhook undo (compensation) failed: answered 500",
			}},
		},
		"Poll": {
			reason: "It is polled.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.WebhookPollURL, e.LastStatusCode, e.LastPollTimestamp = at(later), "http://x/1", 202, at(created)
			}),
			want: []why.Cause{{Type: why.Parked, Since: created, Until: later, Progress: true, Evidence: map[string]string{
				"waitsFor": "poll", "pollURL": "http://x/1", "lastPoll": created.Format(time.RFC3339),
			}}},
		},
		"Callback": {
			reason: "It is called back, or its time passes.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.LastStatusCode, e.Message = 202, "waiting for the callback"
			}),
			want: []why.Cause{{
				Type: why.Parked, Since: created, Until: limit, Progress: true,
				Evidence: map[string]string{"waitsFor": "callback", "status": "202"},
			}},
		},
		"Forbidden": {
			reason: "The error of the API server names the right that the controller lacks for a token.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.Message = at(later),
					`spec.auth.serviceAccountToken: cannot get a token: cannot create token of `+
						`TokenRequest prod/robot: serviceaccounts "robot" is forbidden: User "system:serviceaccount:ops:fairlead" cannot `+
						`create resource "serviceaccounts/token" in API group "" in the namespace "prod"`
			}),
			want: []why.Cause{{Type: why.Forbidden, Since: created, Until: later, Evidence: map[string]string{
				"verb": "create", "resource": "serviceaccounts/token", "group": "", "namespace": "prod",
				"user": "system:serviceaccount:ops:fairlead", "webhook": "cleanup",
				"rule": `{apiGroups: [""], resources: ["serviceaccounts/token"], verbs: ["create"]}`,
			}}},
		},
		"NotForbidden": {
			reason: "The text of a receiver is not an error of the API server.",
			op: running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				e.NextAttemptAt, e.Message = at(later), `User "x" cannot create resource "y" in API group ""`
			}),
			want: []why.Cause{{Type: why.BackOff, Since: created, Until: later}},
		},
		"Lock": {
			reason: "The condition names the operation ahead.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForLock,
					"waiting for the end of operation op-0 (Delete) of db/7, because of table/8")
			}),
			want: []why.Cause{{
				Type: why.LockHeld, Since: created, Until: limit,
				Evidence: map[string]string{"operation": "op-0", "holder": "db/7", "resource": "table/8"},
				About:    causes.OperationObject("prod", v1alpha1.OperationName("db", "7")),
			}},
		},
		"LockUnread": {
			reason: "A foreign condition is reported unchanged.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForLock, "foreign text")
			}),
			want: []why.Cause{{Type: why.LockHeld, Message: "foreign text", Since: created, Until: limit}},
		},
		"Missing": {
			reason: "Of several webhooks only those that are due are missing.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForWebhook, "waiting for webhook cleanup, which does not exist in namespace prod")
				op.Spec.WebhookIDs = []string{"cleanup", "prod"}
			}),
			advice: "Create the Webhook, and the operation continues automatically, or cancel the operation. If the namespace " +
				"is being " +
				"deleted, no Webhook can be created in it: cancel the operation, or wait",
			want: []why.Cause{{Type: why.WebhookMissing, Since: created, About: hook}},
		},
		"Quarantined": {
			reason: "A quarantined Webhook exists.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForWebhook,
					"waiting for webhook cleanup, which is quarantined: it has to be changed")
			}),
			want: []why.Cause{{Type: why.Quarantined, Since: created, About: hook}},
		},
		"NotReleased": {
			reason: "The missing credentials are named.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonNotReleased, "waiting for credentials: webhook cleanup: secret x does not exist")
			}),
			want: []why.Cause{{
				Type: why.NotReleased, Message: "waiting for credentials: webhook cleanup: secret x does not exist", Since: created,
				About: hook,
			}},
		},
		"Share": {
			reason: "So is the share of its namespace,",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonWaitingForShare, "waiting for the share of namespace prod of calls under way")
			}),
			want: []why.Cause{{Type: why.RateLimited, Since: created, Evidence: map[string]string{
				"namespace": "prod", "share": "calls under way",
			}}},
		},
		"OutdatedCRD": {
			reason: "and a definition that is too old.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				waits(op, v1alpha1.ReasonOutdatedCRD, "too old")
			}),
			want: []why.Cause{{Type: causes.OutdatedCRD, Message: "too old", Since: created}},
		},
		"Parallel": {
			reason: "Each of several calls has its own cause.",
			op: running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
				op.Spec.Execution, op.Spec.WebhookIDs = v1alpha1.ExecutionParallel, []string{"cleanup", "other", "done"}
				e.NextAttemptAt = at(later)
				op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
					WebhookID: "other", State: v1alpha1.PhaseInProgress, AttemptID: "a", StartedAt: at(now),
				}, v1alpha1.WebhookCallStatus{WebhookID: "done", State: v1alpha1.PhaseSuccess})
			}),
			want: []why.Cause{
				{Type: why.BackOff, Since: created, Until: later, Evidence: map[string]string{"webhook": "cleanup"}},
				{Type: why.Parked, Since: now, Progress: true, Evidence: map[string]string{"webhook": "other"}},
			},
		},
		"Due": {
			reason: "An operation that is simply due has no cause.",
			op: running(func(op *v1alpha1.Operation, _ *v1alpha1.WebhookCallStatus) {
				op.Status.Webhooks = nil
			}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.op.DeepCopy()
			got := causes.Of(tc.op, tc.known, now)
			if len(got) > 0 && !strings.HasPrefix(got[0].Advice, tc.advice) {
				t.Errorf("%s It advises %+v.", tc.reason, got)
			}
			for i := range got {
				if got[i].Message == "" || got[i].Type != why.Ended && !got[i].Progress && got[i].Advice == "" {
					t.Errorf("%s: a message or an advice is missing: %+v", tc.reason, got[i])
				}
				if i >= len(tc.want) {
					continue
				}
				got[i].Advice = ""
				if tc.want[i].Message == "" {
					got[i].Message = ""
				}
				for key := range got[i].Evidence {
					if _, asked := tc.want[i].Evidence[key]; !asked {
						delete(got[i].Evidence, key)
					}
				}
				if len(got[i].Evidence) == 0 {
					got[i].Evidence = nil
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.op); diff != "" {
				t.Errorf("the operation has changed: %s", diff)
			}
		})
	}
}

// TestKnown: the replica that makes the calls knows when each was started. It also knows that a recorded call is not
// under way.
func TestKnown(t *testing.T) {
	t.Parallel()
	op := running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) { e.RetriesCount = 3 })
	began := now.Add(-time.Second)
	for want, known := range map[string]time.Time{
		"it calls webhook cleanup again, because the last attempt failed": began, "its call of webhook cleanup is due": {},
	} {
		got := causes.Of(op, causes.Known{Began: func(record.Target) time.Time { return known }}, now)
		if len(got) != 1 || got[0].Message != want || got[0].Progress {
			t.Errorf("%s: %+v", want, got)
		}
	}
	later := now.Add(time.Minute)
	polled := running(func(_ *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
		e.WebhookPollURL, e.NextAttemptAt = "http://crm/jobs/1", &metav1.MicroTime{Time: now.Add(-time.Second)}
	})
	next := causes.Of(polled, causes.Known{Next: func(record.Target) time.Time { return later }}, now)
	if len(next) != 1 || !next[0].Until.Equal(later) {
		t.Errorf("a poll is due later than recorded: %+v", next)
	}
	op.Status.Webhooks[0].LastStatusCode = 202
	got := causes.Of(op, causes.Known{Timeout: func(string) time.Duration { return 90 * time.Minute }}, now)
	if len(got) != 1 || !got[0].Until.Equal(created.Add(90*time.Minute)) {
		t.Errorf("the wait for the callback does not end with the webhook's own timeout: %+v", got)
	}
}

// TestBlamed: the call that failed first is named, since its failure canceled the others.
func TestBlamed(t *testing.T) {
	t.Parallel()
	for reason, first := range map[string]time.Time{"before": now.Add(-time.Second), "with it": now} {
		op := running(func(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus) {
			op.Status.Phase = v1alpha1.PhaseFailed
			failed(op, v1alpha1.ReasonWebhookFailed, "webhook shop: no such shop")
			e.State, e.FinishedAt, e.Message = v1alpha1.PhaseFailed, at(now), "connection refused"
			op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
				WebhookID: "shop", State: v1alpha1.PhaseFailed, FinishedAt: at(first), LastStatusCode: 403, Message: "no such shop",
			})
		})
		got := causes.Of(op, causes.Known{}, now)[0]
		if got.Evidence["webhook"] != "shop" || got.Evidence["status"] != "403" ||
			!strings.Contains(got.Advice, "spec.auth") {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}
