package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Options configures a Scheduler. Namespace and one of Config and Calls are required.
type Options struct {
	// Config contains the address and the credentials for the API server. It has no effect with Calls.
	Config *rest.Config
	// Calls is a client shared with other users. Default: a new one, which Close closes.
	Calls *call.Client
	// Namespace is the namespace of the Operations and their Webhooks.
	Namespace string
	// Policy applies to all requests to the API server. Default: that of package call.
	Policy call.Policy
	// Logger receives one line per decision. Default: discarded.
	Logger *slog.Logger
	// TracerProvider creates spans for the requests of the default Calls client. Default: none. Independently of it,
	// the Operation records the span of the context in which it was scheduled, as parent of the spans of its calls.
	TracerProvider trace.TracerProvider
}

// Scheduler writes Operations and reads their state. It always reads from the API server, never from a cache. It is
// safe for concurrent use, also by several processes.
type Scheduler struct {
	calls     *call.Client
	owned     bool // Close closes calls
	namespace string
	policy    call.Policy
	log       *slog.Logger
	replacing func(ctx context.Context, ended *v1alpha1.Operation) error
}

// NewScheduler returns a Scheduler for one namespace. It sends no requests.
func NewScheduler(o Options) (*Scheduler, error) {
	if o.Namespace == "" {
		return nil, errors.New("cannot make a scheduler: no namespace")
	}
	s := &Scheduler{calls: o.Calls, namespace: o.Namespace, policy: o.Policy, log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.calls == nil {
		calls, err := call.New(call.Options{Config: o.Config, Logger: o.Logger, TracerProvider: o.TracerProvider})
		if err != nil {
			return nil, fmt.Errorf("cannot make a scheduler: %w", err)
		}
		s.calls, s.owned = calls, true
	}
	return s, nil
}

// In returns a Scheduler for another namespace that shares the connections of s. Only s needs to be closed.
func (s *Scheduler) In(namespace string) *Scheduler {
	other := *s
	other.namespace, other.owned = namespace, false // s closes what both share
	return &other
}

// BeforeReplacing returns a copy of s that calls ask before a request replaces an ended operation. If ask returns an
// error, Schedule replaces nothing and returns that error. A service that schedules on behalf of other users can thus
// distinguish permission to create from permission to update.
func (s *Scheduler) BeforeReplacing(ask func(ctx context.Context, ended *v1alpha1.Operation) error) *Scheduler {
	other := *s
	other.replacing, other.owned = ask, false
	return &other
}

// Namespace returns the namespace of the Operations.
func (s *Scheduler) Namespace() string { return s.namespace }

// Close closes the connections that s opened. It does not close Options.Calls.
func (s *Scheduler) Close() {
	if s.owned {
		s.calls.Close()
	}
}

// Schedule writes the Operation of the request and returns it as stored on the server. The caller owns the result.
//
// The Operation records the span of ctx, if there is one. The spans of its calls have it as their parent, and receivers
// get it in the trace headers.
//
// Scheduling the same ID and content again returns the existing Operation, whatever its phase. Errors: [ErrInvalid]
// before any request is sent; [ErrInProgress] when another operation of the resource has not ended; [ErrIDReused] when
// a request with other content has the ID; those of package call.
func (s *Scheduler) Schedule(ctx context.Context, r Request) (*v1alpha1.Operation, error) {
	spec, err := r.Spec()
	if err != nil {
		return nil, fmt.Errorf("cannot schedule %s of %s: %w", r.Type, r.Resource, err)
	}
	return s.ScheduleSpec(ctx, spec)
}

// ScheduleSpec is Schedule for a request in the form of a spec.
func (s *Scheduler) ScheduleSpec(ctx context.Context, spec v1alpha1.OperationSpec) (*v1alpha1.Operation, error) {
	err := Validate(spec)
	if err == nil {
		if spec.OperationID == "" {
			spec.OperationID = uuid.NewString()
		}
		var op *v1alpha1.Operation
		if op, err = s.schedule(ctx, spec); err == nil {
			return op, nil
		}
	}
	return nil, fmt.Errorf("cannot schedule %s of %s/%s: %w", spec.OperationType, spec.ResourceType, spec.ResourceID, err)
}

// mostInvalid bounds how often an Invalid answer counts as a lost race: the server may refuse the change only because
// the object has changed since it was read.
const mostInvalid = 5

func (s *Scheduler) schedule(ctx context.Context, spec v1alpha1.OperationSpec) (*v1alpha1.Operation, error) {
	wanted := &v1alpha1.Operation{Spec: spec}
	wanted.Name = v1alpha1.OperationName(spec.ResourceType, spec.ResourceID)
	wanted.Namespace = s.namespace
	wanted.Default()
	var race contest
	for race.next(ctx) {
		wanted.ResourceVersion = ""
		stamp(ctx, wanted)
		op, err := s.write(ctx, call.VerbCreate, wanted)
		if !apierrors.IsAlreadyExists(err) && !vanished(err, wanted.Name) {
			return op, err
		}
		race.lost = err
		found, err := s.read(ctx, wanted.Name)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue // deleted in between
		}
		if answer, err := judge(found, &wanted.Spec); answer != nil || err != nil {
			return answer, err
		}
		if s.replacing != nil {
			if err := s.replacing(ctx, found); err != nil {
				return nil, err
			}
		}
		replacement := found.DeepCopy()
		replacement.Spec = wanted.Spec
		stamp(ctx, replacement)
		op, err = s.write(ctx, call.VerbUpdate, replacement)
		switch {
		case err == nil:
			return op, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err) && race.rounds < mostInvalid:
			race.lost = err // lost the race: read the object again
		default:
			return nil, err
		}
	}
	return nil, race.err()
}

// stamp records the time and the span in which the present request of an Operation was scheduled.
func stamp(ctx context.Context, op *v1alpha1.Operation) {
	if op.Annotations == nil {
		op.Annotations = make(map[string]string)
	}
	op.Annotations[v1alpha1.AnnotationScheduledAt] = time.Now().UTC().Format(time.RFC3339Nano)
	keepTrace(ctx, op)
}

// Retry schedules the request of a resource's failed operation again, with a new id. Of several concurrent calls only
// one succeeds. Errors: [ErrNotFound]; [ErrInProgress] when the operation has not ended; [ErrSucceeded]; [ErrFollowed]
// when another operation was scheduled meanwhile; those of package call.
func (s *Scheduler) Retry(ctx context.Context, r Resource) (*v1alpha1.Operation, error) {
	op, err := s.retry(ctx, v1alpha1.OperationName(r.Type, r.ID))
	if err != nil {
		return nil, fmt.Errorf("cannot retry operation of %s: %w", r, err)
	}
	return op, nil
}

func (s *Scheduler) retry(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	ours, failed := uuid.NewString(), ""
	var race contest
	for race.next(ctx) {
		op, err := s.read(ctx, name)
		if err != nil {
			return nil, err
		}
		if op == nil {
			return nil, ErrNotFound
		}
		if op.EffectiveID() == ours { // the answer to our write was lost, and the object has changed since
			return op, nil
		}
		switch old := earlier(op, ours); {
		case old != nil:
			return old, nil
		case failed != "" && op.EffectiveID() != failed:
			return nil, fmt.Errorf("%w: %s", ErrFollowed, op.EffectiveID())
		case !op.Terminal() || op.DeletionTimestamp != nil:
			return nil, &InProgressError{Running: op}
		case op.Status.Phase == v1alpha1.PhaseSuccess:
			return nil, ErrSucceeded
		}
		failed = op.EffectiveID()
		op.Spec.OperationID, op.Spec.CancelRequested = ours, false
		stamp(ctx, op)
		// The resourceVersion makes the update follow the failed operation and no other one.
		written, err := s.write(ctx, call.VerbUpdate, op)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return written, err
		}
		race.lost = err
	}
	return nil, race.err()
}

// Cancel requests the cancellation of the operation of a resource and returns the Operation. It is idempotent. A
// non-empty id restricts it to that operation. Without an id it cancels the present operation, but not one that
// replaces it meanwhile. Errors: [ErrNotFound]; [ErrEnded] when the operation has ended already.
func (s *Scheduler) Cancel(ctx context.Context, r Resource, id string) (*v1alpha1.Operation, error) {
	op, err := s.cancel(ctx, r, id)
	if err != nil {
		return op, fmt.Errorf("cannot cancel operation of %s: %w", r, err)
	}
	return op, nil
}

func (s *Scheduler) cancel(ctx context.Context, r Resource, id string) (*v1alpha1.Operation, error) {
	name := v1alpha1.OperationName(r.Type, r.ID)
	var race contest
	for race.next(ctx) {
		op, err := s.read(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case op == nil:
			return nil, ErrNotFound
		case id == "":
			id = op.EffectiveID()
		case op.EffectiveID() != id:
			if old := earlier(op, id); old != nil {
				return old, ErrEnded
			}
			return nil, fmt.Errorf("%w: the operation of this resource is %s", ErrNotFound, op.EffectiveID())
		}
		if op.Terminal() {
			return op, ErrEnded
		}
		if op.Spec.CancelRequested {
			return op, nil
		}
		canceled, err := s.requestCancel(ctx, op)
		switch {
		case err == nil:
			return canceled, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			race.lost = err
		default:
			return nil, err
		}
	}
	return nil, race.err()
}

var operations = schema.GroupVersionResource{
	Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "operations",
}

// Named returns the Operation with the given object name. Errors: [ErrNotFound]; those of package call.
func (s *Scheduler) Named(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	op, err := s.read(ctx, name)
	if err == nil && op == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read operation %s: %w", name, err)
	}
	return op, nil
}

func (s *Scheduler) read(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: call.VerbGet, Resource: operations, Kind: "Operation", Namespace: s.namespace, Name: name, NotFoundOK: true,
	}, s.policy)
	if err != nil || answer == nil {
		return nil, err
	}
	op := &v1alpha1.Operation{}
	return op, answer.Into(op)
}

func (s *Scheduler) write(ctx context.Context, verb call.Verb, op *v1alpha1.Operation) (*v1alpha1.Operation, error) {
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: verb, Resource: operations, Kind: "Operation", Namespace: s.namespace, Name: op.Name, Object: op,
		ConflictsExpected: true,
	}, s.policy)
	if err != nil {
		return nil, err
	}
	written := &v1alpha1.Operation{}
	if err := answer.Into(written); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "operation scheduled", "operation", written.EffectiveID(), "type", written.Spec.OperationType,
		"resource", written.Spec.ResourceType+"/"+written.Spec.ResourceID, "namespace", written.Namespace,
		"correlation", written.Spec.CorrelationID)
	return written, nil
}
