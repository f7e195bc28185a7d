package call

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// Options configures a Client. Only Config is required, or Connection.
type Options struct {
	// Config has the address of the server and the credentials. Its ContentConfig is not used. A client-side rate limit
	// applies only if RateLimiter or a positive QPS is set, because servers have their own priority and fairness.
	Config *rest.Config

	// HTTPClient shares connections with other users of the same server; by default New makes one from Config. Its
	// Timeout is not used, because tries have their own. Its CheckRedirect is not used for writes, because a redirect
	// of a write is final.
	HTTPClient *http.Client

	// Connection is used instead of Config and HTTPClient, for parts of Fairlead that send requests beside another
	// Client. It stays open after Close. Its rate limit does not apply, because such a part waits for its own budget.
	Connection *connection.Conn

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
	conn     *connection.Conn
	limiter  *connection.Limiter // nil: Options.Connection
	budget   *Budget
	metrics  *Metrics
	log      *slog.Logger
	rand     func() float64
	spans    spans
	warnings warnings
}

// New returns a client for the server of o.Config. It sends no request.
func New(o Options) (*Client, error) {
	if o.Config == nil && o.Connection == nil {
		return nil, errors.New("cannot make a client: no configuration")
	}
	c := &Client{
		conn: o.Connection, budget: o.Budget, metrics: o.Metrics, log: o.Logger, rand: o.Rand,
	}
	if c.conn == nil {
		var err error
		if c.conn, err = connection.New(o.Config, connection.Options{HTTPClient: o.HTTPClient}); err != nil {
			return nil, fmt.Errorf("cannot make a client: %w", err)
		}
		c.limiter = c.conn.Limiter()
	}
	g, err := c.conn.Acquire() // a wrong configuration is an error now, not of each call
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	g.Release()
	if c.budget == nil {
		c.budget = new(Budget)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.rand == nil {
		c.rand = rand.Float64
	}
	c.spans = spans{tracer: tracing.Tracer(o.TracerProvider, "call"), server: c.conn.Base()}
	c.warnings.to = c.log
	return c, nil
}

// Connection returns the connection of the client, for other parts of Fairlead that use the same server.
func (c *Client) Connection() *connection.Conn {
	if c == nil {
		return nil
	}
	return c.conn
}

// Close closes idle connections. Calls in flight continue until their contexts end.
func (c *Client) Close() {
	if c != nil && c.limiter != nil {
		c.conn.Close()
	}
}
