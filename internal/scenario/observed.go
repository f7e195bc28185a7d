package scenario

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/observe"
)

// Observing is an Instance that supports handlers which may fail.
type Observing interface {
	// Observe adds a handler for ConfigMaps. A panic of the handler is a failure, which the options say how to treat.
	// The subscriber records the events that were handled without a panic.
	Observe(name string, handle func(watchtest.Event), options ...observe.Option) Subscriber
	// Reported returns the reported failures, one per line.
	Reported() []string
}

var observedMaps = observe.Selector("configmaps")

// observers are the handlers of one run, on one store.
type observers struct {
	store    *store.Store
	registry *observe.Registry
	mu       sync.Mutex
	reports  strings.Builder
}

// Open implements observe.Stores.
func (o *observers) Open(store.Request) (*store.Handle, error) {
	return &store.Handle{Store: o.store}, nil
}

// Write appends a line of the log.
func (o *observers) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reports.Write(line)
}

func newObservers(s *store.Store) *observers {
	o := &observers{store: s}
	o.registry = observe.NewRegistry(observe.RegistryOptions{
		Scheme: scheme.Scheme, Stores: o, Logger: slog.New(slog.NewTextHandler(o, nil)),
	})
	observe.Source[corev1.ConfigMap](o.registry, observedMaps)
	if err := o.registry.Start(context.Background()); err != nil {
		panic(err) // a bug in this file
	}
	return o
}

func (o *observers) stop() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return o.registry.Stop(now)
}

// observed is a handler and a recording of the events that it has handled.
type observed struct {
	observer *observe.Observer
	store    *store.Store

	mu        sync.Mutex
	recording watchtest.Recording
	initial   int
	gate      chan struct{} // not nil while the handler is blocked: closed by Unblock
}

func (o *observers) observe(name string, handle func(watchtest.Event), options []observe.Option) *observed {
	s := &observed{store: o.store, recording: watchtest.Recording{Name: name}}
	s.observer = observe.On(o.registry, observedMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
		if err := s.pass(ctx); err != nil {
			return err
		}
		n := eventOf(e)
		handle(n)
		s.note(n)
		return nil
	}, append(options, observe.Name(name))...)
	return s
}

var observedTypes = map[observe.Type]store.EventType{
	observe.Added: store.Added, observe.Modified: store.Modified, observe.Deleted: store.Deleted,
	observe.Synchronized: store.Synced, observe.Resync: store.Sync, observe.Epoch: store.Epoch, observe.Left: store.Left,
}

func eventOf(e observe.Event[corev1.ConfigMap]) watchtest.Event {
	n := watchtest.Event{
		Type: observedTypes[e.Type], Key: e.Key.String(), Initial: e.Initial, Inferred: e.Inferred,
		Reason: e.Reason,
	}
	for _, side := range []struct {
		object *corev1.ConfigMap
		state  *watchtest.State
	}{{e.Object(), &n.Object}, {e.Prior(), &n.Prior}} {
		if side.object != nil {
			*side.state = watchtest.State{UID: string(side.object.UID), Version: side.object.ResourceVersion}
		}
	}
	if n.Object != (watchtest.State{}) {
		n.Object.Version = e.ResourceVersion()
	}
	return n
}

func (s *observed) note(n watchtest.Event) {
	n.At = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Initial {
		s.initial++
	}
	if n.Type == store.Synced {
		n.Count = s.initial
	}
	s.recording.Events = append(s.recording.Events, n)
}

func (s *observed) pass(ctx context.Context) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *observed) Recording() watchtest.Recording {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recording
	r.Events = slices.Clone(r.Events)
	return r
}

func (s *observed) Block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == nil {
		s.gate = make(chan struct{})
	}
}

func (s *observed) Unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

func (s *observed) Leave() { s.observer.Remove() }
