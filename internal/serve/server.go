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

// Defaults and fixed bounds.
const (
	defaultConnections = 2048
	defaultDrain       = 5 * time.Second
	// headerTime bounds the TLS handshake and the reading of a request header.
	headerTime = 10 * time.Second
	// idleTime is how long a connection may wait for its next request.
	idleTime = 2 * time.Minute
	// bodyTime bounds the reading of a body, unless the handler sets another deadline.
	bodyTime = 30 * time.Second
	// maxHeader bounds a request header in bytes. A token with many groups has 10 KiB.
	maxHeader = 32 << 10
	// maxRequests is the bound of concurrent requests, per connection of MaxConnections. Only HTTP/2 can reach it.
	maxRequests = 2
	// maxStreams bounds the concurrent requests on an HTTP/2 connection. The buffers for bodies are bounded per stream and
	// per connection.
	maxStreams          = 100
	streamWindow        = 64 << 10
	connectionWindow    = 128 << 10
	pingAfter, pingTime = 30 * time.Second, 15 * time.Second
)

// Options configures a Server. The zero value is valid.
type Options struct {
	// MaxConnections bounds the concurrent connections. The default is 2,048.
	MaxConnections int
	// TLS is the TLS configuration. The default is no TLS.
	TLS *tls.Config
	// StrangerTime bounds the waits on a connection without a Known request. It applies to the complete header of the next
	// request and to the body, unless the handler sets its own deadline. At most an eighth of MaxConnections of one client
	// may wait so. By default every connection has ten seconds for a header, thirty for a body, and two minutes between
	// requests.
	StrangerTime time.Duration
	// WriteTimeout bounds the time from the end of a request header to the end of the response, unless the handler sets
	// its own deadline (http.ResponseController). The default is no bound.
	WriteTimeout time.Duration
	// Drain is how long Run waits for active requests after its context is done. The default is 5s.
	Drain time.Duration
	// Logger receives the panics of handlers, and errors of clients below HTTP at level Debug. The default is package log.
	Logger *slog.Logger
}

// Server is an HTTP server. It is a prometheus.Collector for its connections and for those that it closed or refused.
// It is safe for concurrent use with any number of listeners, which share its bounds.
type Server struct {
	Options
	handler  http.Handler
	table    *table
	requests *requests
}

// New returns a Server that calls handler for each request.
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

// Run serves requests until ctx is done, then waits for active requests. It closes the listener.
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

// visitKey is the context key of the function that Known calls.
type visitKey struct{}

// Known marks the client of a request as authenticated, which lifts the bounds for strangers from its connection. ctx
// must be the context of the request or derived from it. With any other context Known has no effect.
func Known(ctx context.Context) {
	if know, ok := ctx.Value(visitKey{}).(func()); ok {
		know()
	}
}

// ServeHTTP handles one request. A panic of the handler closes its connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Logger != nil {
		defer s.panicked(r)
	}
	client := Client(r.RemoteAddr)
	if !s.requests.begin(client) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Length", "0") // short: an HTTP/2 client may read no responses
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer s.requests.end(client)
	if r.ContentLength != 0 { // the server reads the rest of a body after the handler returns
		patience := bodyTime
		if s.StrangerTime > 0 {
			patience = min(patience, s.StrangerTime)
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) // fails only with some test servers
	}
	s.handler.ServeHTTP(w, r)
	if r.ProtoMajor > 1 {
		// Otherwise the rest of the response would wait for the client after the request has ended.
		_ = http.NewResponseController(w).Flush()
	}
}

// panicked logs a panic and closes the connection without a response.
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
