package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// Source lists and watches one resource. It is safe for concurrent use.
type Source struct {
	cfg     Config
	conn    *connection.Conn
	private bool // the source owns the connection
	newSink func(namespace string) Sink
	tracer  trace.Tracer // nil: none

	sharding      *Sharding // nil: all objects are held
	shardSelector shardSelector

	changing sync.Mutex // one SetNamespaces at a time; before mu

	mu        sync.Mutex
	selectors Selectors
	scopes    map[string]*scope
	reached   string       // the newest version that a removed scope has seen; the first list of a scope is not older
	spawn     func(*scope) // starts a scope; nil while Run does not run
	ran       bool
	failures  []error
	stop      context.CancelFunc
	running   sync.WaitGroup // scopes
}

// New returns a Source. It calls sink once for each scope when the scope starts, with its namespace or "" for all.
func New(cfg Config, sink func(namespace string) Sink) (*Source, error) {
	if cfg.Resource.Resource == "" || cfg.Resource.Version == "" {
		return nil, fmt.Errorf("cannot make source: %q has no version or name", cfg.Resource)
	}
	if sink == nil {
		return nil, errors.New("cannot make source: no sink")
	}
	sharding, err := cfg.sharding()
	if err != nil {
		return nil, fmt.Errorf("cannot make source: %w", err)
	}
	s := &Source{
		cfg: cfg.withDefaults(), conn: cfg.Connection, newSink: sink, scopes: map[string]*scope{}, sharding: sharding,
		tracer: tracing.Tracer(cfg.TracerProvider, "source"),
	}
	if s.conn == nil {
		if s.conn, err = connection.New(cfg.REST, connection.Options{}); err != nil {
			return nil, fmt.Errorf("cannot make source: %w", err)
		}
		s.private = true
	}
	s.selectors = Selectors{cfg.LabelSelector, cfg.FieldSelector}
	for _, ns := range scopesOf(cfg.Namespaces) {
		s.scopes[ns] = newScope(s, ns)
	}
	return s, nil
}

func scopesOf(namespaces []string) []string {
	if len(namespaces) == 0 || slices.Contains(namespaces, "") {
		return []string{""}
	}
	return namespaces
}

// Run lists and watches until ctx is done. It then waits for all goroutines and returns nil. It returns an error if a
// sink panicked or Run was called before.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.ran {
		s.mu.Unlock()
		return ErrRunning
	}
	s.ran, s.stop = true, cancel
	s.mu.Unlock()
	defer s.sharding.attach(s)()
	s.mu.Lock()
	s.spawn = func(sc *scope) {
		own, stop := context.WithCancel(ctx)
		sc.stop = stop
		s.running.Go(func() {
			defer close(sc.done)
			defer stop()
			sc.run(own)
		})
	}
	for _, sc := range s.scopes {
		s.spawn(sc)
	}
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	s.spawn = nil
	s.mu.Unlock()
	s.running.Wait()
	if s.private {
		s.conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failures...)
}

// SetNamespaces changes the scopes: new namespaces start, missing ones stop, and the others continue. Without arguments
// the source watches all namespaces. After SetNamespaces returns, the sinks of removed scopes receive no calls. A Sink
// must not call it.
func (s *Source) SetNamespaces(namespaces ...string) {
	s.changing.Lock()
	defer s.changing.Unlock()
	want := scopesOf(namespaces)
	stopped := s.stopOthers(want)
	for _, sc := range stopped {
		<-sc.done
	}
	s.mu.Lock()
	for _, sc := range stopped {
		s.reached = sc.reachedAtLeast(s.reached)
	}
	for _, ns := range want {
		if s.scopes[ns] != nil {
			continue
		}
		sc := newScope(s, ns)
		s.scopes[ns] = sc
		if s.spawn != nil {
			s.spawn(sc)
		}
	}
	s.mu.Unlock()
	s.sharding.notifyProgress()
}

// stopOthers removes the scopes that are not wanted, and returns those that are still running.
func (s *Source) stopOthers(want []string) (stopped []*scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ns, sc := range s.scopes {
		if slices.Contains(want, ns) {
			continue
		}
		delete(s.scopes, ns)
		if s.spawn != nil {
			sc.stop()
			stopped = append(stopped, sc)
		}
	}
	return stopped
}

// SetSelectors changes the selectors of all scopes. Each scope lists again and passes the difference to its sink.
func (s *Source) SetSelectors(sel Selectors) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.selectors == sel {
		return
	}
	s.selectors = sel
	for _, sc := range s.scopes {
		sc.reconfigure(sel)
	}
}

// Status returns the condition of every scope, ordered by namespace.
func (s *Source) Status() []Status {
	s.mu.Lock()
	scopes := s.sortedLocked()
	s.mu.Unlock()
	all := make([]Status, 0, len(scopes))
	for _, sc := range scopes {
		all = append(all, sc.status())
	}
	return all
}

func (s *Source) sortedLocked() []*scope {
	all := make([]*scope, 0, len(s.scopes))
	for _, sc := range s.scopes {
		all = append(all, sc)
	}
	slices.SortFunc(all, func(a, b *scope) int {
		if a.namespace < b.namespace {
			return -1
		}
		return 1
	})
	return all
}

// fail records err and stops the source.
func (s *Source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	s.stop()
}

// interruptScopes interrupts all scopes, so that they apply the new slots.
func (s *Source) interruptScopes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.scopes {
		sc.interrupt(errSlots)
	}
}

// behindSlots describes the scopes that are behind.
func (s *Source) behindSlots(behind func(slotProgress) bool) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.sortedLocked() {
		if behind(sc.slotProgress()) {
			out = append(out, slotText(s.cfg.Resource.GroupResource(), sc.status()))
		}
	}
	return out
}

// contactTime is the time since the last useful response during which a scope counts as making progress.
const contactTime = 5 * time.Second

// unreadySlots returns the slots of want that a scope has not listed, and describes the scopes whose lists fail. A
// resource that the server does not serve has no objects to list.
func (s *Source) unreadySlots(want shard.Set) (slots shard.Set, failing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.sortedLocked() {
		lacks, status := sc.filter.unready(want), sc.status()
		if lacks.IsEmpty() || status.Reason == ReasonNotFound {
			continue
		}
		slots = slots.Union(lacks)
		// After an error, the scope stays Degraded until a list is complete.
		if status.Phase == Degraded && time.Since(status.LastContact) >= contactTime {
			failing = append(failing, slotText(s.cfg.Resource.GroupResource(), status))
		}
	}
	return slots, failing
}

// slotText describes a scope that is behind.
func slotText(resource schema.GroupResource, status Status) string {
	text := resource.String()
	if status.Namespace != "" {
		text += " in " + status.Namespace
	}
	text += fmt.Sprintf(" (%s: %s", status.Phase, status.Reason)
	if status.Message != "" {
		text += ": " + status.Message
	}
	return text + ")"
}

// newScope returns a scope that does not run. The caller holds the mutex of the Source, or has just made it.
func newScope(src *Source, namespace string) *scope {
	cfg, log := &src.cfg, src.cfg.logger(namespace)
	h := src.sharding
	s := &scope{
		cfg: cfg, namespace: namespace, log: log, newSink: src.newSink, fail: src.fail, done: make(chan struct{}),
		backoff:   backoff.Policy{Base: cfg.BackoffBase, Cap: cfg.BackoffCap},
		condition: newCondition(namespace),
		names:     &namespaces{isTracked: h != nil && h.layout.By == shard.Namespace && namespace == ""},
		wanted:    src.selectors, selectors: src.selectors, reached: src.reached,
		requests: &requester{
			cfg: cfg, conn: src.conn, namespace: namespace, log: log, shardSelector: &src.shardSelector,
			spans: &spans{src.tracer, cfg.Resource.GroupResource(), namespace},
		},
	}
	s.filter = newSlotFilter(h, s.names, &s.counts)
	return s
}
