package httpapi

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

// ProxyOptions say which proxy is believed, and which of its headers. CAFile is required. They mean what the
// --requestheader flags of the API server mean.
type ProxyOptions struct {
	// CAFile has the certificates that vouch for that of a proxy, PEM. It is read again when it has changed, at most
	// every five seconds; one that cannot be read leaves those from before.
	CAFile string
	// Names are the common names of proxies that are believed. Default: all that the CA vouches for, so that it has to be
	// one that makes certificates for nobody else.
	Names []string
	// UserHeader names the user. Default: X-Remote-User. A request that has it more than once, or empty, has no user.
	UserHeader string
	// GroupHeader names a group of the user, such as X-Remote-Group, and may come several times. Default: nobody says what
	// groups users are in; a proxy that does not set it would hand on what its callers have sent.
	GroupHeader string
	// GroupSeparator parts the groups of one header, such as "," where a proxy sends all of them in one. Default: a header
	// is one group.
	GroupSeparator string
	// ExtraHeaderPrefix begins the headers of what else is known of the user; the rest of the name, in lower case, is the
	// key; such as X-Remote-Extra-. Default: nothing else is known.
	ExtraHeaderPrefix string
	// Logger is told of headers that do not count, at level debug, and of a CAFile that cannot be read any more, at level
	// warn. Default: discarded.
	Logger *slog.Logger
}

// Proxy believes the headers of a proxy that has shown a client certificate of a named CA, as the API server does with
// its request-header authentication: the user whom they name is the caller, and may do what the API server says of that
// user (SubjectAccessReview). The headers of others are not looked at. Make it with [NewProxy]; it is safe for
// concurrent use.
//
// It is the proxy that has to drop those headers from what its own callers send. What would change something is refused
// where a browser says that a page of another site has sent it.
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
	// lookAtCA is how often the file of the CA is read again.
	lookAtCA = 5 * time.Second
	// maxUser bounds the name of a user.
	maxUser = 1 << 10
	// authenticated is the group of all who are known.
	authenticated = "system:authenticated"
)

// NewProxy reads the CA. Its errors are those of the file.
func NewProxy(o ProxyOptions) (*Proxy, error) { return newProxy(o, time.Now) }

func newProxy(o ProxyOptions, now func() time.Time) (*Proxy, error) {
	if o.CAFile == "" {
		return nil, errors.New("cannot believe a proxy: no CA is named")
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

// load reads the file of the CA.
func (p *Proxy) load() error {
	p.looked = p.now()
	raw, err := os.ReadFile(p.o.CAFile)
	if err != nil {
		return fmt.Errorf("cannot read the CA of proxies: %w", err)
	}
	if p.pool != nil && bytes.Equal(raw, p.pem) { // without a pool the roots of the machine would do
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return fmt.Errorf("cannot read the CA of proxies: %s has no certificate", p.o.CAFile)
	}
	p.pem, p.pool = raw, pool
	return nil
}

// roots are the certificates of the CA.
func (p *Proxy) roots() *x509.CertPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.looked) >= lookAtCA {
		if err := p.load(); err != nil {
			p.o.Logger.Warn("the CA of proxies that was read before is kept", "error", err)
		}
	}
	return p.pool
}

// TLS returns a configuration that asks clients for a certificate of the CA besides, and goes on with those that have
// none, or another one: they are callers like all others. What is given is not changed.
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

// Handler has pages answer the user whom a proxy names. The headers never come by it. Of nil it is the pages themselves.
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
			p.o.Logger.DebugContext(ctx, "headers that name a user do not count", "from", r.RemoteAddr, "error", err)
		} else if err := p.origin.Check(r); err != nil { // the proxy's cookie may have been enough, which comes from anywhere
			answerProblem(w, &Problem{
				Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden),
				Detail: "a page of another site has sent this request",
			})
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

// owns tells whether a header is for proxies only.
func (p *Proxy) owns(name string) bool {
	_, extra := p.extra(name)
	return strings.EqualFold(name, p.o.UserHeader) || strings.EqualFold(name, p.o.GroupHeader) || extra
}

// extra is the key that a header is about.
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

// user is whom a request is for, or why its headers do not count.
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
		u.Groups = append(u.Groups, authenticated) // as the API server does with whom it knows
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

// trust wants a client certificate that is good now: connections outlive certificates.
func (p *Proxy) trust(state *tls.ConnectionState) error {
	if state == nil || len(state.PeerCertificates) == 0 {
		return errors.New("it comes without a client certificate")
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
		return fmt.Errorf("the common name %q is not one of those that are believed", name)
	}
	return nil
}

type proxiedKey struct{}

func proxied(ctx context.Context) *caller {
	who, _ := ctx.Value(proxiedKey{}).(*caller)
	return who
}

// Proxied returns the user whom a proxy has named for a request, from its context: for an Authorizer of your own, which
// then has to decide about that user and not about the token.
func Proxied(ctx context.Context) (u authenticationv1.UserInfo, ok bool) {
	who := proxied(ctx)
	if who == nil {
		return u, false
	}
	return who.user, true
}
