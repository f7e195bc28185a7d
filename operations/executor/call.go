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

// launch starts a call whose attempt is recorded. The call ends at the latest at the timeout of its Webhook or
// operation.
func (s *starter) launch(ctx context.Context, r *run, f *flight) {
	en := record.Entry(&r.op.Status, f.target)
	deadline := en.StartedAt.Add(f.hook.Definition().Timeout)
	if end := r.op.Deadline(); f.target.Purpose == record.Main && end.Before(deadline) {
		deadline = end
	}
	if r.flying == nil {
		r.flying = make(map[record.Target]*flight)
	}
	r.flying[f.target], f.operation = f, r.op.EffectiveID()
	c := describe(r.op, f.target, s.callbackURL)
	ctx = context.WithoutCancel(s.traces.passOn(ctx, r.op)) // the flow parks meanwhile
	s.calls.start(ctx, r, f, c, en.WebhookPollURL, deadline)
}

// applyResults applies the results of calls that have returned. It writes nothing: the changes are part of the next
// write.
func (s *starter) applyResults(ctx context.Context, r *run, returned []returnedCall, now time.Time) {
	for _, l := range returned {
		f := l.flight
		f.cancel(nil)
		delete(r.flying, f.target)
		en := record.Entry(&r.op.Status, f.target)
		s.reports.called(f, l.result)
		switch {
		case l.result.Verdict == webhook.Canceled:
			continue // the result is not known; the same attempt is made again
		case en == nil || en.AttemptID != f.attempt:
			continue // the operation has another request or attempt by now
		}
		v := judge(r.op, f, l.result, now)
		s.reports.judged(ctx, r.op, f, l.result, v.Message)
		if changesNothing(en, v, now) || s.paces.pollWaits(r.party(), en, v, now) {
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

// pollsWritten is the time between writes of polls that change only the time of the next poll.
const pollsWritten = 5 * time.Second

// changesNothing reports whether the result of a poll need not be written. Within pollsWritten after the last written
// poll, that is so for an equal result. It is also so if the next poll comes within that time.
func changesNothing(en *v1alpha1.WebhookCallStatus, v course.Verdict, now time.Time) bool {
	if !v.Polled || v.State.Terminal() || v.Next.IsZero() || en.LastPollTimestamp == nil {
		return false
	}
	again := en.LastPollTimestamp.Add(pollsWritten)
	same := int32(v.Code) == en.LastStatusCode && course.Tidy(v.Message) == en.Message
	return now.Before(again) && (same || v.Next.Before(again))
}

// judge returns the verdict that records a result.
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
	next := func(delay time.Duration) { // NextPoll and NextTry may wait longer than the receiver asks
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

// describe returns the data for the templates of a call, with the key of the call.
func describe(op *v1alpha1.Operation, t record.Target, callback callbackURL) webhook.Call {
	c := webhook.Call{ID: course.CallID(op, t), CorrelationID: op.Spec.CorrelationID}
	id, spec := op.EffectiveID(), op.Spec // a copy, since op changes while the call is under way
	c.Data.Operation = func() webhook.Fields { return specFields(id, spec) }
	if o := op.Spec.RequestObject; o != nil {
		c.Data.TenantID, c.Data.Headers = o.TenantID, o.Headers
		if o.Resource != nil {
			c.Data.Resource = json.RawMessage(o.Resource.Raw)
		}
	}
	c.Data.CallbackURL = callback(op, t.ID, webhook.Purpose(t.Purpose))
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

// specFields returns the spec under its JSON names, with the operation's id. It includes unset fields, so that a
// template that uses one does not fail when the user leaves it out.
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
		d.UseNumber() // keeps long numbers exact
		err = d.Decode(&fields)
	}
	if err != nil {
		panic(fmt.Sprintf("cannot encode the spec of an operation: %v", err)) // it was decoded from JSON
	}
	return fields
}
