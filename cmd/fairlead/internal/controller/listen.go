package controller

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// ServeOptions configures the HTTP API and the controller's own pages.
type ServeOptions struct {
	// Listen is the address of the HTTP API; empty: not served.
	Listen string
	// NoAuth serves without authentication, on loopback only.
	NoAuth bool

	metricsListen     string // address of the controller's own pages; empty: on the HTTP API
	publicURL         string // empty: the listen address
	certFile, keyFile string
	audiences         []string
	insecureHTTP      bool
	traceURL          string
	proxy             httpapi.ProxyOptions
}

// ownAudience is the audience of tokens for the HTTP API. Unless --audience is set, tokens for the API server are
// accepted, too.
const ownAudience = "fairlead"

func (o *ServeOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8081", "`address` of the HTTP API; empty: not served")
	f.StringVar(&o.metricsListen, "metrics-listen", "",
		"`address` of /metrics, /debug/, /healthz and /readyz, by plain HTTP "+
			"(default: on the HTTP API, with /metrics unauthenticated on loopback only)")
	f.StringVar(&o.publicURL, "public-url", "",
		"base `URL` of callbacks and locations (default: the listen address)")
	f.StringVar(&o.certFile, "tls-cert-file", "",
		"`file` with the certificate chain of the HTTP API, PEM; reloaded when it changes")
	f.StringVar(&o.keyFile, "tls-key-file", "", "`file` with its private key, PEM")
	f.StringArrayVar(&o.audiences, "audience", []string{ownAudience, ""},
		"required `audience` of bearer tokens of callers; empty: that of the API server; may be repeated "+
			"(default: "+ownAudience+", and that of the API server)")
	f.Lookup("audience").DefValue = "" // the usage names it
	f.BoolVar(&o.insecureHTTP, "insecure-http", false,
		"serve the HTTP API without TLS on addresses other than loopback: bearer tokens are sent in clear text; "+
			"only behind a proxy that terminates TLS")
	f.StringVar(&o.traceURL, "trace-url", "",
		"`URL` of a trace for links of the console, with {trace} for its id, "+
			"such as https://traces.example.com/trace/{trace}")
	f.StringVar(&o.proxy.CAFile, "requestheader-ca-file", "",
		"`file` with the CA of proxies that name the user in a header, PEM; the proxy needs a client certificate "+
			"of that CA; reloaded when it changes (default: no proxy is trusted)")
	f.StringArrayVar(&o.proxy.Names, "requestheader-allowed-name", nil,
		"common `name` that such a certificate must have; may be repeated (default: any)")
	f.StringVar(&o.proxy.UserHeader, "requestheader-user", defaultUserHeader, "`header` that names the user")
	f.StringVar(&o.proxy.GroupHeader, "requestheader-group", "",
		"`header` that names a group of the user, such as X-Remote-Group; a request may have several (default: none)")
	f.StringVar(&o.proxy.GroupSeparator, "requestheader-group-separator", "",
		"separator `text` between groups in one header, such as a comma (default: a header is one group)")
	f.StringVar(&o.proxy.ExtraHeaderPrefix, "requestheader-extra-prefix", "",
		"`prefix` of the headers with extra attributes of the user, such as X-Remote-Extra- (default: none)")
	f.BoolVar(&o.NoAuth, "insecure-no-auth", false, "serve the HTTP API without authentication; only on loopback")
}

func (o *ServeOptions) secure() bool { return o.certFile != "" }

func (o *ServeOptions) scheme() string {
	if o.secure() {
		return "https"
	}
	return "http"
}

// listeners are the open ports of the controller. They do not change until close.
type listeners struct {
	api, metrics net.Listener       // nil: none
	certificate  *serve.Certificate // nil: plain HTTP
	proxy        *httpapi.Proxy     // nil: no proxy is trusted
}

func (l *listeners) close() {
	for _, each := range []net.Listener{l.api, l.metrics} {
		if each != nil {
			each.Close()
		}
	}
}

// listen checks the options and opens the listeners.
func (o *ServeOptions) listen(log *slog.Logger) (*listeners, error) {
	if o.publicURL != "" {
		if u, err := url.Parse(o.publicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
			u.RawQuery != "" || u.Fragment != "" {
			return nil, cli.Usagef(
				"--public-url %q is not a URL to begin others with, such as https://operations.example.com",
				o.publicURL)
		}
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return nil, cli.Usagef("--tls-cert-file and --tls-key-file need each other")
	}
	l := &listeners{}
	if err := o.checkProxy(); err != nil {
		return nil, err
	}
	if o.proxy.CAFile != "" {
		var err error
		o.proxy.Logger = log
		if l.proxy, err = httpapi.NewProxy(o.proxy); err != nil {
			return nil, cli.Usagef("cannot use --requestheader-ca-file: %v", err)
		}
	}
	for _, port := range []struct {
		flag, address string
		check         func(loopback bool) error
		listener      *net.Listener
	}{
		{"--listen", o.Listen, o.checkAPI, &l.api},
		{"--metrics-listen", o.metricsListen, o.checkMetrics, &l.metrics},
	} {
		if port.address == "" {
			continue
		}
		address, err := net.ResolveTCPAddr("tcp", port.address)
		if err != nil {
			l.close()
			return nil, cli.Usagef("cannot use %s %q: %v", port.flag, port.address, err)
		}
		if err := port.check(address.IP.IsLoopback()); err != nil {
			l.close()
			return nil, err
		}
		listener, err := net.ListenTCP("tcp", address)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("cannot listen: %w (choose another address with %s)", err, port.flag)
		}
		*port.listener = listener
	}
	if l.api != nil && o.secure() {
		var err error
		if l.certificate, err = serve.LoadCertificate(o.certFile, o.keyFile, log); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (o *ServeOptions) checkAPI(loopback bool) error {
	switch {
	case o.NoAuth && !loopback:
		return cli.Usagef("--insecure-no-auth is for loopback only, and --listen %s is not", o.Listen)
	case !loopback && !o.secure() && !o.insecureHTTP:
		return cli.Usagef("--listen %s is not loopback, and bearer tokens would be sent in clear text: "+
			"use --tls-cert-file and --tls-key-file, or --insecure-http behind a proxy that terminates TLS", o.Listen)
	}
	return nil
}

const defaultUserHeader = "X-Remote-User" // as in httpapi.ProxyOptions

// checkProxy refuses proxy flags that are incomplete or unsafe.
func (o *ServeOptions) checkProxy() error {
	switch {
	case o.proxy.CAFile == "" &&
		(len(o.proxy.Names) > 0 || cmp.Or(o.proxy.UserHeader, defaultUserHeader) != defaultUserHeader ||
			o.proxy.GroupHeader+o.proxy.GroupSeparator+o.proxy.ExtraHeaderPrefix != ""):
		return cli.Usagef("the --requestheader flags need --requestheader-ca-file")
	case o.proxy.CAFile != "" && o.NoAuth:
		return cli.Usagef("--insecure-no-auth and --requestheader-ca-file exclude each other")
	case o.proxy.CAFile != "" && !o.secure():
		return cli.Usagef("--requestheader-ca-file needs --tls-cert-file and --tls-key-file: " +
			"a proxy authenticates by a TLS client certificate")
	}
	return nil
}

func (o *ServeOptions) checkMetrics(loopback bool) error {
	if o.NoAuth && !loopback {
		return cli.Usagef("--insecure-no-auth is for loopback only, and --metrics-listen %s is not", o.metricsListen)
	}
	return nil
}
