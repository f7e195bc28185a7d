package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Client is the way to one API server: its connections and its budget of requests. Sources of one cluster should share
// one. It is safe for concurrent use.
//
// Connections come in generations. A request that gets stuck abandons the generation that it used, so that the retry
// takes a new connection with freshly read credentials, while other requests stay where they are as long as they work.
type Client struct {
	cfg     *rest.Config
	limiter *Limiter
	gzip    bool
	given   http.RoundTripper // nil: one is made

	mu      sync.Mutex
	current *generation
	closed  bool
}

// ClientOptions are the choices of a Client. The zero value works.
type ClientOptions struct {
	// Limiter bounds the requests of all sources; nil: a new one with its defaults.
	Limiter *Limiter
	// Gzip asks the server to compress. It costs more time than it saves on any fast link.
	// It is of no effect with Transport.
	Gzip bool
	// Transport sends the requests, in place of what would be made from the rest.Config: the Transport of an http.Client
	// that the program has, for instance, as rest.HTTPClientFor makes it. Authentication, TLS, proxies, dialing and the
	// User-Agent are its business then; of the rest.Config the address counts alone. It must be safe for concurrent use,
	// must not bound how long a body is read, as http.Client.Timeout does, since a watch is read for minutes, and should
	// notice connections that are dead, as client-go's transports do by HTTP/2 pings.
	//
	// It belongs to the caller, and so do its connections: Close leaves them open. A request that gets stuck is cancelled,
	// which closes its connection if that was HTTP/1, and then the idle connections of Transport are closed: one of HTTP/2
	// on which other requests are under way is not left, as one of a Client's own is.
	Transport http.RoundTripper
}

// NewClient makes a Client from a copy of cfg. All ways to authenticate that client-go knows work, and so do the
// Transport, the wrappers, the dialer and the proxy of cfg; rate limits and timeouts of cfg are ignored.
func NewClient(cfg *rest.Config, o ClientOptions) (*Client, error) {
	if cfg == nil {
		return nil, errors.New("cannot make client: no rest.Config")
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "fairlead/" + rest.DefaultKubernetesUserAgent()
	}
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, fmt.Errorf("cannot make client: %w", err)
	}
	if o.Limiter == nil {
		o.Limiter = NewLimiter(0, 0)
	}
	return &Client{cfg: cfg, limiter: o.Limiter, gzip: o.Gzip, given: o.Transport}, nil
}

// Close closes the connections that are not in use; the others close with their last request.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if g := c.current; g != nil {
		c.current = nil
		g.retireLocked()
	}
}

// generation is one transport and the connections that it made.
type generation struct {
	client *http.Client
	given  bool // the transport is the caller's
	users  int  // under the mutex of the Client, like the next two
	stale  bool
	stuck  bool // a request on it was given up

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

// acquire returns the generation for a new request. The caller releases it when the body is closed.
func (c *Client) acquire() (*generation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("client is closed")
	}
	if c.current == nil {
		g, err := c.connect()
		if err != nil {
			return nil, err
		}
		c.current = g
	}
	c.current.users++
	return c.current, nil
}

func (c *Client) release(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.users--; g.users == 0 && g.stale {
		g.closeAll()
	}
}

// abandon makes the next request take a new connection.
func (c *Client) abandon(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.stuck = true
	if c.current == g {
		c.current = nil
		g.retireLocked()
	}
}

func (g *generation) retireLocked() {
	g.stale = true
	if g.users == 0 {
		g.closeAll()
	}
}

func (g *generation) closeAll() {
	if g.given && !g.stuck {
		return // nothing of it is ours
	}
	utilnet.CloseIdleConnectionsFor(g.client.Transport)
	g.mu.Lock()
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

// trackedConn is a connection that its generation can close: an HTTP/2 transport keeps those whose streams have just
// ended.
type trackedConn struct {
	net.Conn
	g *generation
}

func (c *trackedConn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.g.mu.Unlock()
	return c.Conn.Close()
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (g *generation) dial(next dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t := &trackedConn{Conn: conn, g: g}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.conns == nil {
			conn.Close()
			return nil, net.ErrClosed
		}
		g.conns[t] = struct{}{}
		return t, nil
	}
}

// connect builds a transport of our own rather than one of client-go's cache: it has larger buffers, it can be
// abandoned, and it leaves no goroutine behind. Certificates and tokens are read anew.
func (c *Client) connect() (*generation, error) {
	if c.given != nil {
		return &generation{client: &http.Client{Transport: c.given}, given: true}, nil
	}
	tc, err := c.cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot configure transport: %w", err)
	}
	g := &generation{conns: map[*trackedConn]struct{}{}}
	rt := tc.Transport
	if rt == nil {
		tlsConfig, err := transport.TLSConfigFor(tc)
		if err != nil {
			return nil, fmt.Errorf("cannot configure TLS: %w", err)
		}
		next := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		if tc.DialHolder != nil {
			next = tc.DialHolder.Dial
		}
		proxy := tc.Proxy
		if proxy == nil {
			proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
		}
		http2 := tlsConfig == nil || len(tlsConfig.NextProtos) == 0
		if !http2 {
			for _, p := range tlsConfig.NextProtos {
				http2 = http2 || p == "h2"
			}
		}
		rt = &http.Transport{
			Proxy:               proxy,
			DialContext:         g.dial(next),
			TLSClientConfig:     tlsConfig,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   http2,
			DisableCompression:  !c.gzip,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     90 * time.Second,
			ReadBufferSize:      64 << 10,
			// A connection that answers no ping is dead, whatever TCP believes.
			HTTP2: &http.HTTP2Config{
				SendPingTimeout:           30 * time.Second,
				PingTimeout:               15 * time.Second,
				MaxReadFrameSize:          256 << 10,
				MaxReceiveBufferPerStream: 4 << 20,
			},
		}
	}
	rt, err = transport.HTTPWrappersForConfig(tc, rt)
	if err != nil {
		return nil, fmt.Errorf("cannot configure transport: %w", err)
	}
	g.client = &http.Client{Transport: rt}
	return g, nil
}

// url is the address of a collection: path below the server's, with namespace and resource.
func (c *Client) url(group, version, namespace, resource string) *url.URL {
	base, _, _ := rest.DefaultServerUrlFor(c.cfg) // was checked by NewClient
	segments := []string{"api", version}
	if group != "" {
		segments = []string{"apis", group, version}
	}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	return base.JoinPath(append(segments, resource)...)
}
