package live

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// ports are the known addresses of proxies. It is safe for concurrent use.
type ports struct{ plain, secure addresses }

// proxy serves the API server, and the services outside the cluster, to one process of the subject.
type proxy struct {
	address string
	secure  string // its address for https, or ""
	known   *ports
	server  *http.Server
	serving sync.WaitGroup
}

// newProxy serves requests with the path of a resource by api, and those to other hosts by outside. It listens on a
// known address if there is a free one. With secure it also serves https, at another address.
func newProxy(
	known *ports, secure *tls.Config, target *url.URL, api, outside http.RoundTripper,
) (*proxy, error) {
	plain, err := known.plain.listen()
	if err != nil {
		return nil, err
	}
	toAPI := reverse(api, func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		// The proxy acts with the rights of an administrator, and must be able to read what the subject receives.
		r.Out.Header.Del("Authorization")
		r.Out.Header.Del("Accept-Encoding")
		readable(r.Out.Header)
	})
	toOutside := reverse(outside, func(r *httputil.ProxyRequest) { r.Out.URL = r.In.URL })
	p := &proxy{address: plain.Addr().String(), known: known}
	p.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodConnect:
				http.Error(w, "services outside the cluster are reached at http URLs only", http.StatusNotImplemented)
			case r.URL.IsAbs():
				toOutside.ServeHTTP(w, r)
			default:
				toAPI.ServeHTTP(w, r)
			}
		}),
	}
	p.serving.Go(func() { _ = p.server.Serve(plain) })
	if secure == nil {
		return p, nil
	}
	l, err := known.secure.listen()
	if err != nil {
		p.close()
		return nil, err
	}
	p.secure = l.Addr().String()
	p.serving.Go(func() { _ = p.server.Serve(tls.NewListener(l, secure)) })
	return p, nil
}

// close ends all connections, and with them the contexts of requests in progress.
func (p *proxy) close() {
	_ = p.server.Close()
	p.serving.Wait()
	p.known.plain.release(p.address)
	if p.secure != "" {
		p.known.secure.release(p.secure)
	}
}

// addresses are those of ended proxies. Further proxies use them again, so that the errors of the subject, which have
// the address of its API server, are the same in each run. It is safe for concurrent use.
type addresses struct {
	mu   sync.Mutex
	free []string
}

// listen listens on a free address, or on a new one if there is none or it cannot be used any more.
func (a *addresses) listen() (net.Listener, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.free) > 0 {
		address := a.free[0]
		a.free = a.free[1:]
		if l, err := net.Listen("tcp", address); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

func (a *addresses) release(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = append(a.free, address)
}

// reverse returns a handler that sends requests with a transport. An error of the transport breaks the connection.
func reverse(t http.RoundTripper, rewrite func(*httputil.ProxyRequest)) http.Handler {
	return &httputil.ReverseProxy{
		Transport: t, Rewrite: rewrite, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// readable asks for JSON instead of binary encodings.
func readable(h http.Header) {
	var kept []string
	for _, value := range h.Values("Accept") {
		for _, media := range strings.Split(value, ",") {
			if media = strings.TrimSpace(media); !strings.HasPrefix(media, "application/vnd.kubernetes.protobuf") &&
				!strings.HasPrefix(media, "application/cbor") && media != "" {
				kept = append(kept, media)
			}
		}
	}
	if !slices.ContainsFunc(kept, func(m string) bool { return strings.Contains(m, "json") || m == "*/*" }) {
		kept = append(kept, "application/json")
	}
	h.Set("Accept", strings.Join(kept, ", "))
}
