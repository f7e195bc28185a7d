package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Options configures a Client. The zero value works for endpoints at public addresses that need no credentials.
type Options struct {
	// Resolver provides secrets. Without one, definitions that name secrets cannot be called.
	Resolver Resolver
	// AllowTargets lists allowed targets besides public addresses: CIDRs, addresses, host names. See guard.Options.
	AllowTargets []string
	// DenyTargets lists refused targets. It takes precedence over AllowTargets.
	DenyTargets []string
	// InsideTargets returns ranges that look public but are internal, such as services and pods of a cluster. They are
	// refused unless AllowTargets allows them. It is called for each connection. Nil: none.
	InsideTargets func() []netip.Prefix
	// NeverTargets returns addresses with ports that AllowTargets cannot allow: those of the API server. It is called
	// for each connection. Nil: none.
	NeverTargets func() []netip.AddrPort
	// NeverHosts are names with ports that AllowTargets cannot allow. See guard.Options.
	NeverHosts []string
	// Proxy is the egress proxy for all requests: http, https or socks5. Nil: none. Proxies from the environment are
	// ignored. The proxy resolves names, so the guard cannot check them and the proxy must. Literal addresses are still
	// checked here.
	Proxy *url.URL
	// Fence is called just before each request for a definition of a namespace is sent, including those to token
	// endpoints. An error prevents the request, and the try is Canceled. It may fail because this process is no longer
	// the leader, or because another replica owns the namespace. It must be quick and safe for concurrent use. Nil: all
	// requests are sent.
	Fence func(namespace string) error
	// Witness observes the computations for definitions. Nil: none.
	Witness Witness
	// UserAgent is the User-Agent unless a definition sets its own. Default: Fairlead.
	UserAgent string
	// OnBreaker is called when the state of an endpoint's breaker may have changed. It must not block and may be called
	// concurrently. Client.Breaker returns the present state.
	OnBreaker func(namespace, name string, status BreakerStatus)
	// Recorded returns the state of a breaker that another process has recorded. The breaker of an endpoint begins in it
	// with the first Acquire. It stays open for at most Breaker.OpenFor, since the clock of that process may be ahead.
	// Nil, and a zero State: Closed.
	Recorded func(namespace, name string) BreakerStatus
	// Logger receives panics of callbacks, which are recovered. Default: none.
	Logger *slog.Logger
	// TracerProvider creates a span for each try and poll as a child of the context's span. The receiver gets it in the
	// W3C Trace Context headers. Without a provider the receiver gets the span of the context. Without that, it gets a
	// trace of the call's own, which is not sampled.
	TracerProvider trace.TracerProvider
}

// Client calls endpoints. It owns connections, cached tokens, and the limits and breakers of all endpoints. It is safe
// for concurrent use.
type Client struct {
	gates     gates
	recorded  func(namespace, name string) BreakerStatus
	callbacks callbacks
	turns     *turns // of computations for namespaces
	tokens    tokens
	sender    sender
}

// New returns a Client. It fails on invalid targets or an invalid proxy.
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
	if o.Resolver == nil {
		o.Resolver = noResolver{}
	}
	if o.UserAgent == "" {
		o.UserAgent = "Fairlead"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Recorded == nil {
		o.Recorded = func(string, string) BreakerStatus { return BreakerStatus{} }
	}
	c := &Client{
		recorded:  o.Recorded,
		callbacks: callbacks{onBreaker: o.OnBreaker, logger: o.Logger},
		turns:     newTurns(max(1, runtime.GOMAXPROCS(0)-1)),
	}
	connections := &transports{guard: g, proxy: o.Proxy, fence: o.Fence, turn: c.turns.do}
	c.sender = sender{
		credentials:  credentialSource{resolver: o.Resolver, tokens: &c.tokens, transports: connections},
		transports:   connections,
		computations: computations{turns: c.turns, witness: o.Witness},
		long:         &responseLimiter{free: maxLong},
		lifetime:     new(lifetime),
		tracer:       tracing.Tracer(o.TracerProvider, "webhook"),
		userAgent:    o.UserAgent,
	}
	return c, nil
}

// Close waits for the tries in progress and closes all connections. Later tries are Canceled. To end tries early,
// cancel their contexts. Close may be called more than once.
func (c *Client) Close() { c.sender.close() }

// Acquire requests a permit to send one request, a call or a poll, to w's endpoint. It never blocks. With a permit the
// caller sends the request, or returns the permit with Release. Without one it asks again with the same id after
// wait.For, or as soon as wake is called. wake is called at most once, from any goroutine; it must not block and may be
// nil. Permits are given in order of arrival. id identifies the waiting caller, for example Call.ID.
func (c *Client) Acquire(w *Compiled, id string, wake func()) (*Permit, Wait) {
	g := c.gates.find(w.def.endpoint())
	if g == nil {
		g = c.gates.add(w.def.endpoint(), newGate(c.begin(&w.def)))
	}
	before := g.breakerStatus()
	leave, wait, wakes := g.acquire(&w.def, id, wake)
	c.callbacks.run(wakes...)
	c.callbacks.breakerUsed(&w.def, g, before)
	if wait.For > 0 {
		return nil, wait
	}
	return &Permit{sender: &c.sender, callbacks: &c.callbacks, hook: w, gate: g, leave: leave}, Wait{}
}

// Withdraw removes a waiting caller from the queue. Without it, its place stays reserved for a moment.
func (c *Client) Withdraw(w *Compiled, id string) { c.WithdrawFrom(w.def.Namespace, w.def.Name, id) }

// WithdrawFrom is Withdraw by the name of the endpoint.
func (c *Client) WithdrawFrom(namespace, name, id string) {
	if g := c.gates.find(Definition{Namespace: namespace, Name: name}.endpoint()); g != nil {
		c.callbacks.run(g.withdraw(id)...)
	}
}

// Breaker returns the state of an endpoint's breaker.
func (c *Client) Breaker(namespace, name string) BreakerStatus {
	g := c.gates.find(Definition{Namespace: namespace, Name: name}.endpoint())
	if g == nil {
		return c.before(namespace, name)
	}
	return g.breakerStatus()
}

// before returns the recorded state of the breaker of an endpoint that has no gate.
func (c *Client) before(namespace, name string) BreakerStatus {
	b := c.recorded(namespace, name)
	b.State = cmp.Or(b.State, Closed)
	return b
}

// begin returns the state in which the breaker of a new gate begins.
func (c *Client) begin(d *Definition) BreakerStatus {
	b := c.before(d.Namespace, d.Name)
	if latest := time.Now().Add(d.Breaker.OpenFor); b.Until.After(latest) {
		b.Until = latest
	}
	return b
}

// Breakers counts the known endpoints by breaker state. The result contains every state.
func (c *Client) Breakers() map[BreakerState]int { return c.gates.breakers() }

// Targets returns the state of the endpoints of a namespace, or of all namespaces if it is empty, sorted by namespace
// and name. It includes the endpoints for which a permit was requested and that were not forgotten since.
func (c *Client) Targets(namespace string) []TargetState { return c.gates.states(namespace) }

// Target is Targets for one endpoint. It returns false if no permit was requested for it.
func (c *Client) Target(namespace, name string) (TargetState, bool) {
	g := c.gates.find(Definition{Namespace: namespace, Name: name}.endpoint())
	if g == nil {
		b := c.before(namespace, name)
		return TargetState{Namespace: namespace, Webhook: name, Circuit: b.State, Until: b.Until}, false
	}
	return g.state(namespace, name), true
}

// Mask hides secrets in a text from the receiver of w that is not an answer, such as a callback. It hides what Results
// hide: the values that calls authenticate and sign with. more lists further values to hide. Mask hides the whole text
// if ctx ends before the turn of the namespace, or if there are too many secrets to search for.
func (c *Client) Mask(ctx context.Context, w *Compiled, text string, more ...string) string {
	creds, _ := c.sender.credentials.get(ctx, &w.def, false, "") // an unavailable secret was never sent
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

// Forget drops the limits, the breaker and the token of a deleted endpoint.
func (c *Client) Forget(namespace, name string) {
	endpoint := Definition{Namespace: namespace, Name: name}.endpoint()
	c.tokens.forget(endpoint)
	c.gates.forget(endpoint)
}

// Vacate drops the limits and breakers of all endpoints in the namespaces for which of returns true. This process makes
// no calls to them until it gets the namespaces again; another process may meanwhile change what is recorded.
func (c *Client) Vacate(of func(namespace string) bool) { c.gates.vacate(of) }

// Compile is the function Compile in a turn of the definition's namespace, so that a slow compilation does not delay
// other namespaces. It also fails if ctx ends before the turn.
func (c *Client) Compile(ctx context.Context, d Definition) (w *Compiled, err error) {
	if waited := c.sender.computations.run(ctx, &d, Compiling, func() { w, err = Compile(d) }); waited != nil {
		return nil, fmt.Errorf("cannot compile %s: %w", d.endpoint(), waited)
	}
	return w, err
}
