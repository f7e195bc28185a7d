package watchtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Watched is a store with the source that keeps it up to date.
type Watched struct {
	Store    *store.Store
	Source   *source.Source
	Requests *OpenRequests

	resource  schema.GroupVersionResource
	server    *apiserver.Server
	cancel    context.CancelFunc
	done      chan error
	recorders []*Recorder
}

// Start runs a source and a store until Stop. cfg.REST is required. The other fields may be zero.
func Start(cfg source.Config, o store.Options) (*Watched, error) {
	w := &Watched{Requests: &OpenRequests{}, resource: cfg.Resource, done: make(chan error, 1)}
	cfg.REST = rest.CopyConfig(cfg.REST)
	w.Requests.Wrap(cfg.REST)
	o.Resource = cfg.Resource
	o.LabelSelector, o.FieldSelector, o.Shard = cfg.LabelSelector, cfg.FieldSelector, cfg.ShardName()
	w.Store = store.New(o)
	for _, ns := range cfg.Namespaces {
		w.Store.Sink(ns) // so that synced waits for all namespaces from the start
	}
	var err error
	if w.Source, err = source.New(cfg, w.Store.Sink); err != nil {
		w.Store.Close()
		return nil, fmt.Errorf("cannot start: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.done <- w.Source.Run(ctx) }()
	return w, nil
}

// Watch starts a source and a store for a server, and stops them at the end of the test. The test fails if a sink
// panicked, or if a reader has modified a shared object (store.Options.DetectMutation). cfg.REST may be nil.
//
// The server must be closed after that: create it before Watch, and close it by t.Cleanup or defer.
func Watch(t testing.TB, server *apiserver.Server, cfg source.Config) *Watched {
	t.Helper()
	if cfg.REST == nil {
		cfg.REST = server.Config()
	}
	var mu sync.Mutex
	var changed []error // reported at the end, because readers may outlive the test
	w, err := Start(cfg, store.Options{Namespaced: true, DetectMutation: true, OnMutation: func(k store.Key, err error) {
		mu.Lock()
		defer mu.Unlock()
		changed = append(changed, fmt.Errorf("%s: %w", k, err))
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, err := range changed {
			t.Error(err)
		}
	})
	return w
}

// Stop stops the source, the recorders and the store, and waits for them. It is idempotent.
func (w *Watched) Stop() error {
	if w.cancel == nil {
		return nil
	}
	w.cancel()
	w.cancel = nil
	err := <-w.done
	for _, r := range w.recorders {
		r.Close()
		<-r.Done()
	}
	w.Store.Close()
	return err
}

// Record adds a subscriber that receives all events.
func (w *Watched) Record(name string) *Recorder { return w.RecordWith(RecorderOptions{Name: name}) }

// RecordWith adds a subscriber. Stop closes it.
func (w *Watched) RecordWith(o RecorderOptions) *Recorder {
	r := Record(w.Store, o)
	w.recorders = append(w.recorders, r)
	return r
}

// Cached returns the content of the store.
func (w *Watched) Cached() map[string]State {
	out := map[string]State{}
	for r := range w.Store.Snapshot().All() {
		out[r.Key().String()] = StateOf(r)
	}
	return out
}

// Check checks the requests and the recordings of all recorders. The server must be at rest and the store up to date.
// For a sharded store, only the server's objects in its slots count.
func (w *Watched) Check() []Violation {
	found := w.Requests.Check()
	server, err := ServerState(w.server, w.resource)
	if err != nil {
		return append(found, Violation{"W4", -1, err.Error()})
	}
	if held, ok := w.Store.Held(); ok {
		maps.DeleteFunc(server, func(key string, s State) bool {
			namespace, _, namespaced := strings.Cut(key, "/")
			if !namespaced {
				namespace = ""
			}
			return !held.Has(namespace, types.UID(s.UID))
		})
	}
	cached := w.Cached()
	for _, r := range w.recorders {
		found = append(found, r.Recording().CheckAtRest(server, cached)...)
	}
	return found
}

// ServerState returns the server's objects of a resource.
func ServerState(s *apiserver.Server, resource schema.GroupVersionResource) (map[string]State, error) {
	all, err := s.Objects(resource)
	if err != nil {
		return nil, fmt.Errorf("cannot look at the server: %w", err)
	}
	out := map[string]State{}
	for _, o := range all {
		key := store.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
		out[key.String()] = State{UID: string(o.GetUID()), Version: o.GetResourceVersion()}
	}
	return out, nil
}
