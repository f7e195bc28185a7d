package v1alpha1

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"
)

const (
	// AnnotationScheduledAt holds when the present request was scheduled, in RFC 3339. The Scheduler writes it with the
	// spec; the timeout of the operation counts from it.
	AnnotationScheduledAt = "fairlead.io/scheduled-at"

	// AnnotationTraceParent holds the context of the span in which the present request was scheduled, in the form of the
	// traceparent of W3C Trace Context, if there was one. The Scheduler writes it with the spec; the spans of the
	// operation follow it. Nothing else depends on it.
	AnnotationTraceParent = "fairlead.io/traceparent"

	// AnnotationTraceState holds the tracestate that goes with [AnnotationTraceParent], if there is one.
	AnnotationTraceState = "fairlead.io/tracestate"

	// Finalizer holds a deleted Operation until its cancellation is done.
	Finalizer = "fairlead.io/operation"

	// MaxRequestObjectBytes bounds spec.requestObject as JSON, in bytes. A schema cannot measure a value of any shape, so
	// this is for the Scheduler to hold, see [RequestObject.CheckSize].
	MaxRequestObjectBytes = 256 << 10
)

// EffectiveID is the id of the operation that the spec asks for: spec.operationID, or metadata.uid where that is empty.
// It is empty only for an object without either, which was never on a server.
func (o *Operation) EffectiveID() string {
	if o.Spec.OperationID != "" {
		return o.Spec.OperationID
	}
	return string(o.UID)
}

// PickedUp reports whether the status is that of the operation in the spec. Before that it is the status of an earlier
// operation, or empty.
func (o *Operation) PickedUp() bool {
	return o.Status.OperationID != "" && o.Status.OperationID == o.EffectiveID()
}

// Terminal reports whether the operation in the spec has ended. An operation that was not picked up yet is in progress,
// even if the status is that of an operation that has ended.
func (o *Operation) Terminal() bool {
	return o.PickedUp() && o.Status.Phase.Terminal()
}

// Touches reports whether the resource is one of spec.relatedResources.
func (o *Operation) Touches(r ResourceReference) bool {
	return slices.ContainsFunc(o.Spec.RelatedResources,
		func(related RelatedResource) bool { return related.ResourceReference == r })
}

// Locks yields the related resources that the operation locks.
func (o *Operation) Locks() iter.Seq[ResourceReference] {
	return func(yield func(ResourceReference) bool) {
		for _, r := range o.Spec.RelatedResources {
			if r.Lock && !yield(r.ResourceReference) {
				return
			}
		}
	}
}

// ScheduledAt returns when the present request was scheduled: the time in the annotation [AnnotationScheduledAt], or
// else the creation time of the object. If that time is before the end of the previous request, another client than the
// Scheduler has replaced the spec. ScheduledAt then returns when the request was picked up. It returns the zero time
// for an object without annotation and creation time.
func (o *Operation) ScheduledAt() time.Time {
	at := o.CreationTimestamp.Time
	if annotated, err := time.Parse(time.RFC3339Nano, o.Annotations[AnnotationScheduledAt]); err == nil {
		at = annotated
	}
	s := &o.Status
	if !at.IsZero() && o.PickedUp() && s.InitializedAt != nil && len(s.History) > 0 &&
		at.Before(s.History[0].FinishedAt.Time) {
		return s.InitializedAt.Time
	}
	return at
}

// Deadline returns when the operation fails if it has not ended: [Operation.Timeout] after [Operation.ScheduledAt]. The
// API server rounds times down to seconds. So that no operation has less time than its timeout, a time of whole seconds
// counts as the end of that second, or as the time when the operation was picked up, if that is earlier.
func (o *Operation) Deadline() time.Time {
	start := o.ScheduledAt()
	if start.Nanosecond() == 0 {
		last := start.Add(time.Second)
		if at := o.Status.InitializedAt; o.PickedUp() && at != nil && at.After(start) && at.Time.Before(last) {
			last = at.Time
		}
		start = last
	}
	return start.Add(o.Timeout())
}

// Timeout returns spec.timeout, or [DefaultTimeout] if that is not set.
func (o *Operation) Timeout() time.Duration {
	if timeout := o.Spec.Timeout.Duration; timeout > 0 {
		return timeout
	}
	return DefaultTimeout
}

// CheckSize returns an error when r as JSON is larger than [MaxRequestObjectBytes], or is not valid JSON. A nil r is
// empty.
func (r *RequestObject) CheckSize() error {
	if r == nil {
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode request object: %w", err)
	}
	if len(data) > MaxRequestObjectBytes {
		return fmt.Errorf("the request object has %d bytes, the maximum is %d", len(data), MaxRequestObjectBytes)
	}
	return nil
}

// AwaitsCallback reports whether the receiver has taken the call, which has not ended, and is expected to call back.
func (c *WebhookCallStatus) AwaitsCallback() bool {
	return c.LastStatusCode != 0 && c.NextAttemptAt == nil && c.WebhookPollURL == "" && c.AttemptID != ""
}
