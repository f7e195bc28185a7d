package operations

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Wait returns the outcome of an operation once it has ended. Before that it calls progress, if not nil, with every
// state, on the caller's goroutine. With an id it waits for that operation, even before it is written, and finds its
// outcome after later operations have followed. Without an id it waits for the present operation.
//
// Errors: the context's cause; [ErrNotFound] when the Operation was deleted, or when none exists and id is empty.
func (s *Scheduler) Wait(ctx context.Context, r Resource, id string, progress func(View)) (View, error) {
	v, err := s.wait(ctx, r, id, false, progress)
	if err != nil {
		return v, fmt.Errorf("cannot wait for operation of %s: %w", r, err)
	}
	return v, nil
}

// WaitFor is Wait for an operation that has been written, for example by Schedule. If the object does not exist, it was
// deleted.
func (s *Scheduler) WaitFor(ctx context.Context, op *v1alpha1.Operation, progress func(View)) (View, error) {
	r := Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	v, err := s.wait(ctx, r, op.EffectiveID(), true, progress)
	if err != nil {
		return v, fmt.Errorf("cannot wait for operation of %s: %w", r, err)
	}
	return v, nil
}

func (s *Scheduler) wait(ctx context.Context, r Resource, id string, written bool, progress func(View)) (View, error) {
	if id == "" {
		op, err := s.read(ctx, v1alpha1.OperationName(r.Type, r.ID))
		if err != nil {
			return View{}, err
		}
		if op == nil {
			return View{}, ErrNotFound
		}
		id, written = op.EffectiveID(), true
	}
	watch, err := s.watch(r)
	if err != nil {
		return View{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	var last View
	var failed error
	// next handles an event and reports whether to continue.
	next := func(e *store.Event) (more bool) {
		if e.Type == store.Synced && e.Count == 0 && written {
			failed = errDeleted
			return false
		}
		if e.Object == nil {
			return true
		}
		op, err := store.As[v1alpha1.Operation](e.Object)
		if err != nil {
			failed = err
			return false
		}
		v, ours := ViewOfID(op, id)
		if ours && v.Terminal() {
			last = v // also the last known state of a deleted operation
			return false
		}
		written = written || ours
		switch {
		case e.Type == store.Deleted && written:
			failed = errDeleted
			return false
		case e.Type != store.Deleted && ours && progress != nil:
			progress(v)
		}
		return true
	}
	events := watch.store.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "wait"},
		Consume: func(events []store.Event) (more bool) {
			for i := range events {
				if ctx.Err() != nil {
					return true // Run returns the cause
				}
				if !next(&events[i]) {
					return false
				}
			}
			return true
		},
	})
	sources.Go(func() { _ = watch.source.Run(ctx) }) // Run retries until the context ends
	if err := events.Run(ctx); err != nil {
		return View{}, err
	}
	return last, failed
}

var errDeleted = fmt.Errorf("%w: it was deleted", ErrNotFound)

// Follow returns an initially empty store of the one Operation that a resource may have. run fills the store by a watch
// until its context ends. The caller owns the store and closes it after run has returned.
func (s *Scheduler) Follow(r Resource) (st *cache.Store, run func(context.Context) error, err error) {
	w, err := s.watch(r)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot follow operation of %s: %w", r, err)
	}
	return w.store, w.source.Run, nil
}

// watched is a watch of one Operation.
type watched struct {
	store  *cache.Store
	source *source.Source
}

func (s *Scheduler) watch(r Resource) (watched, error) {
	field := fields.OneTermEqualSelector("metadata.name", v1alpha1.OperationName(r.Type, r.ID)).String()
	st := store.New(store.Options{
		Resource: operations, Kind: v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true, FieldSelector: field,
	})
	src, err := source.New(source.Config{
		Connection: s.calls.Connection(), Budget: connection.Streams, Resource: operations, Namespaces: []string{s.namespace}, FieldSelector: field, Logger: s.log,
	}, st.Sink)
	return watched{st, src}, err
}
