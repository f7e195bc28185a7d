package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/webhook"
)

// call makes the calls that are due and applies what they bring. Nothing is written here: that is part of the next
// write of advance.
func (e *Executor) call(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	r := f.Packet
	due := r.due
	r.due = nil
	results := make([]webhook.Result, len(due))
	var calls sync.WaitGroup
	for i, p := range due {
		c := e.describe(r.op, p.target)
		perform := func() {
			if en := entry(&r.op.Status, p.target); en.WebhookPollURL != "" {
				results[i] = p.permit.Poll(ctx, c, en.WebhookPollURL)
			} else {
				results[i] = p.permit.Call(ctx, c)
			}
		}
		if i == len(due)-1 {
			perform() // the last one needs no goroutine
		} else {
			calls.Go(perform)
		}
	}
	calls.Wait()
	if err := context.Cause(ctx); err != nil {
		return f.Fail(err) // what came is judged by whoever comes after us, who makes the same attempts
	}
	now := e.now()
	for i, p := range due {
		v := judge(r.op, p, results[i], now)
		e.metrics.result(p.target, results[i])
		e.log.InfoContext(ctx, "webhook called", "operation", r.op.EffectiveID(), "key", r.key, "webhook", p.target.id,
			"purpose", p.target.purpose, "verdict", results[i].Verdict, "status", results[i].StatusCode,
			"took", results[i].Duration, "message", v.message)
		r.apply(judged(r.op, p.target, v, now))
	}
	return f.Goto(stepAdvance)
}

// judge says what a result means for the record of its call.
func judge(op *v1alpha1.Operation, p permitted, result webhook.Result, now time.Time) verdict {
	en := entry(&op.Status, p.target)
	v := verdict{state: v1alpha1.PhaseInProgress, code: result.StatusCode, message: result.Message, polled: en.WebhookPollURL != ""}
	if result.Gone && op.Spec.OperationType == v1alpha1.OperationDelete && !v.polled {
		v.state, v.message = v1alpha1.PhaseSuccess, ""
		return v
	}
	failed := func(reason string) verdict {
		v.state, v.reason = v1alpha1.PhaseFailed, reason
		if v.message == "" {
			v.message = "webhook " + p.target.id + " failed"
		}
		return v
	}
	switch result.Verdict {
	case webhook.Succeeded:
		v.state = v1alpha1.PhaseSuccess
	case webhook.Accepted:
		if v.pollURL = result.Location; v.pollURL != "" {
			v.next = now.Add(p.hook.NextPoll(result))
		} else if v.message == "" {
			v.message = "waiting for the callback"
		}
	case webhook.Pending:
		v.next = now.Add(p.hook.NextPoll(result))
	case webhook.Retry:
		delay, more := p.hook.NextTry(int(en.RetriesCount)+1, result, rand.Float64)
		if !more {
			return failed(v1alpha1.ReasonRetriesExhausted)
		}
		v.next = now.Add(delay)
	case webhook.Invalid:
		return failed(v1alpha1.ReasonInvalid)
	case webhook.Refused:
		return failed(v1alpha1.ReasonTargetRefused)
	default:
		return failed(v1alpha1.ReasonWebhookFailed)
	}
	return v
}

// webhookInvalid is the verdict on a call that cannot be made.
func webhookInvalid(err error) verdict {
	reason := v1alpha1.ReasonInvalid
	if errors.Is(err, errNoWebhook) {
		reason = v1alpha1.ReasonWebhookNotFound
	}
	return verdict{state: v1alpha1.PhaseFailed, reason: reason, message: err.Error()}
}

// describe returns what templates see of an operation, and the key of the call.
func (e *Executor) describe(op *v1alpha1.Operation, t target) webhook.Call {
	c := webhook.Call{ID: t.callID(op), CorrelationID: op.Spec.CorrelationID}
	c.Data.Operation = specFields(op)
	if o := op.Spec.RequestObject; o != nil {
		c.Data.TenantID, c.Data.Headers = o.TenantID, o.Headers
		if o.Resource != nil {
			c.Data.Resource = json.RawMessage(o.Resource.Raw)
		}
	}
	if t.purpose == webhook.Main {
		c.Data.CallbackURL = e.callbacks.URL(op, t.id)
		return c
	}
	c.Data.Outcome = &webhook.Outcome{Phase: string(v1alpha1.PhaseSuccess)}
	if failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); failed != nil && failed.Status == "True" {
		c.Data.Outcome = &webhook.Outcome{
			Phase: string(v1alpha1.PhaseFailed), Reason: failed.Reason, Message: failed.Message,
		}
	}
	return c
}

// specFields returns the spec under its JSON names, the operation's id included.
func specFields(op *v1alpha1.Operation) map[string]any {
	spec := op.Spec
	spec.OperationID = op.EffectiveID()
	raw, err := json.Marshal(spec)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		panic(fmt.Sprintf("cannot encode the spec of an operation: %v", err)) // it came from JSON
	}
	return fields
}

// older tells whether a version comes before another one. Versions that cannot be compared are taken as newer when they
// differ, since what is read then is checked again when it is written.
func older(version, than string) bool {
	if version == than || than == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
