package operation

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// Wait returns what has become of an operation when it has ended, and calls progress, if not nil, with every state
// before that, from the goroutine of the caller. With an id it waits for that operation, also before it is written, and
// finds its outcome when later ones have followed; without, for the one that is there.
//
// Errors: the context's cause; [ErrNotFound] when the Operation was deleted, or when there is none and no id was given.
func (s *Scheduler) Wait(ctx context.Context, r Resource, id string, progress func(View)) (View, error) {
	v, err := s.wait(ctx, r, id, progress)
	if err != nil {
		return v, fmt.Errorf("cannot wait for operation of %s: %w", r, err)
	}
	return v, nil
}

func (s *Scheduler) wait(ctx context.Context, r Resource, id string, progress func(View)) (View, error) {
	if id == "" {
		op, err := s.read(ctx, v1alpha1.OperationName(r.Type, r.ID))
		if err != nil {
			return View{}, err
		}
		if op == nil {
			return View{}, ErrNotFound
		}
		id = op.EffectiveID()
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
	cursor := watch.store.Subscribe(store.SubscribeOptions{Name: "wait"})
	defer cursor.Close()
	sources.Go(func() { _ = watch.source.Run(ctx) }) // it ends with the context, and retries until then
	seen := false
	for {
		e, err := cursor.Next(ctx)
		if err != nil {
			return View{}, err
		}
		switch e.Type {
		case store.Added, store.Modified:
			op, err := store.As[v1alpha1.Operation](e.Object)
			if err != nil {
				return View{}, err
			}
			v, ours := about(op, id)
			switch {
			case !ours:
				continue
			case v.Terminal():
				return v, nil
			}
			seen = true
			if progress != nil {
				progress(v)
			}
		case store.Deleted:
			if seen {
				return View{}, fmt.Errorf("%w: it was deleted", ErrNotFound)
			}
		}
	}
}

// about returns the view of the operation with that id, from what an Operation tells of it.
func about(op *v1alpha1.Operation, id string) (View, bool) {
	if op.EffectiveID() == id {
		return ViewOf(op), true
	}
	for _, h := range op.Status.History {
		if h.OperationID == id {
			return ViewOf(past(op, h)), true
		}
	}
	return View{}, false
}

// watched is a watch of one Operation.
type watched struct {
	store  *store.Store
	source *source.Source
}

func (s *Scheduler) watch(r Resource) (watched, error) {
	field := fields.OneTermEqualSelector("metadata.name", v1alpha1.OperationName(r.Type, r.ID)).String()
	st := store.New(store.Options{
		Resource: operations, Kind: v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true, FieldSelector: field,
	})
	src, err := source.New(source.Config{
		Client: s.sources, Resource: operations, Namespaces: []string{s.namespace}, FieldSelector: field, Logger: s.log,
	}, st.Sink)
	return watched{st, src}, err
}
