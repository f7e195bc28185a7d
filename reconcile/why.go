package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/why"
)

// longRun is how long a reconciliation must run to count as a cause.
const longRun = 2 * time.Second

// why explains why the controller makes no progress on an object, see [Controller.Why].
func (n *inspection) why(ctx context.Context, of why.Object) []why.Cause {
	kind, _ := n.declared.reconciled()
	if kind.Kind != of.Kind || kind.Group != of.Group {
		return nil
	}
	causes := n.causes(ctx, Key{Namespace: of.Namespace, Name: of.Name})
	for i := range causes {
		one := &causes[i]
		one.Evidence = withEvidence(one.Evidence, "controller", n.name)
		if a := one.About; a != nil && a.Kind == of.Kind && (a.Group == "" || a.Group == of.Group) &&
			a.Namespace == of.Namespace && a.Name == of.Name {
			one.About = nil
		}
	}
	return causes
}

// withEvidence returns a copy of evidence with added pairs. It does not change evidence, which the caller may share.
func withEvidence(evidence map[string]string, pairs ...string) map[string]string {
	out := make(map[string]string, len(evidence)+len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	for name, value := range evidence {
		out[name] = value
	}
	return out
}

func (n *inspection) causes(ctx context.Context, k Key) []why.Cause {
	watches := n.intake.snapshot() // the order is that of describe
	leads := n.leader == nil || n.scheduler.leads()
	phase := n.lifetime.phase()
	state := stateOf(phase, watches, leads)
	if causes, ok := n.notWorking(ctx, state, phase.problem); ok {
		return causes
	}
	if watches.primary == nil {
		return n.notStarted()
	}
	st := watches.primary.handle.Store
	stale := st.Why(k)
	for _, s := range watches.watches {
		if s != watches.primary && s.follow == nil {
			stale = append(stale, s.handle.Why(Key{Namespace: k.Namespace})...)
		}
	}
	rec, exists := st.Get(k)
	seen := n.scheduler.object(k)
	causes, works := n.fibers(k)
	if len(causes) > 0 {
		seen.fail = nil // the failure of an earlier fiber
	}
	causes = append(append(causes, n.explainQueue(k, &seen, rec)...), stale...)
	switch {
	case len(causes) > 0:
		return causes
	case works:
		return []why.Cause{{
			Type: why.Parked, Progress: true, Message: fmt.Sprintf("a fiber of controller %s is working on it", n.name),
		}}
	case state == inspect.StateListing:
		return []why.Cause{{
			Type: why.SourceStale, Message: fmt.Sprintf("controller %s has not completed its first lists", n.name),
			Progress: true, // otherwise the stores would have returned a cause
		}}
	case !exists:
		return n.notReceived(ctx, st, k)
	case !n.declared.main.selects(rec):
		return []why.Cause{{
			Type: why.NotSelected, Message: fmt.Sprintf("a filter of controller %s excludes the object", n.name),
			Evidence: map[string]string{"filter": "If or Labeled", "at": n.place, "labels": labelsOf(rec)},
			Advice:   "Check the filter of the primary watch, where the controller is declared.",
		}}
	case seen.state == running:
		return []why.Cause{{
			Type: why.Parked, Since: seen.begun, Progress: true,
			Message: fmt.Sprintf("controller %s is reconciling it", n.name),
		}}
	}
	return []why.Cause{n.nothingPending(&seen)}
}

func labelsOf(rec *cache.Record) string {
	var all []string
	for name, value := range rec.AllLabels() {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// notWorking returns why the controller does no work at all. ok is false if it works.
func (n *inspection) notWorking(ctx context.Context, state inspect.State, problem error) (causes []why.Cause, ok bool) {
	switch state {
	case inspect.StateNew:
		return n.notStarted(), true
	case inspect.StateAbsent:
		return []why.Cause{{
			Type: why.SourceStale, Message: fmt.Sprintf("controller %s waits until its kind is served: %v", n.name, problem),
			Advice: "Install the CustomResourceDefinition of the kind.",
		}}, true
	case inspect.StateBlocked:
		return []why.Cause{{
			Type: why.SourceStale, Message: fmt.Sprintf("controller %s cannot start: %v", n.name, problem),
			Evidence: map[string]string{"error": problem.Error()},
			Advice:   "Retries are automatic. Install the missing kind, or permit the program to watch it.",
		}}, true
	case inspect.StateStopping, inspect.StateStopped:
		return []why.Cause{{
			Type: why.NotLeading, Message: fmt.Sprintf("controller %s is %s in this process", n.name, state),
		}}, true
	case inspect.StateStandby:
		if e, ok := n.leader.(why.Explainer); ok {
			if causes := e.Why(ctx, why.Object{}); len(causes) > 0 {
				return causes, true
			}
		}
		leader, err := leaderOf(n.leader)
		cause := why.Cause{
			Type: why.NotLeading, Message: "another process leads: " + leader,
			Evidence: withEvidence(nil, "leader", leader), Advice: "Ask the leader.",
		}
		if err != nil || leader == "" {
			cause.Message, cause.Advice = "this process does not lead, and the leader is unknown", ""
			if err != nil {
				cause.Evidence["error"] = err.Error()
			}
		}
		return []why.Cause{cause}, true
	}
	return nil, false
}

// notStarted returns the cause for a controller that has not started to work.
func (n *inspection) notStarted() []why.Cause {
	return []why.Cause{{
		Type: why.Parked, Progress: true, Message: fmt.Sprintf("controller %s has not started yet", n.name),
	}}
}

// notReceived returns why the controller does not know an object.
func (n *inspection) notReceived(ctx context.Context, st *cache.Store, k Key) []why.Cause {
	obj := &metav1.PartialObjectMetadata{}
	kind, _ := n.declared.reconciled()
	obj.SetGroupVersionKind(kind)
	err := n.client.Live().Get(ctx, k, obj)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		causes := Causes(err)
		for i := range causes {
			causes[i].Message = "it is unknown whether the object exists: " + causes[i].Message
		}
		return causes
	}
	if st.Lacks(k.Namespace, obj.GetUID()) {
		return nil // the object belongs to another replica; the host reports that
	}
	if cause, ok := st.Excludes(k.Namespace, obj.GetLabels()); ok {
		return []why.Cause{cause}
	}
	return []why.Cause{{
		Type: why.SourceStale, Message: fmt.Sprintf("controller %s has not received the object yet", n.name),
		Evidence: map[string]string{"version": obj.GetResourceVersion(), "known": st.Version()},
		Advice:   "If this lasts, the watch delivers nothing: see /debug/sources.",
	}}
}

// nothingPending returns the cause for an object with nothing left to do.
func (n *inspection) nothingPending(s *objectState) why.Cause {
	cause := why.Cause{
		Type: why.Ended, Since: s.last, Message: fmt.Sprintf("controller %s has no pending work for it", n.name),
	}
	if !s.last.IsZero() {
		cause.Message = fmt.Sprintf("controller %s reconciled it at %s and has no pending work for it", n.name,
			timestamp(s.last))
	}
	return cause
}

// Causes returns the causes of an error of a reconciliation or of a step. They are the causes that the error carries
// (see why.Because), if any. Otherwise there is one cause: a refused request, a timeout, an unreadable object, or just
// the failure. Causes returns nil if err is nil. The causes have no times unless the error has them.
func Causes(err error) []why.Cause {
	if err == nil {
		return nil
	}
	if causes := why.Of(err); len(causes) > 0 {
		return slices.Clone(causes)
	}
	text := truncate(err.Error(), maxErrorShown)
	cause := why.Cause{Type: why.BackOff, Message: text, Evidence: map[string]string{"error": text}}
	if refused, ok := call.Why(err); ok {
		cause = refused
	}
	bad, unread := errors.AsType[*cache.DecodeError](err)
	_, _, panicked := asPanic(err)
	switch {
	case panicked:
		cause.Advice = "Correct the code; the log has the stack."
	case unread:
		cause.Type, cause.About = why.Quarantined, undecoded(bad)
		cause.Advice = "Correct the object, or its Go type."
	case cause.Type != why.BackOff:
	case errors.Is(err, ErrDeadline), errors.Is(err, flow.ErrTimeout):
		cause.Type = why.DeadlinePassed
	case errors.Is(err, client.ErrTooManyConflicts), errors.Is(err, client.ErrReplaced):
		cause.Type = why.Conflict
	case retryAfter(err) > 0:
		cause.Type = why.RetryAfter
		cause.Evidence["retryAfter"] = retryAfter(err).String()
	}
	return []why.Cause{cause}
}

// undecoded returns the object that cannot be decoded, or nil if the Go type does not identify its kind.
func undecoded(err *cache.DecodeError) *why.Object {
	kind := err.Type
	for kind != nil && kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if err.Key.Name == "" || kind == nil || kind.Name() == "Unstructured" || kind.Name() == "PartialObjectMetadata" {
		return nil
	}
	return &why.Object{Kind: kind.Name(), Namespace: err.Key.Namespace, Name: err.Key.Name}
}

// explainQueue returns the causes that follow from the queue state of an object.
func (n *inspection) explainQueue(k Key, s *objectState, rec *cache.Record) (causes []why.Cause) {
	if s.fail != nil {
		causes = n.explainFailure(s, rec)
	}
	switch {
	case s.state == running && s.run != nil:
		for _, now := range n.longRunning(s) { // newer than the cause from the previous attempt
			causes = slices.DeleteFunc(causes, func(before why.Cause) bool { return before.Type == now.Type })
			causes = append(causes, now)
		}
	case s.state == ready && !s.paced.IsZero():
		causes = append(causes, why.Cause{
			Type: why.RateLimited, Since: s.readySince, Until: s.paced,
			Advice: "It continues then. Raise TotalRateLimit of the controller to permit more.",
			Message: fmt.Sprintf("controller %s has used up its TotalRateLimit",
				n.name),
			Evidence: map[string]string{"before": strconv.Itoa(s.before), "ready": strconv.Itoa(s.ready)},
		})
	case s.state == ready:
		causes = append(causes, n.queuedBehind(k, s)...)
	case s.state == waiting && s.dueFor == "":
		causes = append(causes, why.Cause{
			Type: why.RateLimited, Since: s.last, Until: s.due,
			Advice: "It continues then. Raise RateLimit of the controller to permit more frequent reconciliations.",
			Message: fmt.Sprintf("controller %s has used up its RateLimit for the object until %s", n.name,
				timestamp(s.due)),
		})
	case s.state == waiting && s.dueFor == Scheduled:
		causes = append(causes, why.Cause{
			Type: why.Parked, Since: s.last, Until: s.due, Progress: true,
			Message:  fmt.Sprintf("controller %s reconciles it again at %s; nothing has failed", n.name, timestamp(s.due)),
			Evidence: map[string]string{"result": "After"},
		})
	}
	return causes
}

// explainFailure returns why the last reconciliation failed, and when the next one comes.
func (n *inspection) explainFailure(s *objectState, rec *cache.Record) []why.Cause {
	f := s.fail
	causes := Causes(f.err)
	if f.class == Conflict && causes[0].Type == why.BackOff {
		causes[0].Type = why.Conflict
	}
	for i := range causes {
		cause := &causes[i]
		if cause.Since.IsZero() {
			cause.Since = f.since
		}
		if cause.Until.IsZero() && s.state == waiting {
			cause.Until = s.due
		}
		cause.Evidence = withEvidence(cause.Evidence, "error", truncate(f.err.Error(), maxErrorShown), "attempts",
			strconv.Itoa(f.attempts),
			"class", string(f.class), "last", timestamp(f.at))
		if f.conflicts > 0 {
			cause.Evidence["conflicts"] = strconv.Itoa(f.conflicts)
		}
		if rec != nil && rec.Deleting() && n.finalizer != "" {
			cause.Evidence["finalizer"] = n.finalizer
			cause.Message = fmt.Sprintf("finalizer %s is not finished: %s", n.finalizer, cause.Message)
		}
		if f.class == Stopped && s.state != running && s.state != ready {
			cause.Message = "it is not retried until its spec changes: " + cause.Message
			cause.Until = time.Time{}
			if cause.Advice == "" {
				cause.Advice = "Correct the object. A restart of the program also retries it once."
			}
		}
	}
	return causes
}

// longRunning returns the causes for a reconciliation that has been running for long.
func (n *inspection) longRunning(s *objectState) (causes []why.Cause) {
	ran := time.Since(s.begun)
	took := ran.Round(time.Millisecond).String()
	if causes = retrying(&s.run.waiting); len(causes) > 0 {
		for i := range causes {
			causes[i].Evidence["running"] = took
		}
		return causes
	}
	if ran < longRun {
		return nil
	}
	return []why.Cause{{
		Type: why.Parked, Since: s.begun,
		Message: fmt.Sprintf("controller %s has been reconciling it since %s", n.name, timestamp(s.begun)),
		Evidence: withEvidence(nil, "running", took, "attempt", strconv.Itoa(s.attempt), "stack",
			goroutine.Stacks(s.run.goroutine)),
		Advice: "Its code does not return. The stack shows where it is. Set a Deadline to bound it.",
	}}
}

// retrying returns why the current request is being retried.
func retrying(w *binding.Waiting) (causes []why.Cause) {
	last, ok := w.Last()
	if !ok {
		return nil
	}
	for _, cause := range Causes(last.Err) {
		cause.Since = last.Since
		if last.Until.After(time.Now()) {
			cause.Until = last.Until
		}
		causes = append(causes, cause)
	}
	return causes
}

// queuedBehind returns the causes for an object that waits for a worker. Objects that occupy workers for long are
// separate causes, since a reader may have access to one object and not to the others.
func (n *inspection) queuedBehind(k Key, s *objectState) []why.Cause {
	var busy []string
	var long []why.Cause
	now := time.Now()
	kind, _ := n.declared.reconciled()
	var blocked []goroutine.ID
	for _, b := range s.busy {
		took := now.Sub(b.since)
		if busy = append(busy, took.Round(time.Millisecond).String()); took < longRun {
			continue
		}
		long = append(long, why.Cause{
			Type: why.Parked, Since: b.since, Depth: 1,
			Message: fmt.Sprintf("a worker has been reconciling %s since %s", b.key, timestamp(b.since)),
			About:   &why.Object{Group: kind.Group, Kind: kind.Kind, Namespace: b.key.Namespace, Name: b.key.Name},
			Advice:  "Ask `why` about that object.",
		})
		blocked = append(blocked, b.goroutine)
	}
	least := ""
	if s.own == maxScanned {
		least = "at least "
	}
	cause := why.Cause{
		Type: why.QueuedBehind, Since: s.readySince,
		Message: fmt.Sprintf(least+"%d objects are ahead of it, and %d of %d workers of controller %s are busy", s.before,
			s.workers, s.limit,
			n.name),
		Evidence: withEvidence(nil, "before", strconv.Itoa(s.before), "ready", strconv.Itoa(s.ready), "running",
			strconv.Itoa(s.workers),
			"workers", strconv.Itoa(s.limit), "busy", strings.Join(busy, "; ")),
		Advice: "Raise Workers, or wait less in reconciliations (reconcile.Flow holds no worker while it waits).",
	}
	if len(blocked) > 0 {
		cause.Evidence = withEvidence(cause.Evidence, "stack", goroutine.Stacks(blocked[0]))
		cause.Advice = "The stack is that of the worker with the longest-running reconciliation. " + cause.Advice
	}
	if k.Namespace != "" {
		cause.Evidence["namespace"], cause.Evidence["sameNamespace"] = k.Namespace, strconv.Itoa(s.own)
	}
	if s.own > s.before/2 && s.own > 0 {
		cause.Message += fmt.Sprintf("; %d of them are of its own namespace %s", s.own, k.Namespace)
	}
	return append([]why.Cause{cause}, long...)
}

// explainFiber returns why a fiber that has started does not end. finalizer is that of its controller.
func explainFiber(f *fiber, finalizer string) []why.Cause {
	causes := append(retrying(f.waiting), f.handle.Why(func(err error) []why.Cause { return Causes(err) })...)
	if f.undo {
		for i := range causes {
			causes[i].Evidence = withEvidence(causes[i].Evidence, "finalizer", finalizer)
		}
	}
	return causes
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
