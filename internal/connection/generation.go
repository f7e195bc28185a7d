package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

// Generation is the transports with their credentials, and the connections that they opened.
type Generation struct {
	conn         *Conn
	client       *http.Client
	streams      *http.Client // for lists and watches; the same as client with a transport of the caller
	own          bool         // the transports are made here
	certificates string       // content of the certificate files

	checked time.Time // of certificates; guarded by Conn.mu, like the next three
	users   int
	stale   bool
	stuck   bool // a request on it stalled

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

// Do sends a request. It follows redirects of reads only: a redirected write would be repeated, or become a read whose
// answer looks like that of the write.
func (g *Generation) Do(r *http.Request) (*http.Response, error) { return g.client.Do(r) }

// Stream sends a list or a watch. With HTTP/2, lists and watches have a connection of their own. On a busy machine a
// connection that also carries many writes delays the events of a watch by seconds. Stream requests no compression,
// which costs more time than it saves on a fast link. A transport of the caller may do so.
func (g *Generation) Stream(r *http.Request) (*http.Response, error) {
	if g.own {
		r.Header.Set("Accept-Encoding", "identity")
	}
	if g.conn.agent != "" {
		r.Header.Set("User-Agent", g.conn.agent)
	}
	return g.streams.Do(r)
}

// Release ends the use by one request.
func (g *Generation) Release() {
	g.conn.mu.Lock()
	defer g.conn.mu.Unlock()
	g.users--
	g.closeUnused()
}

// retire lets the connections close with the last request. It must be called with Conn.mu held.
func (g *Generation) retire() {
	g.stale = true
	g.closeUnused()
}

// closeUnused closes the connections of a retired generation that no request uses. It must be called with Conn.mu held.
func (g *Generation) closeUnused() {
	if !g.stale || g.users > 0 {
		return
	}
	if g.conn.current == g { // of a closed Conn
		g.conn.current = nil
	}
	if g.conn.given != nil && !g.stuck {
		return // the caller owns the connections
	}
	utilnet.CloseIdleConnectionsFor(g.client.Transport)
	utilnet.CloseIdleConnectionsFor(g.streams.Transport)
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
	g *Generation
}

func (c *trackedConn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.g.mu.Unlock()
	return c.Conn.Close()
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (g *Generation) dial(next dialer) dialer {
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

// connect makes new transports instead of those from client-go's cache: they have larger buffers, can be retired and
// leave no goroutine behind. It reads certificates and tokens again. With reload, a token file must be readable.
func (c *Conn) connect(reload bool) (*Generation, error) {
	tc, err := c.cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot configure transport: %w", err)
	}
	g := &Generation{
		conn: c, client: &http.Client{}, conns: map[*trackedConn]struct{}{}, checked: time.Now(), stale: c.closed,
	}
	if reload && tc.BearerTokenFile != "" {
		tc.BearerToken = "" // the file has replaced it
	}
	if c.given != nil {
		*g.client = *c.given
		err = c.setGiven(g.client, tc, reload)
	} else {
		g.certificates, g.own = c.certificates(), tc.Transport == nil
		err = g.setTransport(g.client, tc)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot configure transport: %w", err)
	}
	g.client.Timeout, g.client.CheckRedirect = 0, c.checkRedirect
	g.streams = g.client
	if g.own {
		g.streams = &http.Client{CheckRedirect: c.checkRedirect}
		if err := g.setTransport(g.streams, tc); err != nil {
			return nil, fmt.Errorf("cannot configure transport: %w", err)
		}
	}
	return g, nil
}

// setGiven sets the transport of a client of the caller, which uses a token file if tc has one.
func (c *Conn) setGiven(client *http.Client, tc *transport.Config, reload bool) (err error) {
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	if reload && tc.BearerTokenFile != "" {
		client.Transport, err = transport.NewBearerAuthWithRefreshRoundTripper("", tc.BearerTokenFile, client.Transport)
	}
	return err
}

// setTransport sets the transport of tc, or else a new one, with the credentials of tc.
func (g *Generation) setTransport(client *http.Client, tc *transport.Config) (err error) {
	rt := tc.Transport
	if rt == nil {
		if rt, err = g.newTransport(tc); err != nil {
			return err
		}
	}
	client.Transport, err = transport.HTTPWrappersForConfig(tc, rt)
	return err
}

func (g *Generation) newTransport(tc *transport.Config) (*http.Transport, error) {
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	next := dialDirect(&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second})
	if tc.DialHolder != nil {
		next = tc.DialHolder.Dial
	}
	proxy := tc.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	answer := min(2*g.conn.ping, 15*time.Second)
	http2 := tlsConfig == nil || len(tlsConfig.NextProtos) == 0 || slices.Contains(tlsConfig.NextProtos, "h2")
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         g.dial(next),
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   http2 && os.Getenv("DISABLE_HTTP2") == "", // the variable of client-go
		DisableCompression:  tc.DisableCompression,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      64 << 10,
		HTTP2: &http.HTTP2Config{
			// A connection that does not answer pings is dead even if TCP keeps it open.
			SendPingTimeout: g.conn.ping,
			PingTimeout:     answer,
			// A peer that sends but does not read gets no pings, and would block the writes of all streams for good.
			WriteByteTimeout:          answer,
			MaxReadFrameSize:          256 << 10,
			MaxReceiveBufferPerStream: 4 << 20,
		},
	}, nil
}

func (c *Conn) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case via[0].Method != http.MethodGet:
		return http.ErrUseLastResponse
	case c.given != nil && c.given.CheckRedirect != nil:
		return c.given.CheckRedirect(r, via)
	case len(via) >= maxRedirects:
		return errors.New("too many redirects")
	}
	return nil
}

const maxRedirects = 10 // the limit of net/http

// OnClose returns body with a function that runs after its first Close.
func OnClose(body io.ReadCloser, fn func()) io.ReadCloser { return &onClose{ReadCloser: body, fn: fn} }

type onClose struct {
	io.ReadCloser
	fn   func()
	once sync.Once
}

func (b *onClose) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.fn)
	return err
}
