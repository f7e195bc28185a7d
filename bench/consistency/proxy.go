package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// delayed serves an API server over plain HTTP on loopback and delays the bytes of watches. It does not delay other
// responses. stop stops it.
func delayed(cfg *rest.Config, delay time.Duration) (_ *rest.Config, stop func(), err error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, err
	}
	connections := &http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: 16}
	transport, err := rest.HTTPWrappersForConfig(cfg, connections)
	if err != nil {
		return nil, nil, err
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if delay > 0 && r.Request.URL.Query().Get("watch") != "" {
				r.Body = late(r.Body, delay)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // returns when the server is closed
	}()
	stop = sync.OnceFunc(func() {
		_ = server.Close()
		<-done
		connections.CloseIdleConnections()
	})
	return &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}, stop, nil
}

// chunk is data that was read, and the time at which it is delivered.
type chunk struct {
	data []byte
	at   time.Time
	err  error
}

// lateReader delays the data that it reads. Delays of successive chunks overlap, so they do not add up.
type lateReader struct {
	from   io.ReadCloser
	chunks chan chunk
	rest   []byte
	ctx    context.Context
	cancel context.CancelFunc
}

func late(from io.ReadCloser, delay time.Duration) io.ReadCloser {
	r := &lateReader{from: from, chunks: make(chan chunk, 4096)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go func() {
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			select {
			case r.chunks <- chunk{buffer[:n], time.Now().Add(delay), err}:
			case <-r.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

func (r *lateReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case c := <-r.chunks:
			t := time.NewTimer(time.Until(c.at))
			defer t.Stop()
			select {
			case <-t.C:
			case <-r.ctx.Done():
				return 0, errClosed
			}
			if r.rest = c.data; c.err != nil && len(c.data) == 0 {
				return 0, c.err
			}
		case <-r.ctx.Done():
			return 0, errClosed
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

var errClosed = errors.New("the body was closed")

func (r *lateReader) Close() error {
	r.cancel()
	return r.from.Close()
}
