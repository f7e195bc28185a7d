package connection

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Options configures a Conn. The zero value is valid.
type Options struct {
	// HTTPClient sends the requests, instead of a client made from the rest.Config. It is then responsible for TLS,
	// proxies, dialing, the User-Agent and authentication. Of the rest.Config only the address, the rate limit and the
	// token file apply; the latter after a Reload.
	//
	// Its Timeout is not used, because a watch lasts minutes. Its CheckRedirect is used for reads only. Its transport
	// should detect dead connections, as client-go's transports do with HTTP/2 pings.
	//
	// The caller owns the transport and its connections, and Close leaves them open. After a request that stalled, the
	// idle connections of the transport are closed. An HTTP/2 connection with other active requests stays in use.
	HTTPClient *http.Client
	// StoresBurst is the burst of the budget Stores. The default is 200.
	StoresBurst int
	// Ping is the silence after which an HTTP/2 connection sends a ping; the default is 30 s. The connection closes if
	// there is no answer, or no byte can be written, for twice that time, and for at most 15 s.
	Ping time.Duration
}

// Conn is the connection of a process to one API server. It is safe for concurrent use.
type Conn struct {
	cfg     *rest.Config
	base    *url.URL
	given   *http.Client // of the caller; nil: the Conn makes its own
	agent   string       // User-Agent of lists and watches; "": that of cfg
	limiter *Limiter
	ping    time.Duration // Options.Ping

	mu      sync.Mutex
	current *Generation
	closed  bool
}

// New returns a Conn that uses a copy of cfg. It supports every authentication method of client-go and the Transport,
// wrappers, dialer and proxy of cfg. It ignores the timeout of cfg. It sends no request and reads no file.
func New(cfg *rest.Config, o Options) (*Conn, error) {
	if cfg == nil {
		return nil, errors.New("no rest.Config")
	}
	c := &Conn{
		cfg: rest.CopyConfig(cfg), given: o.HTTPClient, limiter: newLimiter(cfg, o.StoresBurst),
		ping: cmp.Or(max(o.Ping, 0), 30*time.Second),
	}
	var err error
	if c.base, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, err
	}
	if cfg.UserAgent == "" {
		c.cfg.UserAgent = rest.DefaultKubernetesUserAgent()
		if c.given == nil {
			c.agent = "fairlead/" + c.cfg.UserAgent
		}
	}
	return c, nil
}

// Base returns the URL of the server. The caller must not modify it.
func (c *Conn) Base() *url.URL { return c.base }

// Limiter returns the limiter of all requests. A request must wait for it before Acquire.
func (c *Conn) Limiter() *Limiter { return c.limiter }

// Close closes idle connections. Requests remain possible, and the other connections close with the last one.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.retire()
	}
}

// CloseIdle closes idle connections. The others close with their last request, and the next request opens a new one.
func (c *Conn) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.current; g != nil {
		c.current = nil
		g.retire()
	}
}

// Acquire returns the generation for a new request. The caller must release it when the body is closed. An error means
// that the configuration cannot be used.
func (c *Conn) Acquire() (*Generation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.current; g != nil && time.Since(g.checked) >= recheckFiles {
		g.checked = time.Now()
		if now := c.certificates(); now != "" && now != g.certificates {
			_ = c.renew(g, false) // g stays in use
		}
	}
	g := c.current
	if g == nil {
		var err error
		if g, err = c.connect(false); err != nil {
			return nil, err
		}
		c.current = g
	}
	g.users++
	return g, nil
}

// recheckFiles is the interval at which a generation compares the files of its certificates, as in client-go.
const recheckFiles = 5 * time.Minute

// certificates returns the content of the certificate files, or "" without files or if one is unreadable.
func (c *Conn) certificates() string {
	var all strings.Builder
	for _, name := range []string{c.cfg.CAFile, c.cfg.CertFile, c.cfg.KeyFile} {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		all.Write(content)
	}
	return all.String()
}

// Abandon retires g after a request on it stalled, so that the next request opens a new connection. It reads the
// credentials again; if that fails, g stays in use.
func (c *Conn) Abandon(g *Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.stuck = true
	_ = c.renew(g, false)
}

// Reload reads the credentials again after a request on g was refused with 401. It does so once for all requests that
// were refused on g. If it returns an error, the Conn keeps the previous credentials.
func (c *Conn) Reload(g *Generation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renew(g, true)
}

// renew replaces g, unless that has happened already. It must be called with mu held.
func (c *Conn) renew(g *Generation, reload bool) error {
	if c.current != g {
		return nil
	}
	next, err := c.connect(reload)
	if err != nil {
		return err
	}
	c.current = next
	g.retire()
	return nil
}

// RoundTrip implements http.RoundTripper, for clients of other libraries. It does not wait for the Limiter.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	g, err := c.Acquire()
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	res, err := g.client.Transport.RoundTrip(r)
	if err != nil {
		g.Release()
		return nil, err
	}
	res.Body = OnClose(res.Body, g.Release)
	return res, nil
}
