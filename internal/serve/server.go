package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What callers get when nothing else is said.
const (
	defaultConnections = 2048
	defaultDrain       = 5 * time.Second
	// headerTime is how long the TLS handshake, and the header of a request, may take.
	headerTime = 10 * time.Second
	// idleTime is how long a connection may wait for the next request.
	idleTime = 2 * time.Minute
	// bodyTime is how long a body may take, unless the handler says something else.
	bodyTime = 30 * time.Second
	// maxHeader bounds a header. A token with many groups has 10 KiB.
	maxHeader = 32 << 10
	// maxRequests bounds the requests at a time for each connection that there may be, on the average: only with HTTP/2
	// there are more.
	maxRequests = 2
	// maxStreams are the requests at a time on a connection of HTTP/2. What it buffers of bodies is bounded for each, and
	// together.
	maxStreams          = 100
	streamWindow        = 64 << 10
	connectionWindow    = 128 << 10
	pingAfter, pingTime = 30 * time.Second, 15 * time.Second
)

// Options configure a Server. The zero value works.
type Options struct {
	// MaxConnections bounds the connections at a time. Default: 2,048.
	MaxConnections int
	// TLS is how connections are secured. Default: not at all.
	TLS *tls.Config
	// StrangerTime is how long a connection waits for the whole header of its next request, and a request for its body
	// unless the handler sets a deadline of its own, as long as no request on the connection was Known. Of one client an
	// eighth of MaxConnections wait so. Default: there are no strangers; ten seconds for a header, thirty for a body, and
	// two minutes between requests.
	StrangerTime time.Duration
	// WriteTimeout bounds a request from the end of its header to the end of the answer, unless the handler sets a
	// deadline of its own (http.ResponseController). Default: none.
	WriteTimeout time.Duration
	// Drain is how long requests that are being answered may go on at the end. Default: 5s.
	Drain time.Duration
	// Logger gets the panics of handlers, and at level debug what callers do wrong below HTTP. Default: they go where
	// package log writes.
	Logger *slog.Logger
}

// Server answers requests. It is a prometheus.Collector of its connections, and of what it closed and refused. It is
// safe for concurrent use, and for any number of listeners, which share its bounds.
type Server struct {
	Options
	handler  http.Handler
	table    *table
	requests *requests
}

// New returns a Server that answers with the handler.
func New(handler http.Handler, o Options) *Server {
	if o.MaxConnections <= 0 {
		o.MaxConnections = defaultConnections
	}
	if o.Drain <= 0 {
		o.Drain = defaultDrain
	}
	return &Server{
		Options: o, handler: handler, table: newTable(o.MaxConnections, o.StrangerTime),
		requests: newRequests(maxRequests * o.MaxConnections),
	}
}

// Run answers until the context ends, then lets the requests under way finish. It closes the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, WriteTimeout: s.WriteTimeout,
		MaxHeaderBytes: maxHeader,
		ConnState:      s.table.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, visitKey{}, func() { s.table.know(plain(c)) })
		},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow,
			MaxReceiveBufferPerConnection: connectionWindow,
			SendPingTimeout:               pingAfter, PingTimeout: pingTime, WriteByteTimeout: pingAfter,
		},
	}
	if s.Logger != nil {
		server.ErrorLog = slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug)
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Drain)
		defer cancel()
		err := server.Shutdown(bounded)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		stopped <- err
	})
	var err error
	bounded := &gate{Listener: listener, table: s.table}
	if s.TLS != nil {
		turns := newHandshakes()
		bounded.Listener = &shaking{listener, turns}
		server.TLSConfig = turns.config(s.TLS)
		server.ConnState = func(c net.Conn, state http.ConnState) {
			s.table.changed(c, state)
			turns.changed(c, state)
		}
		err = server.ServeTLS(bounded, "", "")
	} else {
		err = server.Serve(bounded)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("cannot serve: %w", err)
	}
	return <-stopped
}

// visitKey is that of a function in the context of a request, for Known.
type visitKey struct{}

// Known says that the caller of a request has shown who it is, so that its connection may wait as long as any. ctx is
// that of the request, or made from it; of another one it does nothing.
func Known(ctx context.Context) {
	if know, ok := ctx.Value(visitKey{}).(func()); ok {
		know()
	}
}

// ServeHTTP answers one request. A panic of the handler ends its connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Logger != nil {
		defer s.panicked(r)
	}
	client := Client(r.RemoteAddr)
	if !s.requests.begin(client) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Length", "0") // with HTTP/2, who opens many and reads nothing can be told this much
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer s.requests.end(client)
	if r.ContentLength != 0 { // the server goes on to read what the handler leaves of a body
		patience := bodyTime
		if s.StrangerTime > 0 {
			patience = min(patience, s.StrangerTime)
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) // only some test servers cannot
	}
	s.handler.ServeHTTP(w, r)
	if r.ProtoMajor > 1 {
		// what is left of the answer would else be waited for after the end of the request
		_ = http.NewResponseController(w).Flush()
	}
}

// panicked tells of a panic, and ends the connection in silence.
func (s *Server) panicked(r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler {
		s.Logger.ErrorContext(r.Context(), "a page panicked", "method", r.Method, "panic", v, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	s.table.closed.Describe(ch)
	s.requests.refused.Describe(ch)
	ch <- connections
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	s.table.closed.Collect(ch)
	s.requests.refused.Collect(ch)
	waiting, active := s.table.count()
	ch <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(active), "active")
}

var connections = prometheus.NewDesc("fairlead_http_connections",
	"Connections of callers, by whether they wait for a request.", []string{"state"}, nil)
