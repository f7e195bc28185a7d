package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/protect"
)

func (f *failure) public(controller string, it *item) *Failure {
	out := &Failure{
		Controller: controller, Key: it.key, Class: f.class, Attempts: f.attempts, Since: f.since, At: f.at,
		Err: &Error{Controller: controller, Key: it.key, Err: f.err},
	}
	if it.state == waiting {
		out.Next = it.due
	}
	return out
}

// byAge orders failures by Since, oldest first.
func byAge(a, b Failure) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
}

// reporter reports the outcomes of reconciliations: to the log, to OnFailure, and with an Event about the object. Its
// only state is whether the last Event was written.
type reporter struct {
	log       *slog.Logger
	panics    prometheus.Counter
	onFailure func(Failure) // may be nil
	events    *Recorder     // nil: no Events
	leader    Leadership    // nil: every process writes Events
	main      *watch        // of the primaries

	silent atomic.Bool // the last Event could not be written
}

// report reports the end of a reconciliation.
func (p *reporter) report(r *reconciliation, end completion, v verdict) {
	p.logOutcome(r, end.res, end.err, v.failed)
	if v.failed == nil {
		return
	}
	if p.onFailure != nil {
		if panicked := protect.Call(func() { p.onFailure(*v.failed) }); panicked != nil {
			logUserError(p.log, "OnFailure panicked", (*PanicError)(panicked), "key", r.key.String())
		}
	}
	if end.exists {
		p.writeEvent(v.term, r, v.failed)
	}
}

// logOutcome logs the outcome of a reconciliation if it is notable. failed is nil if it did not fail.
func (p *reporter) logOutcome(r *reconciliation, res Result, err error, failed *Failure) {
	if res.requeue && res.after < 0 {
		p.log.Error("a reconciler requested a reconciliation after a negative duration; using the back-off instead",
			"key", r.key.String(), "after", res.after)
	}
	_, stack, panicked := asPanic(err)
	if panicked {
		p.panics.Inc()
	}
	if failed == nil {
		if panicked { // the reconciliation was stopped, and is retried anyway
			p.log.Error("a reconciliation that was stopped panicked", "key", r.key.String(), "error", err,
				"stack", string(stack))
		} else if f, ok := errors.AsType[*fiberError](err); ok { // the next reconciliation starts a new fiber
			p.log.Warn("a fiber of a stopped reconciliation failed", "key", r.key.String(), "error", err,
				"trail", f.trail.String())
		}
		return
	}
	level := slog.LevelError
	if failed.Class == Conflict {
		level = slog.LevelInfo
	}
	args := []any{
		"key", r.key.String(), "class", failed.Class, "attempts", failed.Attempts, "next", failed.Next,
		"error", failed.Err,
	}
	if panicked {
		args = append(args, "stack", string(stack))
	}
	if f, ok := errors.AsType[*fiberError](failed.Err); ok {
		args = append(args, "trail", f.trail.String())
	}
	if refused, ok := errors.AsType[*call.Error](failed.Err); ok && len(refused.Tries) > 0 {
		args = append(args, "request", refused.Tries[len(refused.Tries)-1].ID)
	}
	if res.after > 0 { // the error takes precedence over After
		args = append(args, "after", res.after, "afterHonoured", failed.Class != Stopped)
	}
	p.log.Log(context.Background(), level, "reconciliation failed", args...)
}

// Reasons of Events about failures.
const (
	reasonFailed    = "ReconcileFailed"   // a terminal error
	reasonExhausted = "AttemptsExhausted" // MaxAttempts
	reasonPanicked  = "ReconcilePanicked"
)

// writeEvent writes an Event about a failure that the object caused, while this process leads in term.
func (p *reporter) writeEvent(term context.Context, r *reconciliation, f *Failure) {
	_, _, panicked := asPanic(f.Err)
	reason := ""
	switch {
	case errors.Is(f.Err, ErrExhausted):
		reason = reasonExhausted
	case panicked:
		reason = reasonPanicked
	case f.Class == Stopped:
		reason = reasonFailed
	}
	if reason == "" || p.events == nil || term == nil || term.Err() != nil ||
		p.leader != nil && p.leader.Fence(term) != nil {
		return
	}
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.key.Namespace, Name: r.key.Name,
		UID: r.facts.uid,
	}}
	obj.SetGroupVersionKind(p.main.kind)
	err := p.events.Event(term, obj, corev1.EventTypeWarning, reason, errors.Unwrap(f.Err).Error())
	if err == nil {
		p.silent.Store(false)
		return
	}
	level := slog.LevelDebug
	if !p.silent.Swap(true) { // warn once until an Event is written: the permission may be missing
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "cannot write an Event about a failure", "key", r.key.String(), "error", err)
}

// logUserError logs an error of a user's function, with the stack of a panic.
func logUserError(log *slog.Logger, text string, err error, args ...any) {
	args = append(args, "error", err)
	if _, stack, ok := asPanic(err); ok {
		args = append(args, "stack", string(stack))
	}
	log.Error(text, args...)
}
