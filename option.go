package fairlead

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"

	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Option configures a Runtime.
type Option func(*options)

type options struct {
	scheme      *runtime.Scheme
	mapper      meta.RESTMapper
	logger      *slog.Logger
	registry    *prometheus.Registry
	listen      string
	degraded    bool
	staleness   time.Duration
	stopTimeout time.Duration
	drain       time.Duration
	source      []cache.Option
	condition   func(context.Context, SourceCondition)
	fieldOwner  string
	signals     []os.Signal
	lease       *[2]string // namespace and name
	leadership  reconcile.Leadership
	shards      *group.Options
	hotBytes    int64
	contents    map[schema.GroupKind]cache.Content
	linger      time.Duration
	dir         string
	detect      bool
	console     Console
	tracers     trace.TracerProvider
}

// Defaults of the options.
const (
	defaultStaleness   = 5 * time.Minute
	defaultStopTimeout = 20 * time.Second
	defaultDrain       = 5 * time.Second
)

// grace is how long functions have to return after their context is cancelled.
const grace = 5 * time.Second

func (o *options) complete() {
	if o.scheme == nil {
		o.scheme = scheme.Scheme
	}
	if o.logger == nil {
		o.logger = slog.Default()
	}
	if o.fieldOwner == "" {
		o.fieldOwner = programName()
	}
	if o.registry == nil {
		o.registry = prometheus.NewRegistry()
		o.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if o.staleness <= 0 {
		o.staleness = defaultStaleness
	}
	if o.stopTimeout <= 0 {
		o.stopTimeout = defaultStopTimeout
	}
	if o.drain == 0 {
		o.drain = defaultDrain
	}
}

// programName returns the name of the program's file, as far as it can be a field owner.
func programName() string {
	if len(os.Args) == 0 || os.Args[0] == "" {
		return "fairlead"
	}
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	return cmp.Or(strings.ToValidUTF8(name[:min(len(name), maxFieldOwner)], ""), "fairlead")
}

// maxFieldOwner is the longest field manager that the API server accepts, in bytes.
const maxFieldOwner = 128

// WithScheme sets the registered Go types. Default: the scheme of client-go.
func WithScheme(scheme *runtime.Scheme) Option { return func(o *options) { o.scheme = scheme } }

// WithMapper sets the mapping between kinds and resources. Default: discovery from the API server at first use.
func WithMapper(mapper meta.RESTMapper) Option { return func(o *options) { o.mapper = mapper } }

// WithLogger sets the logger of the runtime and of all parts that it hosts: caches, clients, observers, controllers,
// the engines of Flows and of reconcile.Flow, elections, and added parts of package operations. A logger set on one of
// these takes precedence. Default: slog.Default, which writes to standard error.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithTracerProvider makes the runtime and its parts create OpenTelemetry spans. There is a span for each
// reconciliation and for each fiber, and each step of a fiber, of the engines of Flows and of reconcile.Flow. There are
// also spans for each request to the API server, the start of each watch, calls of hooks, and Lease renewals that fail
// or are slow. A provider set on one of these parts takes precedence. Package operations takes a provider in its
// options. The program owns the provider and shuts it down after Run. Default: no spans, at no cost. See
// docs/tracing.md.
func WithTracerProvider(tp trace.TracerProvider) Option { return func(o *options) { o.tracers = tp } }

// WithRegistry sets the registry for metrics. Default: a new registry with the Go and process metrics.
func WithRegistry(registry *prometheus.Registry) Option {
	return func(o *options) { o.registry = registry }
}

// WithListen has Run serve the Handler on this address, such as ":9090". Default: it is not served. The pages show
// names of objects and are not protected: serve them only where operators alone have access.
func WithListen(address string) Option { return func(o *options) { o.listen = address } }

// WithDegraded lets the runtime run although some sources or controllers cannot start, for example because a kind does
// not exist yet. The runtime reports them, also in /readyz, and retries with back-off. Default: Run fails. A mistake in
// a declaration makes Run fail in any case.
func WithDegraded() Option { return func(o *options) { o.degraded = true } }

// WithStaleness sets the age of a source's state beyond which the runtime is unhealthy. Default: 5 minutes.
func WithStaleness(bound time.Duration) Option { return func(o *options) { o.staleness = bound } }

// WithStopTimeout bounds how long Run waits at the end for functions added with Add. Default: 20 seconds.
func WithStopTimeout(d time.Duration) Option { return func(o *options) { o.stopTimeout = d } }

// WithDrain sets how long running observers may continue at the end before their context is cancelled. The time is part
// of the stop timeout. Default: 5 seconds. A negative value cancels them at once.
func WithDrain(d time.Duration) Option { return func(o *options) { o.drain = d } }

// WithSource sets options of every source. A source's own options are applied after them. Namespaces do not apply to
// cluster-scoped kinds.
func WithSource(opts ...cache.Option) Option {
	return func(o *options) { o.source = append(slices.Clip(o.source), opts...) }
}

// WithSourceCondition calls fn with the condition of each source: of observers, controllers and the client, in every
// namespace that it watches. The first call follows when the source works or is degraded for the first time. Further
// calls follow when it becomes degraded or recovers, when the reason changes, and when it ends. The calls for one
// source are in order, and fn holds up no watch. If fn is slow, it may miss conditions between the first and the
// latest. A panic is logged. ctx ends with the watch, and Run returns after the last call.
func WithSourceCondition(fn func(ctx context.Context, c SourceCondition)) Option {
	return func(o *options) { o.condition = fn }
}

// WithFieldOwner sets the field manager of all writes. Default: the name of the program's file. The owner must stay the
// same across versions of a program, since the API server keeps what another owner has applied.
func WithFieldOwner(name string) Option { return func(o *options) { o.fieldOwner = name } }

// WithSignals makes Run stop at the first of these signals, as at the end of its context. The second signal has its
// default effect and ends the process. Without arguments the signals are SIGINT and SIGTERM. Default: Run does not
// handle signals.
func WithSignals(signals ...os.Signal) Option {
	if len(signals) == 0 {
		signals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return func(o *options) { o.signals = signals }
}

// WithLeaderElection makes one of several processes work at a time, elected by the Lease namespace/name. The others
// wait. They take over within seconds when the leader stops, and when its Lease expires, after 15 to 24 s, if the
// leader is killed. When leadership is lost, the process sends no more requests and Run returns ErrNotLeading; the
// process should then exit and be restarted. Run fails if namespace or name is empty. /readyz of a waiting process
// names the leader. If the process cannot take the Lease, /readyz gives the reason and the process is not ready.
func WithLeaderElection(namespace, name string) Option {
	return func(o *options) { o.lease = &[2]string{namespace, name} }
}

// WithLeadership is like WithLeaderElection with another kind of election. If l has a method Run(context.Context)
// error, it runs from the start until all work has ended. If l has a method Status() (leader string, err error),
// /readyz shows its result.
func WithLeadership(l reconcile.Leadership) Option { return func(o *options) { o.leadership = l } }

// WithLinger sets how long the watch of a source continues after its last user has gone, such as a removed observer or
// a controller that has ended. A user that returns within this time needs no new list. Default, and 0: 30 seconds. A
// negative value ends the watch at once.
func WithLinger(d time.Duration) Option { return func(o *options) { o.linger = d } }

// WithHotBytes bounds the decoded objects that each store retains without a user, in bytes. 0 means 32 MiB; a negative
// value retains none. A low bound suits programs that read most objects rarely.
func WithHotBytes(n int64) Option { return func(o *options) { o.hotBytes = n } }

// WithContent sets which parts of the objects of a kind the cache holds: with managedFields, without certain fields, or
// as changed by a function; see cache.Content. The empty kind applies to all kinds without a setting of their own. The
// last setting for a kind wins. Dropped parts are never stored in memory, on disk or in logs, and no observer,
// reconciler or client sees them. Modify and patches work as usual. An Update that would delete dropped parts on the
// server fails with client.DroppedError. Default: whole objects without managedFields.
//
//	fairlead.WithContent(schema.GroupKind{Kind: "Secret"}, cache.Content{Drop: []string{"data", "stringData"}})
//
// With Content.Keep some objects of the kind keep the dropped parts. A kind with Keep is not saved by
// [WithPersistence], since the next run may have another function.
func WithContent(kind schema.GroupKind, content cache.Content) Option {
	return func(o *options) {
		contents := map[schema.GroupKind]cache.Content{}
		maps.Copy(contents, o.contents)
		contents[kind] = content
		o.contents = contents
	}
}

// WithPersistence saves the watched state in a directory every five minutes and at the end. The next run resumes from
// it without a list. Default: nothing is saved. The directory is created if it is missing. It must belong to this
// program alone, and the saved state is as secret as the watched objects. After a restart, sources are synced once the
// watch has caught up with the server, usually within three seconds.
func WithPersistence(dir string) Option { return func(o *options) { o.dir = dir } }

// WithDetectMutation reports code that changes a shared object: it logs one error for each version, with the key, and
// counts fairlead_store_mutations_total. Objects passed to an observer, including prior states, are checked when it
// returns, and the report names the observer. Other objects are checked when they are read again or evicted from the
// memory of decoded objects. It is for tests, since every read encodes the object as JSON. Default: off.
func WithDetectMutation() Option { return func(o *options) { o.detect = true } }

// Console is a set of pages for people, as package console implements it.
type Console interface {
	// Open returns the pages of a runtime. Their paths begin with /console/ and /api/.
	Open(rt *Runtime) (http.Handler, error)
}

// WithConsole serves a console below /console/, and /api/why, on the address of WithListen and in the Handler:
//
//	fairlead.New(cfg, fairlead.WithListen("127.0.0.1:8080"), fairlead.WithConsole(console.Options{}))
//
// Default: no console, and none of its code is linked.
func WithConsole(c Console) Option { return func(o *options) { o.console = c } }
