package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"

	"go.opentelemetry.io/otel/trace"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// Options configures a Client. Only Config is required.
type Options struct {
	// Config has the address of the server and the credentials. Its ContentConfig is not used. A client-side rate limit
	// applies only if RateLimiter or a positive QPS is set, because servers have their own priority and fairness.
	Config *rest.Config

	// HTTPClient shares connections with other users of the same server; by default New makes one from Config. Its
	// Timeout is not used, because tries have their own. Its CheckRedirect is not used for writes, because a redirect of
	// a write is final.
	HTTPClient *http.Client

	// Reload reloads the credentials after a 401, once for all calls that were refused in the meantime. Token files are
	// re-read without it. An error or a panic of Reload ends the call.
	Reload func(ctx context.Context) error

	Budget  *Budget      // retry budget of this server; by default a new Budget
	Metrics *Metrics     // none by default
	Logger  *slog.Logger // failed tries at Warn; expected or Reported ones at Debug; discarded by default

	// TracerProvider creates a span for each try, as a child of the span in the context. None by default.
	TracerProvider trace.TracerProvider

	// Rand returns the jitter, in [0,1); math/rand/v2 by default. It must be safe for concurrent use.
	Rand func() float64
}

// Client represents one API server and the state that all calls to it share. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	limiter flowcontrol.RateLimiter
	budget  *Budget
	metrics *Metrics
	log     *slog.Logger
	tracer  trace.Tracer // may be nil
	rand    func() float64
	renewal renewal
	warned  warnings
	token   tokenFile
}

// New returns a client for the server of o.Config. It sends no request.
func New(o Options) (*Client, error) {
	if o.Config == nil {
		return nil, errors.New("cannot make a client: no configuration")
	}
	base, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	c := &Client{
		base: base, http: o.HTTPClient, limiter: o.Config.RateLimiter, budget: o.Budget, metrics: o.Metrics,
		log: o.Logger, rand: o.Rand, tracer: tracing.Tracer(o.TracerProvider, "call"),
		renewal: renewal{reload: o.Reload, turn: make(chan struct{}, 1)},
		token:   tokenFile{path: o.Config.BearerTokenFile},
	}
	if c.http == nil {
		cfg := *o.Config
		cfg.Timeout = 0
		if cfg.UserAgent == "" {
			cfg.UserAgent = rest.DefaultKubernetesUserAgent()
		}
		if c.http, err = rest.HTTPClientFor(&cfg); err != nil {
			return nil, fmt.Errorf("cannot make a client: %w", err)
		}
	}
	c.http = ours(c.http)
	if c.limiter == nil && o.Config.QPS > 0 {
		c.limiter = flowcontrol.NewTokenBucketRateLimiter(o.Config.QPS, max(o.Config.Burst, 1))
	}
	if c.budget == nil {
		c.budget = new(Budget)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.rand == nil {
		c.rand = rand.Float64
	}
	return c, nil
}

// ours returns an HTTP client with the same connections, without a timeout, and without redirects of writes. A
// redirected write would be repeated, or become a read whose answer looks like that of the write.
func ours(shared *http.Client) *http.Client {
	h := *shared
	h.Timeout = 0
	h.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case via[0].Method != http.MethodGet:
			return http.ErrUseLastResponse
		case shared.CheckRedirect != nil:
			return shared.CheckRedirect(req, via)
		case len(via) >= maxRedirects:
			return errors.New("too many redirects")
		}
		return nil
	}
	return &h
}

const maxRedirects = 10 // the limit of net/http

// Close closes idle connections. Calls in flight continue until their contexts end.
func (c *Client) Close() {
	if c == nil || c.http == nil {
		return
	}
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
}

// warnings records the server's warnings that have been logged, up to maxWarnings, so that each is logged once.
type warnings struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

const maxWarnings = 256

func (w *warnings) first(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[text]; ok || len(w.seen) >= maxWarnings {
		return false
	}
	if w.seen == nil {
		w.seen = make(map[string]struct{})
	}
	w.seen[text] = struct{}{}
	return true
}
