package operations

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
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
	objects   objectClient
	namespace string
	replacing func(ctx context.Context, ended *v1alpha1.Operation) error // nil: none
	close     func()                                                     // nil: another one closes the connections
}

// NewScheduler returns a Scheduler for one namespace. It sends no requests.
func NewScheduler(o Options) (*Scheduler, error) {
	if o.Namespace == "" {
		return nil, errors.New("cannot make a scheduler: no namespace")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{namespace: o.Namespace}
	if o.Calls == nil {
		calls, err := call.New(call.Options{Config: o.Config, Logger: o.Logger, TracerProvider: o.TracerProvider})
		if err != nil {
			return nil, fmt.Errorf("cannot make a scheduler: %w", err)
		}
		o.Calls, s.close = calls, calls.Close
	}
	s.objects = objectClient{calls: o.Calls, namespace: o.Namespace, policy: o.Policy, log: o.Logger}
	return s, nil
}

// In returns a Scheduler for another namespace that shares the connections of s. Only s needs to be closed.
func (s *Scheduler) In(namespace string) *Scheduler {
	other := *s
	other.namespace, other.objects = namespace, s.objects.in(namespace)
	other.close = nil
	return &other
}

// BeforeReplacing returns a copy of s that calls ask before a request replaces an ended operation. If ask returns an
// error, Schedule replaces nothing and returns that error. A service that schedules on behalf of other users can thus
// distinguish permission to create from permission to update.
func (s *Scheduler) BeforeReplacing(ask func(ctx context.Context, ended *v1alpha1.Operation) error) *Scheduler {
	other := *s
	other.replacing, other.close = ask, nil
	return &other
}

// Namespace returns the namespace of the Operations.
func (s *Scheduler) Namespace() string { return s.namespace }

// Close closes the connections that s opened. It does not close Options.Calls.
func (s *Scheduler) Close() {
	if s.close != nil {
		s.close()
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
		if op, err = schedule(ctx, s.objects, s.namespace, spec, s.replacing); err == nil {
			return op, nil
		}
	}
	return nil, fmt.Errorf("cannot schedule %s of %s/%s: %w", spec.OperationType, spec.ResourceType, spec.ResourceID, err)
}

// Retry schedules the request of a resource's failed operation again, with a new id. Of several concurrent calls only
// one succeeds. Errors: [ErrNotFound]; [ErrInProgress] when the operation has not ended; [ErrSucceeded]; [ErrFollowed]
// when another operation was scheduled meanwhile; those of package call.
func (s *Scheduler) Retry(ctx context.Context, r Resource) (*v1alpha1.Operation, error) {
	op, err := retry(ctx, s.objects, v1alpha1.OperationName(r.Type, r.ID))
	if err != nil {
		return nil, fmt.Errorf("cannot retry operation of %s: %w", r, err)
	}
	return op, nil
}

// Cancel requests the cancellation of the operation of a resource and returns the Operation. It is idempotent. A
// non-empty id restricts it to that operation. Without an id it cancels the present operation, but not one that
// replaces it meanwhile. Errors: [ErrNotFound]; [ErrEnded] when the operation has ended already.
func (s *Scheduler) Cancel(ctx context.Context, r Resource, id string) (*v1alpha1.Operation, error) {
	op, err := cancel(ctx, s.objects, v1alpha1.OperationName(r.Type, r.ID), id)
	if err != nil {
		return op, fmt.Errorf("cannot cancel operation of %s: %w", r, err)
	}
	return op, nil
}

// Named returns the Operation with the given object name. Errors: [ErrNotFound]; those of package call.
func (s *Scheduler) Named(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	op, err := s.objects.read(ctx, name)
	if err == nil && op == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read operation %s: %w", name, err)
	}
	return op, nil
}

// Get returns the Operation of a resource, or [ErrNotFound].
func (s *Scheduler) Get(ctx context.Context, r Resource) (*v1alpha1.Operation, error) {
	op, err := s.objects.read(ctx, v1alpha1.OperationName(r.Type, r.ID))
	if err != nil {
		return nil, fmt.Errorf("cannot get operation of %s: %w", r, err)
	}
	if op == nil {
		return nil, fmt.Errorf("cannot get operation of %s: %w", r, ErrNotFound)
	}
	return op, nil
}

// Page returns one page of Operations. Continue is empty on the last page.
func (s *Scheduler) Page(ctx context.Context, q Query) (*v1alpha1.OperationList, error) {
	list, err := s.objects.page(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("cannot list operations: %w", err)
	}
	return list, nil
}

// List iterates over all Operations that q selects. It fetches each page when the iteration reaches it.
func (s *Scheduler) List(ctx context.Context, q Query) iter.Seq2[*v1alpha1.Operation, error] {
	if q.Limit <= 0 {
		q.Limit = call.CachePage
	}
	return func(yield func(*v1alpha1.Operation, error) bool) {
		for {
			page, err := s.Page(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if q.Continue = page.Continue; q.Continue == "" {
				return
			}
		}
	}
}

// Wait returns the outcome of an operation once it has ended. Before that it calls progress, if not nil, with every
// state, on the caller's goroutine. With an id it waits for that operation, even before it is written, and finds its
// outcome after later operations have followed. Without an id it waits for the present operation.
//
// Errors: the context's cause; [ErrNotFound] when the Operation was deleted, or when none exists and id is empty.
func (s *Scheduler) Wait(ctx context.Context, r Resource, id string, progress func(View)) (View, error) {
	v, err := s.wait(ctx, r, &awaited{id: id, progress: progress})
	if err != nil {
		return v, fmt.Errorf("cannot wait for operation of %s: %w", r, err)
	}
	return v, nil
}

// WaitFor is Wait for an operation that has been written, for example by Schedule. If the object does not exist, it was
// deleted.
func (s *Scheduler) WaitFor(ctx context.Context, op *v1alpha1.Operation, progress func(View)) (View, error) {
	r := Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	v, err := s.wait(ctx, r, &awaited{id: op.EffectiveID(), written: true, progress: progress})
	if err != nil {
		return v, fmt.Errorf("cannot wait for operation of %s: %w", r, err)
	}
	return v, nil
}

func (s *Scheduler) wait(ctx context.Context, r Resource, a *awaited) (View, error) {
	if a.id == "" {
		op, err := s.objects.read(ctx, v1alpha1.OperationName(r.Type, r.ID))
		if err != nil {
			return View{}, err
		}
		if op == nil {
			return View{}, ErrNotFound
		}
		a.id, a.written = op.EffectiveID(), true
	}
	w, err := s.objects.watch(r)
	if err != nil {
		return View{}, err
	}
	return wait(ctx, w, a)
}

// Follow returns an initially empty store of the one Operation that a resource may have. run fills the store by a watch
// until its context ends. The caller owns the store and closes it after run has returned.
func (s *Scheduler) Follow(r Resource) (st *cache.Store, run func(context.Context) error, err error) {
	w, err := s.objects.watch(r)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot follow operation of %s: %w", r, err)
	}
	return w.store, w.source.Run, nil
}
