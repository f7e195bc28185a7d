package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Options of a Client. The zero value works for endpoints at public addresses that need no credentials.
type Options struct {
	// Resolver gives secrets. Without one, definitions that name secrets cannot be called.
	Resolver Resolver
	// AllowTargets lists what may be called besides public addresses: CIDRs, addresses, names of hosts. See guard.Options.
	AllowTargets []string
	// DenyTargets lists what may not be called, whatever AllowTargets says.
	DenyTargets []string
	// InsideTargets are ranges that may not be called unless AllowTargets says so, though their addresses look public:
	// those of the services and pods of a cluster. It is asked at each connection. Nil: none.
	InsideTargets func() []netip.Prefix
	// NeverTargets are addresses and ports that may not be called whatever AllowTargets says: those of the API server. It
	// is asked at each connection. Nil: none.
	NeverTargets func() []netip.AddrPort
	// NeverHosts are names with ports that may not be called whatever AllowTargets says. See guard.Options.
	NeverHosts []string
	// Proxy is the egress proxy for all requests, http, https or socks5; nil: none. Proxies from the environment are
	// ignored. With a proxy, names are resolved there, out of reach of the guard: the proxy has to guard them; literal
	// addresses are still refused here.
	Proxy *url.URL
	// Fence is asked just before each request is sent for a definition of a namespace, those to token endpoints too; an
	// error keeps it from being sent, and the try is Canceled: for one, because this process does not lead any more, or
	// the namespace is another replica's. It must be quick and safe for concurrent use. Nil: all are sent.
	Fence func(namespace string) error
	// Witness is told what is computed for definitions. Nil: nobody is.
	Witness Witness
	// UserAgent is sent unless a definition sets its own. Default: Fairlead.
	UserAgent string
	// OnBreaker is told when the state of an endpoint's breaker may have changed. It must not block. It may be called from
	// several goroutines; Client.Breaker has the present state.
	OnBreaker func(namespace, name string, status BreakerStatus)
	// Logger is told of panics in callbacks, which are caught. Default: none.
	Logger *slog.Logger
	// TracerProvider makes a span of each try and poll, below that of its context, of which the receiver is told by the
	// headers of W3C Trace Context. Without one the receiver is told of the span of the context, and without that of a
	// trace of the call's own, which is not sampled.
	TracerProvider trace.TracerProvider
}

// Client calls endpoints. It owns connections, cached tokens, and the limits and breakers of all endpoints. It is safe
// for concurrent use.
type Client struct {
	resolver   Resolver
	userAgent  string
	onBreaker  func(namespace, name string, status BreakerStatus)
	logger     *slog.Logger
	tracer     trace.Tracer // nil: no spans
	transports transports
	tokens     tokens
	turns      *turns // of what is computed for the namespaces
	witness    Witness
	long       *crowd // of long answers

	mu       sync.Mutex
	gates    map[string]*gate // by endpoint
	closed   bool
	inFlight sync.WaitGroup // tries
}

// New makes a Client. It fails on targets and proxies that cannot be understood.
func New(o Options) (*Client, error) {
	g, err := guard.NewWith(guard.Options{
		Never: o.NeverTargets, NeverHosts: o.NeverHosts, Deny: o.DenyTargets, Allow: o.AllowTargets, Inside: o.InsideTargets,
	})
	if err != nil {
		return nil, err
	}
	if p := o.Proxy; p != nil {
		switch p.Scheme {
		case "http", "https", "socks5", "socks5h":
		default:
			return nil, errors.New("cannot use proxy: its scheme is none of http, https, socks5")
		}
		if p.Host == "" {
			return nil, errors.New("cannot use proxy: it has no host")
		}
	}
	c := &Client{
		witness: o.Witness, resolver: o.Resolver, userAgent: o.UserAgent, onBreaker: o.OnBreaker, gates: map[string]*gate{},
		turns: newTurns(max(1, runtime.GOMAXPROCS(0)-1)), long: newCrowd(maxLong),
		tracer: tracing.Tracer(o.TracerProvider, "webhook"),
	}
	c.transports.guard, c.transports.proxy, c.transports.fence = g, o.Proxy, o.Fence
	if c.resolver == nil {
		c.resolver = noResolver{}
	}
	if c.userAgent == "" {
		c.userAgent = "Fairlead"
	}
	if c.logger = o.Logger; c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Close waits for the tries under way and closes all connections. Tries after Close are Canceled. To end
// tries early, cancel their contexts. Close may be called more than once.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.inFlight.Wait()
	c.transports.close()
}

// begin registers a try, unless the Client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.inFlight.Add(1)
	return true
}

func (c *Client) gate(endpoint string) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gates[endpoint]
	if g == nil {
		g = newGate()
		c.gates[endpoint] = g
	}
	return g
}

// Acquire asks for leave to send one request to w's endpoint: a call or a poll. It never blocks. With a permit the
// caller sends the request, or gives the permit back with Release. Without one it asks again, with the same id, after
// wait.For, or as soon as wake is called (once, from any goroutine; it must not block; nil is allowed). Who came first
// is served first. id names the waiting caller, for example Call.ID.
func (c *Client) Acquire(w *Compiled, id string, wake func()) (*Permit, Wait) {
	g := c.gate(w.def.endpoint())
	before := g.breakerStatus()
	leave, wait, wakes := g.acquire(&w.def, id, wake)
	c.notify(wakes...)
	c.announce(w, g, before)
	if wait.For > 0 {
		return nil, wait
	}
	return &Permit{client: c, hook: w, gate: g, leave: leave}, Wait{}
}

// Withdraw tells that the caller who asked with id does not wait any longer. Without it, its place is lost to the
// others for a moment.
func (c *Client) Withdraw(w *Compiled, id string) { c.WithdrawFrom(w.def.Namespace, w.def.Name, id) }

// WithdrawFrom is Withdraw for a caller who has not kept the Compiled.
func (c *Client) WithdrawFrom(namespace, name, id string) {
	endpoint := Definition{Namespace: namespace, Name: name}.endpoint()
	c.mu.Lock()
	g := c.gates[endpoint]
	c.mu.Unlock()
	if g != nil {
		c.notify(g.withdraw(id)...)
	}
}

// Breaker is the state of the breaker of an endpoint.
func (c *Client) Breaker(namespace, name string) BreakerStatus {
	c.mu.Lock()
	g := c.gates[Definition{Namespace: namespace, Name: name}.endpoint()]
	c.mu.Unlock()
	if g == nil {
		return BreakerStatus{State: Closed}
	}
	return g.breakerStatus()
}

// Breakers counts the endpoints that have been asked for by the state of their breaker, each state among them.
func (c *Client) Breakers() map[BreakerState]int {
	c.mu.Lock()
	gates := slices.Collect(maps.Values(c.gates))
	c.mu.Unlock()
	count := map[BreakerState]int{Closed: 0, Open: 0, HalfOpen: 0}
	for _, g := range gates {
		count[g.breakerStatus().State]++
	}
	return count
}

// Mask hides in a text that the receiver of w has sent apart from its answers, such as a callback, what Results hide
// too: the values that calls authenticate and sign with. more are further values to hide. A text is hidden as a whole
// if ctx ends before it is the turn of the namespace of w, or if there is too much to look for in it.
func (c *Client) Mask(ctx context.Context, w *Compiled, text string, more ...string) string {
	creds, _ := c.credentials(ctx, w, false, "") // without error: what cannot be had was not sent
	secrets, size := append(creds.secrets, more...), 0
	for _, secret := range secrets {
		size += len(secret)
	}
	if size > maxMasked || len(secrets) > maxMaskedValues {
		return masked
	}
	if c.turns.do(ctx, w.def.Namespace, func() { text = newMask(secrets...).apply(text) }) != nil {
		return masked
	}
	return text
}

// Forget drops the limits, the breaker and the token of an endpoint that is no more.
func (c *Client) Forget(namespace, name string) {
	endpoint := Definition{Namespace: namespace, Name: name}.endpoint()
	c.tokens.forget(endpoint)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.gates, endpoint)
}

// Compile is the function Compile when it is the turn of the definition's namespace: definitions of others are not
// compiled meanwhile, nor delayed by one that takes long. It fails also if ctx ends before.
func (c *Client) Compile(ctx context.Context, d Definition) (w *Compiled, err error) {
	if waited := c.compute(ctx, &d, Compiling, func() { w, err = Compile(d) }); waited != nil {
		return nil, fmt.Errorf("cannot compile %s: %w", d.endpoint(), waited)
	}
	return w, err
}

func (c *Client) announce(w *Compiled, g *gate, before BreakerStatus) {
	if c.onBreaker == nil {
		return
	}
	if now := g.breakerStatus(); now.State != before.State || !now.Until.Equal(before.Until) {
		c.notify(func() { c.onBreaker(w.def.Namespace, w.def.Name, now) })
	}
}

// notify runs callbacks of the user, each on its own.
func (c *Client) notify(callbacks ...func()) {
	for _, callback := range callbacks {
		if p := protect.Call(callback); p != nil {
			c.logger.Error("panic in a callback of the webhook client", "panic", p.Value, "stack", string(p.Stack))
		}
	}
}
