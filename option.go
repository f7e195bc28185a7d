package fairlead

import (
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

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

// Option changes a Runtime when it is made.
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

// grace is how long functions whose context was cancelled have to return.
const grace = 5 * time.Second

func (o *options) complete() {
	if o.scheme == nil {
		o.scheme = scheme.Scheme
	}
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
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

// WithScheme sets the Go types that are known. Default: those of client-go.
func WithScheme(scheme *runtime.Scheme) Option { return func(o *options) { o.scheme = scheme } }

// WithMapper sets how kinds and resources are matched. Default: the API server is asked, when it is needed first.
func WithMapper(mapper meta.RESTMapper) Option { return func(o *options) { o.mapper = mapper } }

// WithLogger sets the logger of the runtime and of all that it hosts: caches, clients, observers, controllers, the
// engines of Flows and of reconcile.Flow, elections, and what package operation has that is added. A logger given to
// one of them beats it. Default: nothing is logged.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithTracerProvider has the runtime make spans of OpenTelemetry, and all that it hosts: a span of each reconciliation,
// of each fiber and each of its steps, of the engines of Flows and of reconcile.Flow, of each request to the API server,
// of watches their start, of what hooks are asked, and of renewals of the Lease that fail or are slow. A provider given to one of them beats it. Package operation takes one in its options. The
// provider is the program's, which shuts it down after Run. Default: no spans, which cost nothing. See docs/tracing.md.
func WithTracerProvider(tp trace.TracerProvider) Option { return func(o *options) { o.tracers = tp } }

// WithRegistry sets where metrics are registered. Default: a new registry, with the metrics of Go and of the process.
func WithRegistry(registry *prometheus.Registry) Option {
	return func(o *options) { o.registry = registry }
}

// WithListen has Run serve the Handler on this address, such as ":9090". Default: it is not served. The pages show
// names of objects and are not protected: serve them where only operators look.
func WithListen(address string) Option { return func(o *options) { o.listen = address } }

// WithDegraded lets the runtime run when some sources, or controllers, cannot be started, as when a kind does not exist
// yet; they are reported, by /readyz too, and tried again with back-off. Default: Run fails. A mistake in a declaration
// is another thing, and makes Run fail.
func WithDegraded() Option { return func(o *options) { o.degraded = true } }

// WithStaleness sets how old the state of a source may be before the runtime is unhealthy. Default: 5 minutes.
func WithStaleness(bound time.Duration) Option { return func(o *options) { o.staleness = bound } }

// WithStopTimeout bounds how long Run waits at the end for what was added with Add. Default: 20 seconds.
func WithStopTimeout(d time.Duration) Option { return func(o *options) { o.stopTimeout = d } }

// WithDrain sets for how long observers that are running at the end may go on before their context is cancelled, as a
// part of the stop timeout. Default: 5 seconds; negative: they are cancelled at once.
func WithDrain(d time.Duration) Option { return func(o *options) { o.drain = d } }

// WithSource sets options of every source, before its own.
func WithSource(opts ...cache.Option) Option {
	return func(o *options) { o.source = append(slices.Clip(o.source), opts...) }
}

// WithFieldOwner sets the field manager of all writes. Default: fairlead.
func WithFieldOwner(name string) Option { return func(o *options) { o.fieldOwner = name } }

// WithSignals has Run stop at the first of these signals as at the end of its context; the second one ends the process
// as if Fairlead were not there. None stands for SIGINT and SIGTERM. Default: signals are the program's.
func WithSignals(signals ...os.Signal) Option {
	if len(signals) == 0 {
		signals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return func(o *options) { o.signals = signals }
}

// WithLeaderElection has only one process of several work at a time, elected by the Lease namespace/name: the others
// wait, ready to take over within seconds of its end, and after a kill when the Lease has run out: 15 to 24 s. When
// leadership is lost nothing is sent any more, and Run returns ErrNotLeading; let the process end then, and be started
// again. Without a namespace or a name Run fails. /readyz of a process that waits says who leads, or why this one
// cannot take the Lease, which is not ready.
func WithLeaderElection(namespace, name string) Option {
	return func(o *options) { o.lease = &[2]string{namespace, name} }
}

// WithLeadership is WithLeaderElection by other means. If it has a method Run(context.Context) error, that runs from
// the start until all the work has ended; if it has a method Status() (leader string, err error), /readyz tells what
// that says.
func WithLeadership(l reconcile.Leadership) Option { return func(o *options) { o.leadership = l } }

// WithLinger sets for how long a source that nobody uses any more (its last observer was removed, its controller has
// ended) goes on being watched: who comes back within that time needs no list. Default, and 0: 30 seconds; negative:
// its watch ends at once.
func WithLinger(d time.Duration) Option { return func(o *options) { o.linger = d } }

// WithHotBytes bounds the decoded objects that each store keeps although nobody uses them; 0: 32 MiB, negative: none.
// It suits programs that look at most objects rarely, such as controllers whose objects wait.
func WithHotBytes(n int64) Option { return func(o *options) { o.hotBytes = n } }

// WithContent says what the cache holds of the objects of a kind: managedFields besides, without certain fields, as
// changed by a function; see cache.Content. The empty kind stands for all kinds that nothing is said of. The last one
// that is said of a kind counts. What is dropped is in no memory, on no disk and in no log, and no observer, reconciler
// or client is shown it; Modify and patches work as before, and an Update that would take it from the server is refused
// (client.DroppedError). Default: all of an object but its managedFields.
//
//	fairlead.WithContent(schema.GroupKind{Kind: "Secret"}, cache.Content{Drop: []string{"data", "stringData"}})
func WithContent(kind schema.GroupKind, content cache.Content) Option {
	return func(o *options) {
		contents := map[schema.GroupKind]cache.Content{}
		maps.Copy(contents, o.contents)
		contents[kind] = content
		o.contents = contents
	}
}

// WithPersistence has what is watched saved in a directory, every five minutes and at the end, from where the next run
// goes on without a list. Default: nothing is saved. The directory is made if it is not there; it must be this
// program's alone, and what is saved is as secret as what is watched. After a restart everything counts as synced when
// the watch has caught up with the server, usually within three seconds.
func WithPersistence(dir string) Option { return func(o *options) { o.dir = dir } }

// WithDetectMutation reports who changes an object that is shared, with its key: an error in the log, once for each
// version, and fairlead_store_mutations_total. What an observer is given, prior states among it, is looked at when it
// returns, and reported with its name; anything else when it is read again or leaves the memory of decoded objects. It
// is for tests: every read encodes the object as JSON. Default: nobody looks.
func WithDetectMutation() Option { return func(o *options) { o.detect = true } }

// Console is pages for people, as package console has them.
type Console interface {
	// Open returns the pages for a runtime; they begin with /console/ and /api/.
	Open(rt *Runtime) (http.Handler, error)
}

// WithConsole serves pages for people below /console/, and /api/why, on the address of WithListen and in the Handler:
//
//	fairlead.New(cfg, fairlead.WithListen("127.0.0.1:8080"), fairlead.WithConsole(console.Options{}))
//
// Default: none, and nothing of them is linked.
func WithConsole(c Console) Option { return func(o *options) { o.console = c } }
