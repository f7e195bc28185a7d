package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Options of a server. The zero value is plain HTTP/1.1 on loopback with DefaultResources.
type Options struct {
	// Pipe serves over in-memory connections instead of TCP, so that everything stays inside a testing/synctest bubble.
	// Create the server, and its clients, inside the bubble.
	Pipe bool
	// TLS serves HTTPS with a certificate of a CA made for this server. HTTP2 implies it.
	TLS bool
	// HTTP2 lets clients speak HTTP/2; without it the server only speaks HTTP/1.1.
	HTTP2 bool

	// Resources to serve from the start; nil means DefaultResources.
	Resources []Resource

	// OpaqueVersions makes resource versions strings without order.
	OpaqueVersions bool
	// LongVersions makes resource versions numbers of 40 digits, which KEP-5504 allows.
	LongVersions bool
	// NoWatchList refuses sendInitialEvents with 422, as a server does that has the feature switched off.
	NoWatchList bool
	// ShardedListAndWatch has lists and watches select by shardSelector (KEP-5866). Otherwise it is ignored, as by a
	// server that has the feature switched off. On with Answer refuses it.
	ShardedListAndWatch bool
	// NoInconsistentContinue leaves the token for an inconsistent rest out of the 410 that answers an expired one.
	NoInconsistentContinue bool
	// BookmarkInterval is the time between bookmarks on a watch that asked for them; default one minute.
	BookmarkInterval time.Duration

	// Token, if set, is what every request must bear, else 401. See also Server.SetToken.
	Token string
	// Authenticate answers TokenReviews; nil knows only Token, as user "admin" in group system:masters.
	Authenticate func(authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	// Authorize answers access reviews of all kinds; nil allows everything. It does not guard requests: use On with
	// Answer(Failure(403)) for that.
	Authorize func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
}

// Server is a Kubernetes API server in this process. All methods are safe for concurrent use.
type Server struct {
	opts   Options
	store  *store
	log    *requestLog
	apply  appliers
	cancel context.CancelFunc // ends the contexts of all requests

	http  *http.Server
	tls   *tlsFiles
	addr  string
	conns sync.WaitGroup // goroutines that serve a connection
	serve sync.WaitGroup // goroutines that accept
	reqs  sync.WaitGroup

	holdCount atomic.Int32
	names     atomic.Uint64 // of generateName and tokens

	mu           sync.Mutex
	listener     net.Listener // nil while down
	open         map[net.Conn]bool
	closed       bool
	token        string
	rules        []*Rule
	holds        []*Hold
	holdsChanged chan struct{}
	watches      map[*Watch]bool
}

// New starts a server; the caller closes it.
func New(opts Options) (*Server, error) {
	if opts.BookmarkInterval <= 0 {
		opts.BookmarkInterval = time.Minute
	}
	if opts.Resources == nil {
		opts.Resources = DefaultResources()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, store: newStore(versioner{opaque: opts.OpaqueVersions, long: opts.LongVersions}), log: newRequestLog(),
		token:  opts.Token,
		cancel: cancel, holdsChanged: make(chan struct{}), watches: map[*Watch]bool{}, open: map[net.Conn]bool{},
	}
	for _, r := range opts.Resources {
		s.store.register(r)
	}
	s.http = &http.Server{
		Handler: s, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   s.connState,
		Protocols:   new(http.Protocols),
	}
	s.http.Protocols.SetHTTP1(true)
	if opts.HTTP2 {
		s.http.Protocols.SetHTTP2(true)
	}
	if opts.TLS || opts.HTTP2 {
		files, err := newTLSFiles()
		if err != nil {
			cancel()
			return nil, fmt.Errorf("cannot make the certificates: %w", err)
		}
		s.tls = files
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{files.cert}, MinVersion: tls.VersionTLS12}
	}
	if err := s.Up(); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// Up starts to accept connections again after Down, at the same address. It does nothing while the server is up.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("cannot bring the server up: it is closed")
	}
	if s.listener != nil {
		return nil
	}
	if s.opts.Pipe {
		s.listener, s.addr = newPipeListener(), "apiserver.pipe"
	} else {
		addr := s.addr
		if addr == "" {
			addr = "127.0.0.1:0"
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		s.listener, s.addr = l, l.Addr().String()
	}
	l := s.listener
	s.serve.Go(func() {
		if s.tls != nil {
			_ = s.http.ServeTLS(l, "", "")
		} else {
			_ = s.http.Serve(l)
		}
	})
	return nil
}

// Down closes the listener and every connection: clients are refused until Up. What is stored stays.
func (s *Server) Down() {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	s.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	s.serve.Wait()
	s.DropConnections()
}

// DropConnections closes every connection at once, as a crash does; the server goes on accepting.
func (s *Server) DropConnections() {
	s.mu.Lock()
	conns := make([]net.Conn, 0, len(s.open))
	for c := range s.open {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn() // no close notification: a crash sends none
		}
		_ = c.Close()
	}
}

// Close stops the server and waits until none of its goroutines is left. A user's function that a request waits for
// must return. Closing twice is harmless.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	_ = s.http.Close()
	s.Down()
	s.conns.Wait()
	s.reqs.Wait()
}

// connState follows the connections: which are open, and when the goroutine of the last one ends.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
	case http.StateClosed, http.StateHijacked:
		s.mu.Lock()
		known := s.open[c]
		delete(s.open, c)
		s.mu.Unlock()
		if known {
			s.conns.Done()
		}
	}
}

// URL returns the address, with scheme and without a path.
func (s *Server) URL() string {
	if s.tls != nil {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// Config returns a new configuration for client-go that reaches this server, without a client-side rate limit.
func (s *Server) Config() *rest.Config {
	cfg := &rest.Config{Host: s.URL(), QPS: -1, BearerToken: s.currentToken()}
	if s.tls != nil {
		cfg.CAData = s.tls.caPEM
		if s.opts.Pipe {
			cfg.ServerName = tlsName
		}
		if !s.opts.HTTP2 {
			cfg.NextProtos = []string{"http/1.1"}
		}
	}
	if s.opts.Pipe {
		cfg.Dial = s.Dial
	}
	return cfg
}

// Dial connects to the server, whatever the address says, for clients that are configured by hand.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	l, addr := s.listener, s.addr
	s.mu.Unlock()
	if !s.opts.Pipe {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	if p, ok := l.(*pipeListener); ok {
		return p.dial(ctx)
	}
	return nil, errRefused
}

// SetToken changes the token that requests must bear; "" lets everybody in.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

func (s *Server) currentToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Register serves one more resource, or again one that was withdrawn, with the objects that it had.
func (s *Server) Register(r Resource) { s.store.register(r) }

// Withdraw stops serving a resource: 404 from now on, and its watches end. The objects stay for a later Register.
func (s *Server) Withdraw(gvr schema.GroupVersionResource) bool { return s.store.withdraw(gvr) }

// Revision returns the revision of the last write. With OpaqueVersions or LongVersions it is not what clients see.
func (s *Server) Revision() uint64 { return s.store.current() }

// Version returns what clients see as resource version of a revision.
func (s *Server) Version(revision uint64) string { return s.store.version.format(revision) }

// Compact forgets the history before this revision (0: before the present one): older list versions, continue tokens
// and watch positions are answered 410.
func (s *Server) Compact(revision uint64) {
	if revision == 0 {
		revision = s.store.current()
	}
	s.store.compact(revision)
}

// Rollback goes back to the state at an older revision, as an etcd restored from a backup does: the counter goes back,
// open watches stay open, and each of them hears nothing until the counter has passed what it had seen.
func (s *Server) Rollback(revision uint64) error { return s.store.rollback(revision) }
