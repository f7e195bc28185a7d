package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// launch starts a call whose attempt is recorded. It ends at the latest with the timeout of its Webhook or operation.
func (e *Executor) launch(ctx context.Context, r *run, f *flight) {
	c := e.describe(r.op, f.target)
	c.After = e.tried.last(c.ID)
	en := record.Entry(&r.op.Status, f.target)
	pollURL := en.WebhookPollURL
	deadline := en.StartedAt.Add(f.hook.Definition().Timeout)
	if end := r.op.Deadline(); f.target.Purpose == record.Main && end.Before(deadline) {
		deadline = end
	}
	if r.flying == nil {
		r.flying = make(map[record.Target]*flight)
	}
	r.flying[f.target], f.since, f.operation = f, e.now(), r.op.EffectiveID()
	ctx, f.cancel = context.WithCancelCause(context.WithoutCancel(e.passOn(ctx, r.op))) // the flow parks meanwhile
	ctx, stop := context.WithDeadlineCause(ctx, deadline, errDeadline)
	e.count(r.key.Namespace)
	e.flights.Go(func() {
		defer e.exit(r.key.Namespace)
		defer stop()
		l := landing{flight: f}
		if pollURL != "" {
			l.result = f.permit.Poll(ctx, c, pollURL)
		} else {
			l.result = f.permit.Call(ctx, c)
		}
		e.holders.leave(f, r.key.Namespace)
		e.tried.note(c.ID, l.result)
		e.attempts.note(r.key, f, pollURL != "", e.now(), l.result)
		e.mu.Lock()
		r.back = append(r.back, l)
		e.mu.Unlock()
		e.home(r, f.hook) // after that, since it may be kept for another call of this operation, which is perhaps decided now
		r.news.Set()
	})
}

// land applies what the calls that have come back brought. Nothing is written here: that is part of the next write.
func (e *Executor) land(ctx context.Context, r *run, back []landing, now time.Time) {
	for _, l := range back {
		f := l.flight
		f.cancel(nil)
		delete(r.flying, f.target)
		en := record.Entry(&r.op.Status, f.target)
		e.metrics.result(f.target, l.result)
		switch {
		case l.result.Verdict == webhook.Canceled:
			continue // nothing is known; whoever pursues the call makes the same attempt again
		case en == nil || en.AttemptID != f.attempt:
			continue // too late: the operation is about something else by now
		}
		v := judge(r.op, f, l.result, now)
		e.log.InfoContext(ctx, "webhook called", "operation", r.op.EffectiveID(), "key", r.key, "webhook", f.target.ID,
			"purpose", f.target.Purpose, "verdict", l.result.Verdict, "status", l.result.StatusCode,
			"took", l.result.Duration, "message", v.Message)
		if changesNothing(en, v, now) || e.pollWaits(r, en, v, now) {
			if r.later == nil {
				r.later = make(map[record.Target]time.Time)
			}
			r.later[f.target] = v.Next
			continue
		}
		delete(r.later, f.target)
		judged := unsavedChange{Change: course.Judged(r.op, f.target, v, now)}
		if repeatsSoon(en, v, now) {
			r.foldRepeats(f.target)
			judged.repeated, judged.target = now, f.target
		}
		r.change(judged)
		r.owes = true
	}
}

// pollsWritten is how often polls are written that change nothing but when the next one is due.
const pollsWritten = 5 * time.Second

// changesNothing tells whether what a poll has brought need not be written: it says what the one before said, or the
// next one comes before what changes all the time is to be written again.
func changesNothing(en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	if !v.Polled || v.State.Terminal() || v.Next.IsZero() || en.LastPollTimestamp == nil {
		return false
	}
	again := en.LastPollTimestamp.Add(pollsWritten)
	same := int32(v.Code) == en.LastStatusCode && course.Tidy(v.Message) == en.Message
	return now.Before(again) && (same || v.Next.Before(again))
}

// pollWaits tells whether what a frequent poll has brought is left to a later one, since the tenant makes enough writes.
func (e *Executor) pollWaits(r *run, en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	return v.Polled && !v.State.Terminal() && !v.Next.IsZero() && en.LastPollTimestamp != nil &&
		v.Next.Before(now.Add(pollsWritten)) && !e.paces.take(r.party(), now)
}

// comeBackLater keeps what the calls brought for the next look.
func (e *Executor) comeBackLater(r *run, back []landing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.back = append(back, r.back...)
}

// judge says what a result means for the record of its call.
func judge(op *v1alpha1.Operation, f *flight, result webhook.Result, now time.Time) course.Verdict {
	en := record.Entry(&op.Status, f.target)
	v := course.Verdict{
		State: v1alpha1.PhaseInProgress, Code: result.StatusCode, Message: result.Message,
		Polled: en.WebhookPollURL != "",
	}
	if result.Gone && op.Spec.OperationType == v1alpha1.OperationDelete && !v.Polled {
		v.State, v.Message = v1alpha1.PhaseSuccess, ""
		return v
	}
	failed := func(reason string) course.Verdict {
		v.State, v.Reason = v1alpha1.PhaseFailed, reason
		if v.Message == "" {
			v.Message = "webhook " + f.target.ID + " failed"
		}
		return v
	}
	next := func(delay time.Duration) { // what the receiver asks for may be too soon for us
		v.Next, v.Asked = now.Add(delay), result.RetryAfter >= delay
	}
	switch result.Verdict {
	case webhook.Succeeded:
		v.State = v1alpha1.PhaseSuccess
	case webhook.Accepted:
		if v.PollURL = result.Location; v.PollURL != "" {
			next(f.hook.NextPoll(result))
		} else if v.Message == "" {
			v.Message = "waiting for the callback"
		}
	case webhook.Pending:
		next(f.hook.NextPoll(result))
	case webhook.Retry:
		delay, more := f.hook.NextTry(int(en.RetriesCount)+1, result, rand.Float64)
		if !more {
			return failed(v1alpha1.ReasonRetriesExhausted)
		}
		next(delay)
	case webhook.Invalid:
		return failed(v1alpha1.ReasonInvalid)
	case webhook.Refused:
		return failed(v1alpha1.ReasonTargetRefused)
	default:
		return failed(v1alpha1.ReasonWebhookFailed)
	}
	return v
}

// describe returns what templates see of an operation, and the key of the call.
func (e *Executor) describe(op *v1alpha1.Operation, t record.Target) webhook.Call {
	c := webhook.Call{ID: course.CallID(op, t), CorrelationID: op.Spec.CorrelationID}
	id, spec := op.EffectiveID(), op.Spec // op changes while the call is under way
	c.Data.Operation = func() webhook.Fields { return specFields(id, spec) }
	if o := op.Spec.RequestObject; o != nil {
		c.Data.TenantID, c.Data.Headers = o.TenantID, o.Headers
		if o.Resource != nil {
			c.Data.Resource = json.RawMessage(o.Resource.Raw)
		}
	}
	c.Data.CallbackURL = e.callbacks.URL(op, t.ID, webhook.Purpose(t.Purpose))
	if t.Purpose == record.Main {
		return c
	}
	c.Data.Outcome = &webhook.Outcome{Phase: string(v1alpha1.PhaseSuccess)}
	if failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); failed != nil &&
		failed.Status == "True" {
		c.Data.Outcome = &webhook.Outcome{
			Phase: string(v1alpha1.PhaseFailed), Reason: failed.Reason, Message: failed.Message,
		}
	}
	return c
}

// specFields returns the spec under its JSON names, the operation's id included. Fields that are not set are there too,
// so that a template that shows one does not fail for those who leave it out.
func specFields(operationID string, spec v1alpha1.OperationSpec) webhook.Fields {
	spec.OperationID = operationID
	raw, err := json.Marshal(spec)
	fields := webhook.Fields{
		"operationCategory": "", "correlationID": "", "notifyWebhookID": "", "cancelRequested": false,
		"webhookIDs": []any{}, "compensateWebhookIDs": []any{}, "relatedResources": []any{}, "requestObject": nil,
		"ttlAfterFinished": nil,
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber() // as they were written, however long
		err = d.Decode(&fields)
	}
	if err != nil {
		panic(fmt.Sprintf("cannot encode the spec of an operation: %v", err)) // it came from JSON
	}
	return fields
}
