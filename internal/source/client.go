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

// Client holds the connections and the request budget for one API server. Sources of one cluster should share a Client.
// It is safe for concurrent use.
//
// Connections are grouped in generations. A request that stalls retires its generation, so its retry opens a new
// connection with freshly read credentials. Other requests keep their connections as long as they work.
type Client struct {
	cfg     *rest.Config
	limiter *Limiter
	gzip    bool
	given   http.RoundTripper // transport of the caller; nil: the Client makes its own

	mu      sync.Mutex
	current *generation
	closed  bool
}

// ClientOptions configures a Client. The zero value is valid.
type ClientOptions struct {
	// Limiter bounds the requests of all sources. The default is a new Limiter with its defaults.
	Limiter *Limiter
	// Gzip requests compressed responses. It costs more time than it saves on a fast link. It has no effect with
	// Transport.
	Gzip bool
	// Transport sends the requests, instead of a transport made from the rest.Config. An example is the Transport of an
	// http.Client that rest.HTTPClientFor returns. It is then responsible for authentication, TLS, proxies, dialing and
	// the User-Agent. Only the server address of the rest.Config is used.
	//
	// Transport must be safe for concurrent use. It must not bound the time to read a body, as http.Client.Timeout does,
	// since a watch lasts minutes. It should detect dead connections, as client-go's transports do with HTTP/2 pings.
	//
	// The caller owns Transport and its connections, and Close leaves them open. A request that stalls is cancelled, and
	// then the idle connections of Transport are closed. Cancelling closes an HTTP/1 connection. An HTTP/2 connection with
	// other active requests stays in use.
	Transport http.RoundTripper
}

// NewClient returns a Client that uses a copy of cfg. It supports every authentication method of client-go and the
// Transport, wrappers, dialer and proxy of cfg. It ignores the rate limits and timeouts of cfg.
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

// Close closes idle connections. Each other connection closes with its last request.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if g := c.current; g != nil {
		c.current = nil
		g.retireLocked()
	}
}

// generation is one transport and the connections that it opened.
type generation struct {
	client *http.Client
	given  bool // the caller owns the transport
	users  int  // guarded by Client.mu, like the next two
	stale  bool
	stuck  bool // a request on it stalled

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

// acquire returns the generation for a new request. The caller must release it when the body is closed.
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

// abandon retires g, so that the next request opens a new connection.
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
		return // the caller owns the connections
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

// trackedConn is a connection that its generation can close. CloseIdleConnections is not enough: an HTTP/2 transport
// keeps connections whose streams have just ended.
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

// connect makes a new transport instead of one from client-go's cache: it has larger buffers, can be retired and leaves
// no goroutine behind. It reads certificates and tokens again.
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
			// A connection that does not answer pings is dead even if TCP keeps it open.
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

// url returns the URL of a collection.
func (c *Client) url(group, version, namespace, resource string) *url.URL {
	base, _, _ := rest.DefaultServerUrlFor(c.cfg) // NewClient has checked it
	segments := []string{"api", version}
	if group != "" {
		segments = []string{"apis", group, version}
	}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	return base.JoinPath(append(segments, resource)...)
}
