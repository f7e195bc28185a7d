package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Failure is an object whose last reconciliation failed.
type Failure struct {
	Controller string
	Key        Key
	Class      Class
	Err        error // *Error
	Attempts   int   // since the last success, or the last change of the spec
	Since      time.Time
	At         time.Time // of the last attempt
	Next       time.Time // of the next attempt; zero if none is scheduled, or if a fiber is running
}

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

// Failures returns the objects whose last reconciliation failed, ordered by Since, oldest first.
func (c *Controller) Failures() []Failure {
	c.mu.Lock()
	var out []Failure
	for _, it := range c.q.items {
		if it.fail != nil {
			out = append(out, *it.fail.public(c.name, it))
		}
	}
	c.mu.Unlock()
	slices.SortFunc(out, byAge)
	return out
}

// report logs the outcome of a reconciliation if it is notable, and calls OnFailure. failed is nil if it did not fail.
func (c *Controller) report(r *reconciliation, res Result, err error, failed *Failure) {
	if res.requeue && res.after < 0 {
		c.log.Error("a reconciler requested a reconciliation after a negative duration; using the back-off instead",
			"key", r.key.String(), "after", res.after)
	}
	_, stack, panicked := asPanic(err)
	if panicked {
		c.metrics.panics.Inc()
	}
	if failed == nil {
		if panicked { // the reconciliation was stopped, and is retried anyway
			c.log.Error("a reconciliation that was stopped panicked", "key", r.key.String(), "error", err,
				"stack", string(stack))
		} else if f, ok := errors.AsType[*fiberError](err); ok { // the next reconciliation starts a new fiber
			c.log.Warn("a fiber of a stopped reconciliation failed", "key", r.key.String(), "error", err,
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
	c.log.Log(context.Background(), level, "reconciliation failed", args...)
	if c.set.onFailure == nil {
		return
	}
	if p := protect.Call(func() { c.set.onFailure(*failed) }); p != nil {
		c.complain("OnFailure panicked", (*PanicError)(p), "key", r.key.String())
	}
}

// Reasons of Events about failures.
const (
	reasonFailed    = "ReconcileFailed"   // a terminal error
	reasonExhausted = "AttemptsExhausted" // MaxAttempts
	reasonPanicked  = "ReconcilePanicked"
)

// tell writes an Event about a failure that the object caused, while this process leads.
func (c *Controller) tell(term context.Context, r *reconciliation, f *Failure) {
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
	if l := c.set.leader; reason == "" || c.events == nil || term == nil || term.Err() != nil ||
		l != nil && l.Fence(term) != nil {
		return
	}
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.key.Namespace, Name: r.key.Name,
		UID: r.facts.uid,
	}}
	obj.SetGroupVersionKind(c.kind())
	err := c.events.Event(term, obj, corev1.EventTypeWarning, reason, errors.Unwrap(f.Err).Error())
	if err == nil {
		c.unheard.Store(false)
		return
	}
	level := slog.LevelDebug
	if !c.unheard.Swap(true) { // warn once until an Event is written: the permission may be missing
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "cannot write an Event about a failure", "key", r.key.String(), "error", err)
}

// complain logs an error of a user's function, with the stack of a panic.
func (c *Controller) complain(text string, err error, args ...any) {
	args = append(args, "error", err)
	if _, stack, ok := asPanic(err); ok {
		args = append(args, "stack", string(stack))
	}
	c.log.Error(text, args...)
}

func (c *Controller) rand() func() float64 { return rand.Float64 }
