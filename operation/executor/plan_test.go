package executor

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/webhook"
)

// epoch is when the operations of these tests are scheduled.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC)

func requested(edit func(*v1alpha1.Operation)) *v1alpha1.Operation {
	op := &v1alpha1.Operation{}
	op.UID, op.Generation = types.UID("uid"), 1
	op.Annotations = map[string]string{v1alpha1.AnnotationScheduledAt: epoch.Format(time.RFC3339Nano)}
	op.Spec.OperationID, op.Spec.OperationType = "one", v1alpha1.OperationDelete
	op.Spec.ResourceType, op.Spec.ResourceID = "app", "shop"
	op.Spec.Timeout.Duration = time.Hour
	op.Name = v1alpha1.OperationName("app", "shop")
	if edit != nil {
		edit(op)
	}
	return op
}

// version is the place of an operation of which nothing else is known.
func version(op *v1alpha1.Operation) string { return op.ResourceVersion }

// known is the surroundings in which the named Webhooks exist, each with a timeout of ten minutes.
func known(names ...string) surroundings {
	return surroundings{find: func(name string) (webhookFacts, bool) {
		for _, n := range names {
			if n == name {
				return webhookFacts{timeout: 10 * time.Minute}, true
			}
		}
		return webhookFacts{}, false
	}}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	hooks := func(ids ...v1alpha1.WebhookID) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			op.Spec.WebhookIDs = ids
			begin(epoch, version)(op)
		}
	}
	mainly := func(id string) target { return target{webhook.Main, id} }
	both := func(edits ...func(*v1alpha1.Operation)) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			for _, edit := range edits {
				edit(op)
			}
		}
	}
	judge := func(id string, v verdict) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			attempt(op, mainly(id), "try", epoch)(op)
			judged(op, mainly(id), v, epoch)(op)
		}
	}
	won := verdict{state: v1alpha1.PhaseSuccess, code: 200}
	lost := verdict{state: v1alpha1.PhaseFailed, code: 400, reason: v1alpha1.ReasonWebhookFailed, message: "no"}
	cases := map[string]struct {
		reason string
		edit   func(*v1alpha1.Operation)
		exist  []string
		after  time.Duration
		want   act
		check  func(decision) bool
	}{
		"new": {reason: "the status does not speak of it yet", edit: nil, want: actBegin},
		"no webhook": {reason: "nothing to call is success", edit: hooks(), want: actFinish, check: func(d decision) bool {
			return d.phase == v1alpha1.PhaseSuccess
		}},
		"first": {
			reason: "sequential: one at a time", edit: hooks("a", "b"), exist: []string{"a", "b"}, want: actCall,
			check: func(d decision) bool { return len(d.due) == 1 && d.due[0] == mainly("a") },
		},
		"second": {
			reason: "the next one when the first has succeeded", edit: both(hooks("a", "b"), judge("a", won)),
			exist: []string{"a", "b"}, want: actCall,
			check: func(d decision) bool { return len(d.due) == 1 && d.due[0] == mainly("b") },
		},
		"parallel": {
			reason: "all at once", edit: both(hooks("a", "b"),
				func(op *v1alpha1.Operation) { op.Spec.Execution = v1alpha1.ExecutionParallel }),
			exist: []string{"a", "b"}, want: actCall, check: func(d decision) bool { return len(d.due) == 2 },
		},
		"missing": {
			reason: "it may appear until the deadline", edit: hooks("a"), want: actWait,
			check: func(d decision) bool { return d.until.Equal(epoch.Add(time.Hour)) && len(d.missing) == 1 },
		},
		"still missing": {
			reason: "at the deadline that is the reason", edit: hooks("a"), after: time.Hour, want: actFail,
			check: func(d decision) bool { return d.reason == v1alpha1.ReasonWebhookNotFound },
		},
		"too late": {
			reason: "no call starts after the deadline", edit: hooks("a"), exist: []string{"a"}, after: time.Hour, want: actFail,
			check: func(d decision) bool { return d.reason == v1alpha1.ReasonTimedOut },
		},
		"canceled": {
			reason: "no call starts after cancellation", exist: []string{"a"}, want: actFail,
			edit:  both(hooks("a"), func(op *v1alpha1.Operation) { op.Spec.CancelRequested = true }),
			check: func(d decision) bool { return d.reason == v1alpha1.ReasonCanceled },
		},
		"canceled too late": {
			reason: "what is done is done", exist: []string{"a"}, want: actFinish,
			edit:  both(hooks("a"), judge("a", won), func(op *v1alpha1.Operation) { op.Spec.CancelRequested = true }),
			check: func(d decision) bool { return d.phase == v1alpha1.PhaseSuccess },
		},
		"nothing to undo": {
			reason: "compensation needs a success", exist: []string{"a", "undo"}, want: actFinish,
			edit: both(hooks("a"), func(op *v1alpha1.Operation) { op.Spec.CompensateWebhookIDs = []v1alpha1.WebhookID{"undo"} },
				judge("a", lost)),
			check: func(d decision) bool { return d.phase == v1alpha1.PhaseFailed },
		},
		"undo": {
			reason: "one had succeeded", exist: []string{"a", "b", "undo"}, want: actCall,
			edit: both(hooks("a", "b"), func(op *v1alpha1.Operation) {
				op.Spec.CompensateWebhookIDs = []v1alpha1.WebhookID{"undo"}
			},
				judge("a", won), judge("b", lost)),
			check: func(d decision) bool { return d.due[0] == target{webhook.Compensate, "undo"} },
		},
		"notify": {
			reason: "once the outcome is decided", exist: []string{"tell"}, want: actCall,
			edit:  both(hooks(), func(op *v1alpha1.Operation) { op.Spec.NotifyWebhookID = "tell" }),
			check: func(d decision) bool { return d.due[0] == target{webhook.Notify, "tell"} },
		},
		"recorded without an answer": {
			reason: "after a crash the same attempt is made again", exist: []string{"a"}, want: actCall,
			edit: both(hooks("a"), func(op *v1alpha1.Operation) { attempt(op, mainly("a"), "try", epoch)(op) }),
		},
		"name": {
			reason: "a request that no Scheduler made, under a name of its own",
			edit:   both(hooks(), func(op *v1alpha1.Operation) { op.Name = "mine" }),
			want:   actFail, check: func(d decision) bool { return d.reason == v1alpha1.ReasonInvalid },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plan(requested(c.edit), known(c.exist...), epoch.Add(c.after))
			if d.act != c.want || c.check != nil && !c.check(d) {
				t.Errorf("%s: got %+v, want act %d", c.reason, d, c.want)
			}
		})
	}
}

// TestAnyCourseEnds lets operations of any shape run through any answers, lost answers, conflicts, cancellation and the
// passing of time, by plan and the changes alone. It ends exactly once and with a reason (O1), every call is recorded
// before it is made (O2), and no change of the past has an effect. The first call of an ordinary operation need not be
// recorded: a crash makes the status forget it, and whoever goes on makes the same attempt.
func TestAnyCourseEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := func(prefix string, most int) (all []v1alpha1.WebhookID) {
			for i := range rapid.IntRange(0, most).Draw(t, prefix) {
				all = append(all, fmt.Sprint(prefix, i))
			}
			return all
		}
		op := requested(func(op *v1alpha1.Operation) {
			op.Spec.WebhookIDs, op.Spec.CompensateWebhookIDs = ids("w", 4), ids("c", 2)
			if rapid.Bool().Draw(t, "notify") {
				op.Spec.NotifyWebhookID = "n"
			}
			if rapid.Bool().Draw(t, "parallel") {
				op.Spec.Execution = v1alpha1.ExecutionParallel
			}
		})
		missing := rapid.SampledFrom([]string{"", "", "w0", "c0", "n"}).Draw(t, "missing")
		const timeout = 10 * time.Minute
		around := surroundings{
			flying: map[target]*flight{},
			find:   func(name string) (webhookFacts, bool) { return webhookFacts{timeout: timeout}, name != missing },
		}
		now, tries, first := epoch, 0, ""
		stored, unrecorded := op.DeepCopy(), false
		var past []change
		why := "" // the first reason of a failure, which stays
		do := func(c change) {
			c(op)
			past = append(past, c)
			failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
			if failed == nil || failed.Status != metav1.ConditionTrue {
				return
			}
			if why == "" {
				why = failed.Reason + failed.Message
			} else if why != failed.Reason+failed.Message {
				t.Fatalf("the reason has changed from %q to %q", why, failed.Reason+failed.Message)
			}
		}
		for range 400 {
			if rapid.IntRange(0, 30).Draw(t, "cancel") == 0 {
				op.Spec.CancelRequested = true
			}
			d := plan(op, around, now)
			switch d.act {
			case actNothing:
				checkEnd(t, op, past)
				return
			case actBegin:
				do(begin(now, version))
			case actFail:
				do(fail(op.EffectiveID(), d.reason, d.message, now))
			case actFinish:
				do(finish(op.EffectiveID(), d.phase, now))
			case actWait:
				if !d.until.After(now) {
					t.Fatalf("waits until %v at %v: it would turn for ever", d.until, now)
				}
				if !d.until.Before(farFuture) {
					t.Fatalf("waits for nothing: %+v", op.Status)
				}
				if len(d.missing) > 0 {
					do(await(op.EffectiveID(), v1alpha1.ReasonWaitingForWebhook, "waiting", now))
				}
				now = d.until
			case actCall:
				for _, of := range d.due {
					e := entry(&op.Status, of)
					if e != nil && e.State.Terminal() {
						t.Fatalf("%v is called after its end", of)
					}
					if of.id == missing { // its maker finds that it cannot be made
						do(judged(op, of, verdict{
							state: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonWebhookNotFound,
							message: "missing",
						}, now))
						continue
					}
					if e != nil && e.StartedAt != nil && !now.Before(e.StartedAt.Add(timeout)) {
						do(judged(op, of, verdict{state: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonTimedOut, message: "late"}, now))
						continue
					}
					switch {
					case firstTry(op, of):
						id := newAttempt(op, of)
						if first != "" && id != first {
							t.Fatalf("the first attempt was %s, and is %s", first, id)
						}
						first, unrecorded = id, ordinary(op) && rapid.Bool().Draw(t, "unrecorded")
						do(attempt(op, of, id, now))
					case e == nil || e.NextAttemptAt != nil:
						tries++
						do(attempt(op, of, fmt.Sprint("try", tries), now))
					}
					if e = entry(&op.Status, of); e == nil || e.AttemptID == "" {
						t.Fatalf("%v is called without a record", of)
					}
					answer := verdict{code: 200, state: v1alpha1.PhaseSuccess}
					switch rapid.IntRange(0, 4).Draw(t, "answer") {
					case 0:
						answer = verdict{
							code: 400, state: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonWebhookFailed,
							message: "no to " + of.id,
						}
					case 1:
						answer = verdict{code: 503, state: v1alpha1.PhaseInProgress, next: now.Add(time.Minute)}
					case 2:
						answer = verdict{code: 202, state: v1alpha1.PhaseInProgress} // the callback never comes
					case 3:
						if unrecorded { // and all that was only in memory
							unrecorded, why = false, ""
							op.Status = *stored.Status.DeepCopy()
						}
						continue // the answer is lost in a crash
					}
					unrecorded = false
					do(judged(op, of, answer, now))
				}
			}
		}
		t.Fatalf("it has not ended after 400 turns: %+v", op.Status)
	})
}

// checkEnd holds an operation that has ended to O1, and makes every change of its past again, as after a conflict or by
// a predecessor.
func checkEnd(t *rapid.T, op *v1alpha1.Operation, past []change) {
	failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
	switch {
	case !op.Terminal() || op.Status.FinishedAt == nil || failed == nil:
		t.Fatalf("no end: %+v", op.Status)
	case op.Status.Phase == v1alpha1.PhaseFailed &&
		(failed.Status != metav1.ConditionTrue || failed.Reason == "" || failed.Message == ""):
		t.Fatalf("failed without a reason: %+v", failed)
	case op.Status.Phase == v1alpha1.PhaseSuccess &&
		(failed.Status == metav1.ConditionTrue || succeeded(op) != len(op.Spec.WebhookIDs)):
		t.Fatalf("a success that is none: %+v", op.Status)
	}
	for _, e := range op.Status.Webhooks {
		if !e.State.Terminal() {
			t.Fatalf("webhook %s is in progress after the end", e.WebhookID)
		}
	}
	before := op.DeepCopy()
	other := map[v1alpha1.Phase]v1alpha1.Phase{
		v1alpha1.PhaseSuccess: v1alpha1.PhaseFailed, v1alpha1.PhaseFailed: v1alpha1.PhaseSuccess,
	}
	later := op.Status.FinishedAt.Add(time.Minute)
	for _, c := range append(past, fail(op.EffectiveID(), v1alpha1.ReasonTimedOut, "late", later),
		finish(op.EffectiveID(), other[op.Status.Phase], later)) {
		c(op)
	}
	if op.Status.Phase != before.Status.Phase || !op.Status.FinishedAt.Equal(before.Status.FinishedAt) ||
		len(op.Status.History) != len(before.Status.History) {
		t.Fatalf("a change of the past has changed the outcome:\n%+v\n%+v", before.Status, op.Status)
	}
	id := op.Spec.OperationID // the next request of the same resource: nothing of the old one touches it
	op.Spec.OperationID = "two"
	begin(epoch, version)(op)
	fresh := op.DeepCopy()
	for _, c := range past[1:] {
		c(op)
	}
	if len(op.Status.Webhooks) != 0 || op.Status.Phase != v1alpha1.PhaseInProgress ||
		len(op.Status.Conditions) != len(fresh.Status.Conditions) ||
		meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError) {
		t.Fatalf("the operation before has changed the next: %+v", op.Status)
	}
	if h := op.Status.History; len(h) != 1 || h[0].OperationID != id || h[0].Phase != before.Status.Phase ||
		h[0].Phase == v1alpha1.PhaseFailed && h[0].Reason == "" {
		t.Fatalf("the outcome is not in history: %+v", h)
	}
}

func TestTidy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.StringN(0, -1, 4*webhook.MaxMessage)).Draw(t, "in") +
			string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		out := tidy(in)
		if len(out) > webhook.MaxMessage || tidy(out) != out {
			t.Fatalf("%q became %q of %d bytes", in, out, len(out))
		}
	})
}
