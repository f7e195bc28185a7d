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

// Options configure a server. The zero value means plain HTTP/1.1 on loopback with DefaultResources.
type Options struct {
	// Pipe serves over in-memory connections instead of TCP, so everything stays inside a testing/synctest bubble. The
	// server and its clients must be created inside the bubble.
	Pipe bool
	// TLS serves HTTPS with a certificate of a CA created for this server. HTTP2 implies TLS.
	TLS bool
	// HTTP2 enables HTTP/2. Without it the server supports only HTTP/1.1.
	HTTP2 bool

	// Resources are the resources served from the start; nil means DefaultResources (see Strict).
	Resources []Resource

	// Strict makes the server as strict as a real one. Namespaces must exist; default, kube-node-lease, kube-public and
	// kube-system exist from the start. Built-in kinds have their defaults, and their most important rules are checked.
	// With nil Resources the server has all built-in kinds of the package, but not Widgets.
	Strict bool

	// Names is where the sequence of generated names begins. Servers with other values generate other names.
	Names uint64

	// CRDs serves CustomResourceDefinitions: those given to crd.New from the start, and those that are created later. nil
	// means that they are objects without effect.
	CRDs *CRDs

	// OpaqueVersions makes resource versions strings without an order.
	OpaqueVersions bool
	// LongVersions makes resource versions numbers with 40 digits, which KEP-5504 allows.
	LongVersions bool
	// NoWatchList refuses sendInitialEvents with 422, like a server with the feature disabled.
	NoWatchList bool
	// ShardedListAndWatch makes lists and watches select by shardSelector (KEP-5866). Otherwise the parameter is
	// ignored, as by a server with the feature disabled. Use On with Answer to refuse it.
	ShardedListAndWatch bool
	// NoInconsistentContinue omits the token for an inconsistent rest from the 410 for an expired token.
	NoInconsistentContinue bool
	// BookmarkInterval is the interval of bookmarks on watches that request them. Default: one minute.
	BookmarkInterval time.Duration

	// Token, if set, is required of every request; others get 401. See also Server.SetToken.
	Token string
	// Authenticate answers TokenReviews. nil accepts only Token, as user "admin" in group system:masters.
	Authenticate func(authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	// Authorize answers access reviews of all kinds; nil allows everything. It does not restrict requests: use On with
	// Answer(Failure(403)) for that.
	Authorize func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus

	// OnChange, if set, is called once for each write, in the order of revisions: in the goroutine of the write, before
	// the write is answered and before watches send it. It must not block and must not call the server, which holds a
	// lock meanwhile. Rollback is no write.
	OnChange func(Change)
}

// Server is an in-process Kubernetes API server. All methods are safe for concurrent use.
type Server struct {
	opts   Options
	store  *store
	log    *requestLog
	apply  appliers
	scales *table             // of the kind of the scale subresource
	cancel context.CancelFunc // cancels the contexts of all requests

	http     *http.Server
	tls      *tlsFiles
	addr     string
	entrance *entrance      // with Options.Pipe
	conns    sync.WaitGroup // goroutines that serve a connection
	serve    sync.WaitGroup // goroutines that accept
	reqs     sync.WaitGroup

	holdCount atomic.Int32
	names     atomic.Uint64 // of generateName and tokens

	mu           sync.Mutex
	listener     net.Listener // nil while down
	port         *port        // reserved until Close; nil with Options.Pipe
	open         map[net.Conn]bool
	closed       bool
	token        string
	rules        []*Rule
	holds        []*Hold
	holdsChanged chan struct{}
	watches      map[*Watch]bool
}

// New starts a server. The caller must close it.
func New(opts Options) (*Server, error) {
	if opts.BookmarkInterval <= 0 {
		opts.BookmarkInterval = time.Minute
	}
	if opts.Resources == nil {
		opts.Resources = DefaultResources()
		if opts.Strict {
			opts.Resources = strictResources()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, store: newStore(versioner{opaque: opts.OpaqueVersions, long: opts.LongVersions}), log: newRequestLog(),
		scales: scaleTable(), token: opts.Token, entrance: &entrance{},
		cancel: cancel, holdsChanged: make(chan struct{}), watches: map[*Watch]bool{}, open: map[net.Conn]bool{},
	}
	s.store.onChange, s.store.strict = opts.OnChange, opts.Strict
	for _, r := range opts.Resources {
		s.store.register(r)
	}
	if opts.Strict {
		s.makeNamespaces()
	}
	if opts.CRDs != nil {
		s.serveDefinitions(opts.CRDs)
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
		s.Close()
		return nil, err
	}
	return s, nil
}

// Resources returns the resources that are served, by group, version and name, including those of
// CustomResourceDefinitions. The caller must not change the slice.
func (s *Server) Resources() []Resource { return s.store.served() }

// Up accepts connections again after Down, at the same address. It does nothing if the server is up.
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
		l := newPipeListener()
		s.listener, s.addr = l, "apiserver.pipe"
		s.entrance.listener.Store(l)
	} else {
		if s.port == nil {
			p, err := reservePort()
			if err != nil {
				return fmt.Errorf("cannot reserve a port: %w", err)
			}
			s.port, s.addr = p, p.addr
		}
		l, err := net.Listen("tcp", s.addr)
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

// Down closes the listener and all connections. Clients are refused until Up. The stored objects stay.
func (s *Server) Down() {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	s.entrance.listener.Store(nil)
	s.mu.Unlock()
	if l != nil {
		closeListener(l)
	}
	s.serve.Wait()
	s.DropConnections()
}

// DropConnections closes all connections at once, as after a crash. The server still accepts new ones.
func (s *Server) DropConnections() {
	s.mu.Lock()
	conns := make([]net.Conn, 0, len(s.open))
	for c := range s.open {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn() // without a close notification, as in a crash
		}
		_ = c.Close()
	}
}

// Close stops the server and waits until all its goroutines have ended. User functions in progress must return. Close
// may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	reserved := s.port
	s.port = nil
	s.mu.Unlock()
	s.cancel()
	_ = s.http.Close()
	s.Down()
	if reserved != nil {
		reserved.release()
	}
	s.conns.Wait()
	s.reqs.Wait()
}

// connState tracks open connections and the end of their goroutines.
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

// URL returns the address with scheme and without a path.
func (s *Server) URL() string {
	if s.tls != nil {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// Config returns a new client-go configuration for this server, without a client-side rate limit.
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
		cfg.Dial = s.entrance.dial
	}
	return cfg
}

// Dial connects to the server and ignores the address. It is for manually configured clients.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if s.opts.Pipe {
		return s.entrance.dial(ctx, "", "")
	}
	s.mu.Lock()
	addr := s.addr
	s.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// SetToken changes the token that requests must have. Empty disables the check.
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

// Register serves a further resource, or a withdrawn one with its previous objects.
func (s *Server) Register(r Resource) { s.store.register(r) }

// Withdraw stops serving a resource: requests get 404, and its watches end. The objects are kept for a later Register.
func (s *Server) Withdraw(gvr schema.GroupVersionResource) bool { return s.store.withdraw(gvr) }

// Revision returns the revision of the last write. With OpaqueVersions or LongVersions it differs from the versions
// that clients see.
func (s *Server) Revision() uint64 { return s.store.current() }

// Version returns the resource version that clients see for a revision.
func (s *Server) Version(revision uint64) string { return s.store.version.format(revision) }

// Compact removes the history before this revision (0: the present one). Requests with older list versions, continue
// tokens and watch positions get 410.
func (s *Server) Compact(revision uint64) {
	if revision == 0 {
		revision = s.store.current()
	}
	s.store.compact(revision)
}

// Rollback restores the state at an older revision, like a restore of etcd from a backup. The counter goes back. Open
// watches stay open but send no events until the counter exceeds the revision that they have reached.
func (s *Server) Rollback(revision uint64) error { return s.store.rollback(revision) }
