package course

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

var epoch = coursetest.Epoch()

// known returns surroundings in which the named Webhooks exist, each with a timeout of ten minutes.
func known(names ...string) Surroundings {
	return alone(func(name string) (WebhookFacts, bool) {
		return WebhookFacts{Timeout: 10 * time.Minute}, slices.Contains(names, name)
	})
}

// alone returns surroundings in which no call is under way.
func alone(find Lookup) Surroundings {
	return Surroundings{
		Find: find, Flying: func(record.Target) bool { return false },
		NotBefore: func(record.Target) time.Time { return time.Time{} },
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	hooks := func(ids ...v1alpha1.WebhookID) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			op.Spec.WebhookIDs = ids
			Begin(epoch, coursetest.Version)(op)
		}
	}
	mainly := func(id string) record.Target { return record.Target{Purpose: record.Main, ID: id} }
	both := func(edits ...func(*v1alpha1.Operation)) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			for _, edit := range edits {
				edit(op)
			}
		}
	}
	judge := func(id string, v Verdict) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			Attempt(op, mainly(id), "try", 0, epoch)(op)
			Judged(op, mainly(id), v, epoch)(op)
		}
	}
	won := Verdict{State: v1alpha1.PhaseSuccess, Code: 200}
	lost := Verdict{State: v1alpha1.PhaseFailed, Code: 400, Reason: v1alpha1.ReasonWebhookFailed, Message: "no"}
	cases := map[string]struct {
		reason string
		edit   func(*v1alpha1.Operation)
		exist  []string
		after  time.Duration
		want   Act
		check  func(Decision) bool
	}{
		"new": {reason: "the status does not speak of it yet", edit: nil, want: ActBegin},
		"no webhook": {reason: "nothing to call is success", edit: hooks(), want: ActFinish, check: func(d Decision) bool {
			return d.Phase == v1alpha1.PhaseSuccess
		}},
		"first": {
			reason: "sequential: one at a time", edit: hooks("a", "b"), exist: []string{"a", "b"}, want: ActCall,
			check: func(d Decision) bool { return len(d.Due) == 1 && d.Due[0] == mainly("a") },
		},
		"second": {
			reason: "the next one when the first has succeeded", edit: both(hooks("a", "b"), judge("a", won)),
			exist: []string{"a", "b"}, want: ActCall,
			check: func(d Decision) bool { return len(d.Due) == 1 && d.Due[0] == mainly("b") },
		},
		"parallel": {
			reason: "all at once", edit: both(hooks("a", "b"),
				func(op *v1alpha1.Operation) { op.Spec.Execution = v1alpha1.ExecutionParallel }),
			exist: []string{"a", "b"}, want: ActCall, check: func(d Decision) bool { return len(d.Due) == 2 },
		},
		"missing": {
			reason: "the Webhook may appear until the deadline", edit: hooks("a"), want: ActWait,
			check: func(d Decision) bool { return d.Until.Equal(epoch.Add(time.Hour)) && len(d.Missing) == 1 },
		},
		"still missing": {
			reason: "at the deadline its absence is the reason", edit: hooks("a"), after: time.Hour, want: ActFail,
			check: func(d Decision) bool { return d.Reason == v1alpha1.ReasonWebhookNotFound },
		},
		"too late": {
			reason: "no call starts after the deadline", edit: hooks("a"), exist: []string{"a"}, after: time.Hour, want: ActFail,
			check: func(d Decision) bool { return d.Reason == v1alpha1.ReasonTimedOut },
		},
		"canceled": {
			reason: "no call starts after cancellation", exist: []string{"a"}, want: ActFail,
			edit:  both(hooks("a"), func(op *v1alpha1.Operation) { op.Spec.CancelRequested = true }),
			check: func(d Decision) bool { return d.Reason == v1alpha1.ReasonCanceled },
		},
		"canceled too late": {
			reason: "ended calls stay", exist: []string{"a"}, want: ActFinish,
			edit:  both(hooks("a"), judge("a", won), func(op *v1alpha1.Operation) { op.Spec.CancelRequested = true }),
			check: func(d Decision) bool { return d.Phase == v1alpha1.PhaseSuccess },
		},
		"nothing to undo": {
			reason: "compensation needs a success", exist: []string{"a", "undo"}, want: ActFinish,
			edit: both(hooks("a"), func(op *v1alpha1.Operation) { op.Spec.CompensateWebhookIDs = []v1alpha1.WebhookID{"undo"} },
				judge("a", lost)),
			check: func(d Decision) bool { return d.Phase == v1alpha1.PhaseFailed },
		},
		"undo": {
			reason: "one had succeeded", exist: []string{"a", "b", "undo"}, want: ActCall,
			edit: both(hooks("a", "b"), func(op *v1alpha1.Operation) {
				op.Spec.CompensateWebhookIDs = []v1alpha1.WebhookID{"undo"}
			},
				judge("a", won), judge("b", lost)),
			check: func(d Decision) bool { return d.Due[0] == record.Target{Purpose: record.Compensate, ID: "undo"} },
		},
		"notify": {
			reason: "once the outcome is decided", exist: []string{"tell"}, want: ActCall,
			edit:  both(hooks(), func(op *v1alpha1.Operation) { op.Spec.NotifyWebhookID = "tell" }),
			check: func(d Decision) bool { return d.Due[0] == record.Target{Purpose: record.Notify, ID: "tell"} },
		},
		"recorded without an answer": {
			reason: "after a crash the same attempt is made again", exist: []string{"a"}, want: ActCall,
			edit: both(hooks("a"), func(op *v1alpha1.Operation) { Attempt(op, mainly("a"), "try", 0, epoch)(op) }),
		},
		"name": {
			reason: "a request without the Scheduler, with another name",
			edit:   both(hooks(), func(op *v1alpha1.Operation) { op.Name = "mine" }),
			want:   ActFail, check: func(d Decision) bool { return d.Reason == v1alpha1.ReasonInvalid },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Plan(coursetest.Requested(c.edit), known(c.exist...), epoch.Add(c.after))
			if d.Act != c.want || c.check != nil && !c.check(d) {
				t.Errorf("%s: got %+v, want act %d", c.reason, d, c.want)
			}
		})
	}
}

// TestTimesOfAnotherClock bounds the wait for a time that a replica with another clock has recorded.
func TestTimesOfAnotherClock(t *testing.T) {
	t.Parallel()
	facts := WebhookFacts{
		Timeout: 48 * time.Hour, Retry: backoff.Policy{Base: time.Second, Cap: time.Minute}, Poll: 10 * time.Second,
	}
	for name, c := range map[string]struct {
		tries       int           // before this one
		next        time.Duration // recorded
		poll, asked bool
		ahead       time.Duration // of the clock that recorded it
		due         bool
		after       time.Duration // the time left until it is due
	}{
		"a try, by our clock":            {next: time.Second, after: time.Second},
		"a try, a little ahead":          {next: time.Second, ahead: time.Second, after: 2 * time.Second},
		"a try, a minute ahead":          {next: time.Second, ahead: time.Minute, due: true},
		"a try, two seconds ahead":       {next: time.Second, ahead: 2 * time.Second, due: true},
		"the sixth try, a little":        {tries: 5, next: 32 * time.Second, ahead: time.Second, after: 33 * time.Second},
		"the sixth try, ahead":           {tries: 5, next: 20 * time.Second, ahead: 14 * time.Second, due: true},
		"a try with Retry-After":         {next: 10 * time.Minute, asked: true, after: 10 * time.Minute},
		"a poll, by our clock":           {next: 10 * time.Second, poll: true, after: 10 * time.Second},
		"a poll, two seconds ahead":      {next: 10 * time.Second, poll: true, ahead: 2 * time.Second, due: true},
		"a poll, a minute ahead":         {next: 10 * time.Second, poll: true, ahead: time.Minute, due: true},
		"asked for a day, ahead":         {next: 24 * time.Hour, poll: true, asked: true, ahead: time.Minute, due: true},
		"a poll with Retry-After":        {next: 30 * time.Minute, poll: true, asked: true, after: 30 * time.Minute},
		"a poll, by a clock behind ours": {next: 10 * time.Second, poll: true, ahead: -time.Minute, due: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := record.Target{Purpose: record.Main, ID: "a"}
			op := coursetest.Requested(func(op *v1alpha1.Operation) {
				op.Spec.WebhookIDs = []v1alpha1.WebhookID{of.ID}
				Begin(epoch, coursetest.Version)(op)
				for i := range c.tries + 1 {
					Attempt(op, of, fmt.Sprint("try ", i), 0, epoch)(op)
				}
				v := Verdict{State: v1alpha1.PhaseInProgress, Next: epoch.Add(c.ahead + c.next), Asked: c.asked}
				if c.poll {
					v.PollURL = "https://example.com/poll"
				}
				Judged(op, of, v, epoch.Add(c.ahead))(op)
			})
			d := Plan(op, alone(func(string) (WebhookFacts, bool) { return facts, true }), epoch)
			if due := d.Act == ActCall; due != c.due {
				t.Fatalf("due %v: %+v", due, d)
			}
			if !c.due && !d.Until.Equal(epoch.Add(c.after)) {
				t.Errorf("waits until %v, not for %v", d.Until, c.after)
			}
		})
	}
}

// TestAnyCourseEnds runs operations of any shape through answers, lost answers, conflicts, cancellation and the passing
// of time. It uses only the plan and its changes. An operation ends exactly once and with a reason (O1), and every call
// is recorded before it is made (O2). Repeating past changes has no effect. The first call of an ordinary operation
// need not be recorded. A crash then removes it from the status, and the next replica makes the same attempt.
func TestAnyCourseEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := func(prefix string, most int) (all []v1alpha1.WebhookID) {
			for i := range rapid.IntRange(0, most).Draw(t, prefix) {
				all = append(all, fmt.Sprint(prefix, i))
			}
			return all
		}
		op := coursetest.Requested(func(op *v1alpha1.Operation) {
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
		around := alone(func(name string) (WebhookFacts, bool) {
			return WebhookFacts{Timeout: timeout, Retry: backoff.Policy{Base: time.Minute}}, name != missing
		})
		now, tries, first := epoch, 0, ""
		stored, unrecorded := op.DeepCopy(), false
		var past []Change
		why := "" // the first reason of a failure never changes
		do := func(c Change) {
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
			d := Plan(op, around, now)
			switch d.Act {
			case ActNothing:
				checkEnd(t, op, past)
				return
			case ActBegin:
				do(Begin(now, coursetest.Version))
			case ActFail:
				do(Fail(op.EffectiveID(), d.Reason, d.Message, now))
			case ActFinish:
				do(Finish(op, d.Phase, now))
			case ActWait:
				if !d.Until.After(now) {
					t.Fatalf("waits until %v at %v, which is an endless loop", d.Until, now)
				}
				if !d.Until.Before(FarFuture) {
					t.Fatalf("waits for nothing: %+v", op.Status)
				}
				if len(d.Missing) > 0 {
					do(Await(op.EffectiveID(), v1alpha1.ReasonWaitingForWebhook, "waiting", now))
				}
				now = d.Until
			case ActCall:
				for _, of := range d.Due {
					e := record.Entry(&op.Status, of)
					if e != nil && e.State.Terminal() {
						t.Fatalf("%v is called after its end", of)
					}
					if of.ID == missing { // the executor finds that the call cannot be made
						do(Judged(op, of, Verdict{
							State: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonWebhookNotFound,
							Message: "missing",
						}, now))
						continue
					}
					if e != nil && e.StartedAt != nil && !now.Before(e.StartedAt.Add(timeout)) {
						do(Judged(op, of, Verdict{State: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonTimedOut, Message: "late"}, now))
						continue
					}
					switch {
					case FirstTry(op, of):
						id := NewAttempt(op, of)
						if first != "" && id != first {
							t.Fatalf("the first attempt was %s, and is %s", first, id)
						}
						first, unrecorded = id, Ordinary(op) && rapid.Bool().Draw(t, "unrecorded")
						do(Attempt(op, of, id, 0, now))
					case e == nil || e.NextAttemptAt != nil:
						tries++
						do(Attempt(op, of, fmt.Sprint("try", tries), 0, now))
					}
					if e = record.Entry(&op.Status, of); e == nil || e.AttemptID == "" {
						t.Fatalf("%v is called without a record", of)
					}
					answer := Verdict{Code: 200, State: v1alpha1.PhaseSuccess}
					switch rapid.IntRange(0, 4).Draw(t, "answer") {
					case 0:
						answer = Verdict{
							Code: 400, State: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonWebhookFailed,
							Message: "no to " + of.ID,
						}
					case 1:
						answer = Verdict{Code: 503, State: v1alpha1.PhaseInProgress, Next: now.Add(time.Minute)}
					case 2:
						answer = Verdict{Code: 202, State: v1alpha1.PhaseInProgress} // the callback never comes
					case 3:
						if unrecorded { // so everything that was only in memory is lost
							unrecorded, why = false, ""
							op.Status = *stored.Status.DeepCopy()
						}
						continue // a crash loses the answer
					}
					unrecorded = false
					do(Judged(op, of, answer, now))
				}
			}
		}
		t.Fatalf("it has not ended after 400 turns: %+v", op.Status)
	})
}

// checkEnd checks an ended operation against O1. It also repeats every past change, as after a conflict or by a
// predecessor.
func checkEnd(t *rapid.T, op *v1alpha1.Operation, past []Change) {
	failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
	switch {
	case !op.Terminal() || op.Status.FinishedAt == nil || failed == nil:
		t.Fatalf("no end: %+v", op.Status)
	case op.Status.Phase == v1alpha1.PhaseFailed &&
		(failed.Status != metav1.ConditionTrue || failed.Reason == "" || failed.Message == ""):
		t.Fatalf("failed without a reason: %+v", failed)
	case op.Status.Phase == v1alpha1.PhaseSuccess &&
		(failed.Status == metav1.ConditionTrue || record.SucceededCalls(op) != len(op.Spec.WebhookIDs)):
		t.Fatalf("an invalid success: %+v", op.Status)
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
	for _, c := range append(past, Fail(op.EffectiveID(), v1alpha1.ReasonTimedOut, "late", later),
		Finish(op, other[op.Status.Phase], later)) {
		c(op)
	}
	if op.Status.Phase != before.Status.Phase || !op.Status.FinishedAt.Equal(before.Status.FinishedAt) ||
		len(op.Status.History) != len(before.Status.History) {
		t.Fatalf("a change of the past has changed the outcome:\n%+v\n%+v", before.Status, op.Status)
	}
	id := op.Spec.OperationID // no change of the old request affects the next request of the same resource
	op.Spec.OperationID = "two"
	Begin(epoch, coursetest.Version)(op)
	fresh := op.DeepCopy()
	for _, c := range past[1:] {
		c(op)
	}
	if len(op.Status.Webhooks) != 0 || op.Status.Phase != v1alpha1.PhaseInProgress ||
		len(op.Status.Conditions) != len(fresh.Status.Conditions) ||
		meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError) {
		t.Fatalf("the previous operation has changed the next one: %+v", op.Status)
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
		out := Tidy(in)
		if len(out) > webhook.MaxMessage || Tidy(out) != out {
			t.Fatalf("%q became %q of %d bytes", in, out, len(out))
		}
	})
}

// TestFinishIsDecidedAgain: an operation decides to fail before the callback of another call arrives. The failure is
// not written to the state with the callback, since a compensation may be due.
func TestFinishIsDecidedAgain(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	op := &v1alpha1.Operation{}
	op.Spec.OperationID, op.Status.OperationID = "id", "id"
	op.Status.Phase = v1alpha1.PhaseInProgress
	op.Status.Webhooks = []v1alpha1.WebhookCallStatus{
		{WebhookID: "bad", State: v1alpha1.PhaseFailed}, {WebhookID: "back", State: v1alpha1.PhaseInProgress},
	}
	Fail("id", v1alpha1.ReasonWebhookFailed, "bad", now)(op)
	finish := Finish(op, v1alpha1.PhaseFailed, now)
	reported := op.DeepCopy()
	reported.Status.Webhooks[1].State = v1alpha1.PhaseSuccess
	if finish(reported); reported.Status.Phase.Terminal() {
		t.Errorf("it ended without regard to the success meanwhile: %+v", reported.Status)
	}
	if finish(op); op.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("it did not end: %+v", op.Status)
	}
}

// TestLastErrorStays: the error of a try is kept during the next try, with the status of its answer.
func TestLastErrorStays(t *testing.T) {
	t.Parallel()
	hook := record.Target{Purpose: record.Main, ID: "cleanup"}
	for name, tc := range map[string]struct {
		reason  string
		code    int
		message string
		want    string
	}{
		"Silent":   {"No answer has no status.", 0, "no answer within 10m0s", "no answer within 10m0s"},
		"Answered": {"The message has the status.", 503, "answered 503: busy", "answered 503: busy"},
		"Own":      {"The Webhook words the message itself.", 503, "no such plan", "answered 503: no such plan"},
		"Long": {
			"It is no longer than any message.", 503, strings.Repeat("x", webhook.MaxMessage),
			"answered 503: " + strings.Repeat("x", webhook.MaxMessage-len("answered 503: …")) + "…",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{OperationID: "one", WebhookIDs: []string{hook.ID}}}
			Begin(now, func(*v1alpha1.Operation) string { return "" })(op)
			Attempt(op, hook, "first", 0, now)(op)
			Judged(op, hook, Verdict{
				State: v1alpha1.PhaseInProgress, Code: tc.code, Message: tc.message, Next: now.Add(time.Second),
			}, now)(op)
			Attempt(op, hook, "second", 0, now)(op)
			e := record.Entry(&op.Status, hook)
			if e.Message != tc.want || e.RetriesCount != 1 || e.AwaitsCallback() {
				t.Errorf("%s The record is %+v, want message %q.", tc.reason, e, tc.want)
			}
			Judged(op, hook, Verdict{State: v1alpha1.PhaseSuccess, Code: 200}, now)(op)
			if e.Message != "" {
				t.Errorf("After a success the record has the message %q.", e.Message)
			}
		})
	}
}
