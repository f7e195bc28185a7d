package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// Config configures a Source. Resource and one of Connection and REST are required. The zero value of every other field
// is valid.
type Config struct {
	// Connection sends the requests. Sources of one cluster should share it. If it is nil, the source makes its own
	// from REST and closes it when Run returns.
	Connection *connection.Conn
	REST       *rest.Config
	Budget     connection.Budget // of the requests

	Resource   schema.GroupVersionResource
	Namespaces []string // nil or empty: all namespaces with one watch; else one scope per namespace
	// Selectors restrict the source to matching objects. Empty selectors match all.
	LabelSelector string // in the format of labels.Selector.String
	FieldSelector string // in the format of fields.Selector.String

	// Shard restricts the source to the objects of some slots; nil: all objects. It may be empty. The server is asked
	// for these objects only (KEP-5866), and the source filters the response by the same hash. The Sink must implement
	// Sharded. Content from an earlier run is listed again.
	Shard *shard.Set
	// Sharding is a set of slots that several sources share and that may change while they run. It excludes Shard.
	Sharding *Sharding

	// Encoding is the encoding to request. A server without protobuf for the resource responds in JSON: see
	// Object.Encoding.
	Encoding Encoding
	// Metadata requests only the metadata of objects, in protobuf if the server supports it, whatever Encoding is. The
	// source removes any other content: see Object.KeepMetadata. Quarantined objects carry no other bytes either.
	Metadata bool

	// NoExcerpts keeps content of objects out of errors, logs and statuses, and omits the bytes of quarantined objects.
	// It is for a Sink that stores only parts of an object.
	NoExcerpts bool

	PageSize    int  // objects per page of a LIST; 0: 500, negative: one page
	NoWatchList bool // use LIST, never the initial events of a watch

	SilenceBudget       time.Duration // time without event or bookmark before a probe; default 90s
	ListProgressTimeout time.Duration // time without a byte of a list; default 30s
	MaxWatch            time.Duration // client-side lifetime of a watch; default 15m
	BackoffBase         time.Duration // upper bound of the first wait; default 500ms
	BackoffCap          time.Duration // upper bound of every wait; default 30s

	// BulkDeleteGuard is the number of deletions above which a list needs a second, consistent list to confirm it.
	// 0: 100; negative: never.
	BulkDeleteGuard int
	// TrustEmptyList accepts an empty list although objects are known. Otherwise a second list must confirm it.
	TrustEmptyList bool

	Logger *slog.Logger // nil: none
	// TracerProvider creates a span for each list and for the start of each watch. The default is no spans.
	TracerProvider trace.TracerProvider
	Rand           func() float64 // jitter, in [0,1); nil: math/rand/v2
}

// Selectors restrict a source to matching objects, like the selectors in Config.
type Selectors struct{ Label, Field string }

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
