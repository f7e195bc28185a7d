package scenario

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/observe"
)

// Fairlead is the subject of this module: a source that fills a store.
type Fairlead struct{}

// Name implements Subject.
func (Fairlead) Name() string { return "fairlead" }

// Start implements Subject.
func (Fairlead) Start(cfg Config) (Instance, error) {
	enc := source.JSON
	if cfg.Protobuf {
		enc = source.Protobuf
	}
	w, err := watchtest.Start(source.Config{
		REST: cfg.REST, Resource: cfg.Resource, Namespaces: cfg.Namespaces, LabelSelector: cfg.Labels,
		PageSize: cfg.PageSize, NoWatchList: cfg.NoWatchList, Encoding: enc, Rand: cfg.Rand, Logger: cfg.Logger,
	}, store.Options{Namespaced: true, Scheme: scheme.Scheme, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	if err != nil {
		return nil, err
	}
	return &ours{Watched: w, cfg: cfg}, nil
}

type ours struct {
	*watchtest.Watched
	cfg       Config
	observers *observers // nil until the first Observe
}

func (o *ours) Subscribe(name string) Subscriber {
	return subscriber{o.RecordWith(watchtest.RecorderOptions{
		Name: name, Subscribe: store.SubscribeOptions{Resync: o.cfg.Resync},
	}), o.filtered()}
}

func (o *ours) Status(namespace string) (source.Status, bool) {
	for _, s := range o.Source.Status() {
		if s.Namespace == namespace {
			return s, true
		}
	}
	return source.Status{}, true
}

// filtered reports whether objects may leave the store and come back.
func (o *ours) filtered() bool { return o.cfg.Labels != "" || len(o.cfg.Namespaces) > 0 }

// Observe implements Observing.
func (o *ours) Observe(name string, handle func(watchtest.Event), options ...observe.Option) Subscriber {
	if o.observers == nil {
		o.observers = newObservers(o.Store)
	}
	s := o.observers.observe(name, handle, options)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording.Filtered = o.filtered()
	return s
}

// Reported implements Observing.
func (o *ours) Reported() []string {
	if o.observers == nil {
		return nil
	}
	o.observers.mu.Lock()
	defer o.observers.mu.Unlock()
	return strings.Split(strings.TrimSpace(o.observers.reports.String()), "\n")
}

func (o *ours) Stop() {
	if o.observers != nil {
		if err := o.observers.stop(); err != nil {
			panic(err) // a handler does not return
		}
	}
	if err := o.Watched.Stop(); err != nil {
		panic(err) // the source has caught a panic of the store
	}
}

func (o *ours) SetNamespaces(namespaces ...string) {
	before := o.cfg.Namespaces
	o.Source.SetNamespaces(namespaces...)
	for _, was := range before {
		gone := true
		for _, is := range namespaces {
			gone = gone && is != was
		}
		if gone {
			o.Store.DropScope(was)
		}
	}
	o.cfg.Namespaces = namespaces
}

func (o *ours) SetLabels(selector string) {
	o.Source.SetSelectors(source.Selectors{Label: selector})
	o.cfg.Labels = selector
}

func (o *ours) Quarantined() []string {
	var keys []string
	for _, q := range o.Store.Quarantined() {
		keys = append(keys, q.Key())
	}
	slices.Sort(keys)
	return keys
}

func (o *ours) WaitFor(version string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return o.Store.WaitFor(ctx, version)
}

type subscriber struct {
	*watchtest.Recorder
	filtered bool
}

func (s subscriber) Recording() watchtest.Recording {
	r := s.Recorder.Recording()
	r.Filtered = r.Filtered || s.filtered
	return r
}

func (s subscriber) Leave() { s.Close(); <-s.Done() }
