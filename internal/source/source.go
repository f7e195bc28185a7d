package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// Config says what to watch and how. The zero value of every field but Resource, and Client or REST, works.
type Config struct {
	// Client is the way to the API server, to be shared by the sources of one cluster. If it is nil, a Client of this
	// source alone is made from REST, and closed when Run returns.
	Client  *Client
	REST    *rest.Config
	Limiter *Limiter // of that own Client; nil: a new one

	Resource   schema.GroupVersionResource
	Namespaces []string // nil or empty: all, by one watch; else one scope each
	// Selectors restrict the source to some objects; empty ones do not.
	LabelSelector string // as of labels.Selector.String
	FieldSelector string // as of fields.Selector.String

	// Shard restricts the source to the objects of some slots; nil: all objects. It may be empty, and be changed while the
	// source runs (Source.SetShard). The server is asked for these alone (KEP-5866). Whether it does so or not, what comes
	// is filtered by the same hash. The Sink must be Sharded. What it holds from an earlier run is listed again.
	Shard *shard.Set
	// Sharding is a Shard that several sources share.
	Sharding *Sharding

	// Encoding is what to ask for. A server that has no protobuf for the resource answers in JSON all the same: see
	// Object.Encoding.
	Encoding Encoding
	// Metadata asks for no more than the metadata of objects, in protobuf if the server can, whatever Encoding says. What
	// a server sends besides is cut: a Sink is given objects in which there is nothing else (see Object.KeepMetadata), and
	// what is quarantined has no other bytes either.
	Metadata bool

	// NoExcerpts has errors, logs and statuses quote nothing of what has come, and leaves quarantined objects without
	// their bytes: for a Sink that does not keep everything of an object.
	NoExcerpts bool

	PageSize    int  // objects per page of a LIST; 0: 500, negative: all at once
	NoWatchList bool // never ask for the initial events of a watch; use LIST

	SilenceBudget       time.Duration // without event or bookmark, until the server is asked; default 90s
	ListProgressTimeout time.Duration // without a byte of a list; default 30s
	MaxWatch            time.Duration // client-side lifetime of a watch; default 15m
	BackoffBase         time.Duration // ceiling of the first wait; default 500ms
	BackoffCap          time.Duration // ceiling of every wait; default 30s

	// BulkDeleteGuard: a list that would delete more objects than this is believed only when a second, consistent list
	// says the same. 0: 100; negative: off.
	BulkDeleteGuard int
	// TrustEmptyList: believe an empty list although objects are known. Otherwise it is confirmed as above.
	TrustEmptyList bool

	Logger *slog.Logger // nil: none
	// TracerProvider makes a span of each list and of the start of each watch. Default: none are made.
	TracerProvider trace.TracerProvider
	Rand           func() float64 // jitter, in [0,1); nil: math/rand/v2
}

// Selectors restrict a source to some objects, as the fields of the same names in Config.
type Selectors struct{ Label, Field string }

// Source lists and watches one resource. It is safe for concurrent use.
type Source struct {
	cfg     Config
	client  *Client
	private bool // the client is ours
	newSink func(namespace string) Sink
	tracer  trace.Tracer // nil: none

	sharding    *Sharding    // nil: all objects are held
	unselecting atomic.Int64 // until when the server is not asked to select slots, in nanoseconds of the epoch

	mu        sync.Mutex
	selectors Selectors
	scopes    map[string]*scope
	spawn     func(*scope) // starts a scope; nil while Run does not run
	ran       bool
	failures  []error
	stop      context.CancelFunc
	running   sync.WaitGroup // scopes
}

// New makes a Source. sink is called once for each scope when it starts, with its namespace, "" for all.
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
		cfg: cfg.withDefaults(), client: cfg.Client, newSink: sink, scopes: map[string]*scope{}, sharding: sharding,
		tracer: tracing.Tracer(cfg.TracerProvider, "source"),
	}
	if s.client == nil {
		client, err := NewClient(cfg.REST, ClientOptions{Limiter: cfg.Limiter})
		if err != nil {
			return nil, fmt.Errorf("cannot make source: %w", err)
		}
		s.client, s.private = client, true
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

// Run lists and watches until ctx is done and returns nil then, when everything has stopped. It returns an error only
// when a sink panicked, or when it was called before.
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
		s.client.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failures...)
}

// SetNamespaces changes the scopes: those that are new start, those that are missing stop, the others go on untouched.
// No namespace stands for all of them. When it returns, no call to the sink of a removed scope is under way or to come.
// It must not be called by a Sink.
func (s *Source) SetNamespaces(namespaces ...string) {
	want := scopesOf(namespaces)
	var stopped []*scope
	s.mu.Lock()
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
	for _, sc := range stopped {
		<-sc.done
	}
	s.sharding.comeFurther()
}

// SetSelectors changes the selectors of all scopes: each lists again and hands over the difference.
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
		all = append(all, sc.currentStatus())
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

// fail ends the source because a sink panicked.
func (s *Source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	s.stop()
}
