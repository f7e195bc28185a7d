package fairlead

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/source"
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
	source      []source.Option
	fieldOwner  string
	hotBytes    int64
}

// Defaults of the options.
const (
	DefaultStaleness   = 5 * time.Minute
	DefaultStopTimeout = 20 * time.Second
)

// WithScheme sets the Go types that are known. Default: those of client-go.
func WithScheme(scheme *runtime.Scheme) Option { return func(o *options) { o.scheme = scheme } }

// WithMapper sets how kinds and resources are matched. Default: the API server is asked, when it is needed first.
func WithMapper(mapper meta.RESTMapper) Option { return func(o *options) { o.mapper = mapper } }

// WithLogger sets the logger. Default: nothing is logged.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithRegistry sets where metrics are registered. Default: a new registry, shown by the Handler.
func WithRegistry(registry *prometheus.Registry) Option {
	return func(o *options) { o.registry = registry }
}

// WithListen has Run serve the Handler on this address, such as ":9090". Default: it is not served.
func WithListen(address string) Option { return func(o *options) { o.listen = address } }

// WithDegraded lets the runtime run when some sources cannot be started; they are reported. Default: Run fails.
func WithDegraded() Option { return func(o *options) { o.degraded = true } }

// WithStaleness sets how old the state of a source may be before the runtime is unhealthy. Default: 5 minutes.
func WithStaleness(bound time.Duration) Option { return func(o *options) { o.staleness = bound } }

// WithStopTimeout bounds how long Run waits at the end for what was added with Add. Default: 20 seconds.
func WithStopTimeout(d time.Duration) Option { return func(o *options) { o.stopTimeout = d } }

// WithSource sets options of every source, before its own.
func WithSource(opts ...source.Option) Option {
	return func(o *options) { o.source = append(o.source, opts...) }
}

// WithFieldOwner sets the field manager of all writes. Default: fairlead.
func WithFieldOwner(name string) Option { return func(o *options) { o.fieldOwner = name } }

// WithHotBytes bounds the decoded objects that each store keeps although nobody uses them; 0: 32 MiB, negative: none. It suits programs that
// look at most objects rarely, such as controllers whose objects wait.
func WithHotBytes(n int64) Option { return func(o *options) { o.hotBytes = n } }
