package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// ProxyOptions configures the trusted proxy and its headers. CAFile is required. The options have the meaning of the
// --requestheader flags of the API server.
type ProxyOptions struct {
	// CAFile is a PEM file with the CA certificates for client certificates of proxies. A changed file is reloaded
	// within five seconds. If it cannot be read, the previous certificates stay in use.
	CAFile string
	// Names are the common names of trusted proxies. Default: every certificate of the CA is trusted, so the CA must
	// issue certificates only for proxies.
	Names []string
	// UserHeader names the user. Default: X-Remote-User. A request with a repeated or empty header has no user.
	UserHeader string
	// GroupHeader names a group of the user, such as X-Remote-Group, and may be repeated. Default: none. Set it only if
	// the proxy sets the header; otherwise the proxy would forward the header of its own callers.
	GroupHeader string
	// GroupSeparator separates the groups in one header, such as "," if the proxy sends all of them in one. Default: a
	// header is one group.
	GroupSeparator string
	// ExtraHeaderPrefix is the prefix of headers with extra user attributes, such as X-Remote-Extra-. The rest of the
	// header name, in lower case, is the key. Default: no extra attributes.
	ExtraHeaderPrefix string
	// Logger receives ignored headers at level debug, and an unreadable CAFile at level warn. Default: discarded.
	Logger *slog.Logger
}

// Proxy authenticates callers by the headers of a trusted proxy, like the request-header authentication of the API
// server. The proxy must present a client certificate of the configured CA. The user in the headers is then the caller,
// with the rights that the API server reports for that user (SubjectAccessReview). Headers of other clients are
// ignored. Create a Proxy with [NewProxy]; it is safe for concurrent use.
//
// The proxy must drop these headers from the requests of its own callers. The handler refuses cross-origin requests of
// browsers that change state.
type Proxy struct {
	o      ProxyOptions
	now    func() time.Time
	origin *http.CrossOriginProtection

	mu     sync.Mutex
	pem    []byte
	pool   *x509.CertPool
	looked time.Time
}

const (
	// lookAtCA is the minimum interval between two reads of the CA file.
	lookAtCA = 5 * time.Second
	// maxUser bounds the length of a user name in bytes.
	maxUser = 1 << 10
	// authenticated is the group of all authenticated users.
	authenticated = "system:authenticated"
)

// NewProxy returns a Proxy. It fails if the CA file is missing or unreadable.
func NewProxy(o ProxyOptions) (*Proxy, error) { return NewProxyAt(o, time.Now) }

// NewProxyAt is NewProxy with a clock.
func NewProxyAt(o ProxyOptions, now func() time.Time) (*Proxy, error) {
	if o.CAFile == "" {
		return nil, errors.New("cannot trust a proxy: CAFile is empty")
	}
	o.UserHeader = cmp.Or(o.UserHeader, "X-Remote-User")
	o.ExtraHeaderPrefix = strings.ToLower(o.ExtraHeaderPrefix)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{o: o, now: now, origin: http.NewCrossOriginProtection()}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// load reads the CA file.
func (p *Proxy) load() error {
	p.looked = p.now()
	raw, err := os.ReadFile(p.o.CAFile)
	if err != nil {
		return fmt.Errorf("cannot read the CA of proxies: %w", err)
	}
	if p.pool != nil && bytes.Equal(raw, p.pem) { // a nil pool would mean the system roots
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return fmt.Errorf("cannot read the CA of proxies: %s has no certificate", p.o.CAFile)
	}
	p.pem, p.pool = raw, pool
	return nil
}

// roots returns the certificates of the CA.
func (p *Proxy) roots() *x509.CertPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.looked) >= lookAtCA {
		if err := p.load(); err != nil {
			p.o.Logger.Warn("cannot reload the CA of proxies, the previous one stays in use", "error", err)
		}
	}
	return p.pool
}

// TLS returns a copy of config that also requests a client certificate of the CA. Clients without one, or with another
// one, are accepted as ordinary callers. config is not changed.
func (p *Proxy) TLS(config *tls.Config) *tls.Config {
	asking := func() *tls.Config {
		c := config.Clone()
		c.ClientAuth, c.ClientCAs = tls.RequestClientCert, p.roots()
		return c
	}
	served := asking()
	served.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return asking(), nil }
	return served
}

// Handler returns a handler that serves pages as the user that a proxy names. It removes the headers from the request.
// With a nil Proxy it returns pages.
func (p *Proxy) Handler(pages http.Handler) http.Handler {
	if p == nil {
		return pages
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.named(r.Header) {
			pages.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		who, err := p.user(r)
		if err != nil {
			p.o.Logger.DebugContext(ctx, "headers that name a user are ignored", "from", r.RemoteAddr, "error", err)
		} else if err := p.origin.Check(r); err != nil { // cookies of the proxy arrive cross-site too
			WriteProblem(w, http.StatusForbidden, "a page of another site has sent this request")
			return
		} else {
			ctx = context.WithValue(ctx, proxiedKey{}, newCaller(who))
		}
		r = r.WithContext(ctx)
		r.Header = r.Header.Clone()
		for name := range r.Header {
			if p.owns(name) {
				delete(r.Header, name)
			}
		}
		pages.ServeHTTP(w, r)
	})
}

// owns reports whether a header is reserved for proxies.
func (p *Proxy) owns(name string) bool {
	_, extra := p.extra(name)
	return strings.EqualFold(name, p.o.UserHeader) || strings.EqualFold(name, p.o.GroupHeader) || extra
}

// extra returns the key of an extra attribute header.
func (p *Proxy) extra(name string) (key string, ok bool) {
	key, ok = strings.CutPrefix(strings.ToLower(name), p.o.ExtraHeaderPrefix)
	if plain, err := url.PathUnescape(key); err == nil {
		key = plain
	}
	return key, ok && p.o.ExtraHeaderPrefix != "" && key != ""
}

func (p *Proxy) named(h http.Header) bool {
	for name := range h {
		if p.owns(name) {
			return true
		}
	}
	return false
}

// user returns the user that the headers name, or an error if the headers are not trusted.
func (p *Proxy) user(r *http.Request) (u authenticationv1.UserInfo, err error) {
	if err := p.trust(r.TLS); err != nil {
		return u, err
	}
	switch names := r.Header.Values(p.o.UserHeader); {
	case len(names) != 1 || names[0] == "":
		return u, fmt.Errorf("it has %d of %s, or an empty one", len(names), p.o.UserHeader)
	case len(names[0]) > maxUser || !utf8.ValidString(names[0]):
		return u, fmt.Errorf("%s is too long, or no text", p.o.UserHeader)
	default:
		u.Username = names[0]
	}
	for _, value := range r.Header.Values(p.o.GroupHeader) {
		groups := []string{value}
		if p.o.GroupSeparator != "" {
			groups = strings.Split(value, p.o.GroupSeparator)
		}
		for _, g := range groups {
			if g = strings.TrimSpace(g); g != "" {
				u.Groups = append(u.Groups, g)
			}
		}
	}
	if u.Username != "system:anonymous" && !slices.Contains(u.Groups, authenticated) {
		u.Groups = append(u.Groups, authenticated) // as the API server does for authenticated users
	}
	for name, values := range r.Header {
		key, ok := p.extra(name)
		if !ok {
			continue
		}
		if u.Extra == nil {
			u.Extra = map[string]authenticationv1.ExtraValue{}
		}
		u.Extra[key] = append(u.Extra[key], values...)
	}
	return u, nil
}

// trust requires a client certificate that is valid now, because a connection may outlive its certificate.
func (p *Proxy) trust(state *tls.ConnectionState) error {
	if state == nil || len(state.PeerCertificates) == 0 {
		return errors.New("the request has no client certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: p.roots(), Intermediates: between, CurrentTime: p.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return err
	}
	if name := leaf.Subject.CommonName; len(p.o.Names) > 0 && !slices.Contains(p.o.Names, name) {
		return fmt.Errorf("the common name %q is not trusted", name)
	}
	return nil
}

type proxiedKey struct{}

func proxied(ctx context.Context) *caller {
	who, _ := ctx.Value(proxiedKey{}).(*caller)
	return who
}

// Proxied returns the user that a proxy has named, from the context of the request. A custom Authorizer must decide
// about that user instead of the token.
func Proxied(ctx context.Context) (u authenticationv1.UserInfo, ok bool) {
	who := proxied(ctx)
	if who == nil {
		return u, false
	}
	return who.user, true
}
