package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// memoryListener is a listener in memory.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *memoryListener) Close() error   { h.once.Do(func() { close(h.closed) }); return nil }
func (h *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// dial opens a connection to the server and sends a text.
func (h *memoryListener) dial(t *testing.T, send string) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	h.conns <- far
	if _, err := io.WriteString(near, send); err != nil {
		t.Errorf("cannot send: %v", err)
	}
	return near
}

// lasts returns the time until the server closes a connection, and the received text.
func lasts(c net.Conn) (time.Duration, string) {
	began := time.Now()
	received, _ := io.ReadAll(c) // with any error
	c.Close()
	return time.Since(began), string(received)
}

// TestSlowClients: clients that send or read slowly, in fake time.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newMemoryListener()
		var log testlog.Book
		s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/body":
				_, err := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(w, "read: %v", err != nil)
			case "/large":
				_, err := w.Write(make([]byte, 1<<20))
				if err == nil {
					err = http.NewResponseController(w).Flush()
				}
				if err == nil {
					t.Error("the write of an unread response succeeded")
				}
			case "/panic":
				panic("at the page")
			}
		}), Options{WriteTimeout: time.Minute, Logger: log.Logger()})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, h) }()
		tests := map[string]struct {
			reason, send string
			atMost       time.Duration
			says         string
		}{
			"Nothing": {"Who says nothing is closed.", "", headerTime, ""},
			"Header":  {"A header that never ends is not waited for.", "GET / HTTP/1.1\r\nHost: x\r\nX-", headerTime, ""},
			"Idle": {
				"A connection may idle between requests for a bounded time.", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
				idleTime, "200 OK",
			},
			"Body": {
				"A body that never arrives ends the read.",
				"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", bodyTime, "read: true",
			},
			"Unwanted": {
				"An ignored body is not awaited.", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{",
				bodyTime, "200 OK",
			},
			"Chunks": {
				"The same for a body without a length.", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
				bodyTime, "200 OK",
			},
			"Large": {
				"Headers are bounded.", "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 28<<10) + "\r\n\r\n",
				idleTime, "200 OK",
			},
		}
		for name, tc := range tests {
			took, received := lasts(h.dial(t, tc.send))
			if took > tc.atMost+time.Second || !strings.Contains(received, tc.says) {
				t.Errorf("%s: %s It took %v and sent %q", name, tc.reason, took, received)
			}
		}
		near, far := net.Pipe()
		h.conns <- far
		go func() {
			_, _ = io.WriteString(near, "GET / HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
		}() // the header is not accepted to its end
		if took, received := lasts(near); !strings.Contains(received, "431") || took > headerTime {
			t.Errorf("a header of 64 KiB: %v %q", took, received)
		}
		reader := h.dial(t, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n") // without reading
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if waiting, active := s.table.count(); waiting+active != 0 {
			t.Errorf("%d waiting and %d active connections are left", waiting, active)
		}
		reader.Close()
		if _, received := lasts(h.dial(t, "GET /panic HTTP/1.1\r\nHost: x\r\n\r\n")); received != "" {
			t.Errorf("a panic sends %q", received)
		}
		if logged := log.Take(); strings.Count(logged, "level=ERROR") != 1 || !strings.Contains(logged, "at the page") {
			t.Errorf("the log of a panic: %s", logged)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestUnidentifiedClients: unidentified clients, in fake time, beside an identified one.
func TestUnidentifiedClients(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	cert, key := servetest.Certificate(t, "one", time.Time{}, time.Time{})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			Known(r.Context())
		}
		if r.URL.Path == "/stream" {
			for range 12 {
				_, _ = io.WriteString(w, "event ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(5 * time.Second)
			}
		}
		_, _ = io.WriteString(w, "here")
	})
	const ask, known = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n\r\n"
	for name, tc := range map[string]struct {
		reason, send  string
		secure        bool
		trickle       string // sent one byte a second until the connection is closed
		atLeast, most time.Duration
		says          string
	}{
		"Nothing": {reason: "The connection of a silent client is closed.", most: patience},
		"Idle":    {reason: "An idle connection is closed soon.", send: ask, most: patience, says: "here"},
		"Known":   {reason: "An identified caller may idle.", send: known, atLeast: idleTime, most: idleTime, says: "here"},
		"KnownBefore": {
			reason: "The identity lasts for the connection.", send: known + ask, atLeast: idleTime, most: idleTime, says: "here",
		},
		"Trickle": {
			reason: "A header must be complete by then.", trickle: "GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", most: patience,
		},
		"TrickleAgain": {
			reason: "So must the next header.", send: ask, trickle: "GET / HTTP/1.1\r\nHost: x\r\n", most: patience,
			says: "here",
		},
		"Body": {
			reason: "The server does not wait for an ignored body.", most: patience, says: "here",
			send: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n", trickle: strings.Repeat("x", 400),
		},
		"Stream": {
			reason: "A response in progress does not count as idle.", send: "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
			atLeast: time.Minute, most: time.Minute + patience, says: "here",
		},
		"HTTP2": {
			reason: "A connection of HTTP/2 without a request is closed.", secure: true, most: patience,
			send: http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		},
		"HTTP2Header": {
			reason: "So is one whose header never ends.", secure: true, most: patience,
			send:    http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x01\x00\x01\x04\x00\x00\x00\x01",
			trickle: strings.Repeat("\x00", 200),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, o := newMemoryListener(), Options{StrangerTime: patience}
				if tc.secure {
					o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
				}
				s := New(answer, o)
				ctx, end := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx, h) }()
				began := time.Now()
				near, far := net.Pipe()
				h.conns <- far
				if tc.secure {
					near = tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				}
				var sending sync.WaitGroup
				defer sending.Wait()
				sending.Go(func() {
					_, err := io.WriteString(near, tc.send)
					for i := 0; err == nil && i < len(tc.trickle); i++ {
						time.Sleep(time.Second)
						_, err = io.WriteString(near, tc.trickle[i:i+1])
					}
				})
				_, received := lasts(near)
				took := time.Since(began)
				if took < tc.atLeast || took > tc.most+time.Second || !strings.Contains(received, tc.says) {
					t.Errorf("%s It took %v and sent %q", tc.reason, took, received)
				}
				end()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestIdleConnectionsBlockNoRequest: requests succeed although a client opens many more idle connections than the
// limit.
func TestIdleConnectionsBlockNoRequest(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{}, 1)
	release := make(chan struct{})
	s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "here")
	}), Options{MaxConnections: 20})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	open := func() net.Conn {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn, path string) {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
	}
	atWork := open()
	ask(atWork, "/held")
	<-held
	var idle []net.Conn
	for range 100 {
		idle = append(idle, open())
	}
	last := open()
	ask(last, "/")
	if resp, err := http.ReadResponse(bufio.NewReader(last), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("behind idle connections: %v", err)
	} else {
		resp.Body.Close()
	}
	if n := testutil.ToFloat64(s.table.closed.WithLabelValues("waiting")); n < 82 || n > 100 {
		t.Errorf("%v connections were closed to make room", n)
	}
	close(release)
	if resp, err := http.ReadResponse(bufio.NewReader(atWork), nil); err != nil {
		t.Errorf("a request in progress was dropped for idle connections: %v", err)
	} else {
		resp.Body.Close()
	}
	if problems, err := testutil.CollectAndLint(s); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
	for _, c := range append(idle, last, atWork) {
		c.Close()
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// serveTLS runs a server with a certificate for localhost until end is called, which checks its result.
func serveTLS(
	t *testing.T, o Options, answer http.HandlerFunc,
) (s *Server, address string, roots *x509.CertPool, end func()) {
	t.Helper()
	dir := t.TempDir()
	cert, key := servetest.Certificate(t, "one", time.Time{}, time.Time{})
	servetest.Write(t, dir, cert, key)
	c, err := LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.TLS = c.Config()
	s = New(answer, o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return s, listener.Addr().String(), roots, func() {
		t.Helper()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestTLS: the server supports HTTP/2 and HTTP/1.1, and no version before TLS 1.2.
func TestTLS(t *testing.T) {
	t.Parallel()
	s, address, roots, end := serveTLS(t, Options{},
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	for proto, config := range map[string]*tls.Config{
		"HTTP/2.0": {RootCAs: roots, ServerName: "localhost"},
		"HTTP/1.1": {RootCAs: roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}, MaxVersion: tls.VersionTLS12},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: proto == "HTTP/2.0"}}
		resp, err := client.Get("https://" + address)
		if err != nil {
			t.Fatal(err)
		}
		received, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(received) != proto {
			t.Errorf("the protocol is %s, want %s", received, proto)
		}
		if waiting, active := s.table.count(); waiting+active < 1 {
			t.Error("a TLS connection is not counted")
		}
		client.CloseIdleConnections()
	}
	old, err := tls.Dial("tcp", address, &tls.Config{
		RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	})
	if err == nil {
		old.Close()
		t.Error("TLS 1.1 is accepted")
	}
	end()
}

// TestUnreadResponses: an HTTP/2 client sends a hundred requests and leaves no window for the responses.
func TestUnreadResponses(t *testing.T) {
	t.Parallel()
	s, address, roots, end := serveTLS(t, Options{MaxConnections: 4},
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "words") })
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	var header bytes.Buffer
	const asked = 20
	for i := range asked {
		header.Reset()
		encoder := hpack.NewEncoder(&header)
		encoder.SetMaxDynamicTableSizeLimit(0) // no header refers to an earlier one
		for _, field := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"},
			{Name: ":scheme", Value: "https"},
			{Name: ":path", Value: "/"},
			{Name: ":authority", Value: "x"},
		} {
			if err := encoder.WriteField(field); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for answers := 0; answers < asked; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if frame.Header().Type == http2.FrameHeaders {
			answers++
		}
	}
	if n := testutil.ToFloat64(s.requests.refused); n != asked-4 {
		t.Errorf("%v of %d were refused", n, asked)
	}
	conn.Close()
	end()
}

var (
	_ prometheus.Collector = (*Server)(nil)
	_ prometheus.Collector = (*Certificate)(nil)
)
