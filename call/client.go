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

// Options configure a Client. Only Config is required.
type Options struct {
	// Config says where the server is and who we are. Its ContentConfig is not used. A client-side rate limit exists
	// only when RateLimiter or a positive QPS is set: servers have their own priority and fairness.
	Config *rest.Config

	// HTTPClient shares connections with others that talk to the same server; made from Config by default. Its
	// Timeout is not used, for tries have their own, nor its CheckRedirect where a write is redirected: that is
	// final.
	HTTPClient *http.Client

	// Reload makes the credentials new after a 401, once for all calls that were refused meanwhile. Token files are
	// read again without it. An error or a panic of it ends the call.
	Reload func(ctx context.Context) error

	Budget  *Budget      // retry budget of this server; a new one with its defaults
	Metrics *Metrics     // none by default
	Logger  *slog.Logger // one Warn line per failed try, Debug for what is no failure or Reported; discarded by default

	// TracerProvider makes a span for each try, below that of its context. None by default.
	TracerProvider trace.TracerProvider

	// Rand gives the jitter, in [0,1); math/rand/v2 by default. It must be safe for concurrent use.
	Rand func() float64
}

// Client is one API server as seen by all calls to it. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	limiter flowcontrol.RateLimiter
	budget  *Budget
	metrics *Metrics
	log     *slog.Logger
	tracer  trace.Tracer // nil: none
	rand    func() float64
	renewal renewal
	warned  warnings
	token   tokenFile
}

// New returns a client for the server of the configuration. It sends nothing.
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

// ours is an HTTP client with the same connections that has no timeout and sends no write to another place than it was
// sent to: there it would be repeated, or become a read whose answer passes for that of the write.
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

const maxRedirects = 10 // as net/http has it

// Close closes the idle connections. Calls in flight go on; their contexts end them.
func (c *Client) Close() {
	if c == nil || c.http == nil {
		return
	}
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
}

// Budget returns the retry budget that the calls of this client share.
func (c *Client) Budget() *Budget {
	if c == nil {
		return nil
	}
	return c.budget
}

// warnings remembers the server's warnings that have been logged, each once; a bounded number of them.
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
