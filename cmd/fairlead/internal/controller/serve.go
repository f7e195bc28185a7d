package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/serve"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// ServeOptions configures the HTTP API and the controller's own pages.
type ServeOptions struct {
	Listen, metricsListen string
	publicURL             string
	certFile, keyFile     string
	audiences             []string
	insecureHTTP          bool
	NoAuth                bool
	traceURL              string
	proxy                 httpapi.ProxyOptions
}

// ownAudience is the audience of tokens for the HTTP API. Unless --audience is set, tokens for the API server are
// accepted, too.
const ownAudience = "fairlead"

func (o *ServeOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8081", "`address` of the HTTP API; empty: not served")
	f.StringVar(&o.metricsListen, "metrics-listen", "",
		"`address` of /metrics, /debug/flows, /healthz and /readyz, by plain HTTP "+
			"(default: on the HTTP API, with /metrics unauthenticated on loopback only)")
	f.StringVar(&o.publicURL, "public-url", "",
		"base `URL` of callbacks and locations (default: the listen address)")
	f.StringVar(&o.certFile, "tls-cert-file", "",
		"`file` with the certificate chain of the HTTP API, PEM; reloaded when it changes")
	f.StringVar(&o.keyFile, "tls-key-file", "", "`file` with its private key, PEM")
	f.StringArrayVar(&o.audiences, "audience", []string{ownAudience, ""},
		"required `audience` of bearer tokens of callers; "+
			"empty: the API server itself; may be repeated")
	f.BoolVar(&o.insecureHTTP, "insecure-http", false,
		"serve the HTTP API without TLS on addresses other than loopback: bearer tokens are sent in clear text; only behind a proxy that terminates TLS")
	f.StringVar(&o.traceURL, "trace-url", "",
		"`URL` of a trace for links of the console, with {trace} for its id, such as https://traces.example.com/trace/{trace}")
	f.StringVar(&o.proxy.CAFile, "requestheader-ca-file", "",
		"`file` with the CA of proxies that name the user in a header, PEM; the proxy needs a client certificate of that CA; "+
			"reloaded when it changes (default: no proxy is trusted)")
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

// doors holds the listeners of the controller.
type doors struct {
	api, metrics net.Listener       // nil: none
	certificate  *serve.Certificate // nil: plain HTTP
	proxy        *httpapi.Proxy     // nil: no proxy is trusted
}

func (d *doors) close() {
	for _, l := range []net.Listener{d.api, d.metrics} {
		if l != nil {
			l.Close()
		}
	}
}

// open checks the options and opens the listeners.
func (o *ServeOptions) open(log *slog.Logger) (*doors, error) {
	if o.publicURL != "" {
		if u, err := url.Parse(o.publicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
			u.RawQuery != "" || u.Fragment != "" {
			return nil, cli.Usagef("--public-url %q is not a URL to begin others with, such as https://operations.example.com",
				o.publicURL)
		}
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return nil, cli.Usagef("--tls-cert-file and --tls-key-file need each other")
	}
	d := &doors{}
	if err := o.checkProxy(); err != nil {
		return nil, err
	}
	if o.proxy.CAFile != "" {
		var err error
		o.proxy.Logger = log
		if d.proxy, err = httpapi.NewProxy(o.proxy); err != nil {
			return nil, cli.Usagef("cannot use --requestheader-ca-file: %v", err)
		}
	}
	for _, door := range []struct {
		flag, address string
		check         func(loopback bool) error
		listener      *net.Listener
	}{
		{"--listen", o.Listen, o.checkAPI, &d.api},
		{"--metrics-listen", o.metricsListen, o.checkMetrics, &d.metrics},
	} {
		if door.address == "" {
			continue
		}
		address, err := net.ResolveTCPAddr("tcp", door.address)
		if err != nil {
			d.close()
			return nil, cli.Usagef("cannot use %s %q: %v", door.flag, door.address, err)
		}
		if err := door.check(address.IP.IsLoopback()); err != nil {
			d.close()
			return nil, err
		}
		listener, err := net.ListenTCP("tcp", address)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("cannot listen: %w (choose another address with %s)", err, door.flag)
		}
		*door.listener = listener
	}
	if d.api != nil && o.secure() {
		var err error
		if d.certificate, err = serve.LoadCertificate(o.certFile, o.keyFile, log); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

func (o *ServeOptions) checkAPI(loopback bool) error {
	switch {
	case o.NoAuth && !loopback:
		return cli.Usagef("--insecure-no-auth is for loopback only, and --listen %s is not", o.Listen)
	case !loopback && !o.secure() && !o.insecureHTTP:
		return cli.Usagef(
			"--listen %s is not loopback, and bearer tokens would be sent in clear text: use --tls-cert-file and --tls-key-file, "+
				"or --insecure-http behind a proxy that terminates TLS", o.Listen,
		)
	}
	return nil
}

const defaultUserHeader = "X-Remote-User" // as in httpapi.ProxyOptions

// checkProxy refuses proxy flags that are incomplete or unsafe.
func (o *ServeOptions) checkProxy() error {
	switch {
	case o.proxy.CAFile == "" && (len(o.proxy.Names) > 0 || cmp.Or(o.proxy.UserHeader, defaultUserHeader) != defaultUserHeader ||
		o.proxy.GroupHeader+o.proxy.GroupSeparator+o.proxy.ExtraHeaderPrefix != ""):
		return cli.Usagef("the --requestheader flags need --requestheader-ca-file")
	case o.proxy.CAFile != "" && o.NoAuth:
		return cli.Usagef("--insecure-no-auth and --requestheader-ca-file exclude each other")
	case o.proxy.CAFile != "" && !o.secure():
		return cli.Usagef("--requestheader-ca-file needs --tls-cert-file and --tls-key-file: a proxy authenticates by a TLS client certificate")
	}
	return nil
}

func (o *ServeOptions) checkMetrics(loopback bool) error {
	if o.NoAuth && !loopback {
		return cli.Usagef("--insecure-no-auth is for loopback only, and --metrics-listen %s is not", o.metricsListen)
	}
	return nil
}

// answerTime bounds a request of the HTTP API from its header to the end of the answer, except event streams.
const answerTime = time.Minute

// strangerTime bounds how long a connection without an authorized request may stay idle.
const strangerTime = 10 * time.Second

// maxMetricsConnections bounds the connections for metrics: probes and a few scrapers.
const maxMetricsConnections = 128

// serve makes the runtime serve the HTTP API and the pages, also without leadership and until the running calls have
// ended. Receivers with callbacks, and clients, cannot know that this process is stopping.
func (c *controller) serve(d *doors, ready func(net.Addr)) error {
	var authorizer authorizer = httpapi.Anonymous{}
	if !c.NoAuth {
		reviews := httpapi.NewKubernetes(c.rt.Calls(), c.audiences...)
		if err := c.rt.Registry().Register(reviews); err != nil {
			return err
		}
		authorizer = reviews
	}
	c.rt.GuardDebug(func(pages http.Handler) http.Handler { return httpapi.Protect(pages, authorizer, c.namespaces...) })
	if d.metrics != nil {
		pages, err := c.onlyLocal(c.ownPages(authorizer))
		if err != nil {
			return err
		}
		server := serve.New(pages, serve.Options{
			MaxConnections: maxMetricsConnections, WriteTimeout: answerTime, Logger: c.log,
		})
		c.rt.AddAlways("metrics", func(ctx context.Context) error {
			c.log.InfoContext(ctx, "serving metrics", "metricsAddress", d.metrics.Addr().String())
			return server.Run(ctx, d.metrics)
		})
	}
	if d.api == nil {
		return nil
	}
	stop := make(chan struct{})
	handler, err := c.handler(authorizer, stop, d)
	if err != nil {
		return err
	}
	o := serve.Options{WriteTimeout: answerTime, StrangerTime: strangerTime, Logger: c.log}
	if d.certificate != nil {
		if o.TLS = d.certificate.Config(); d.proxy != nil {
			o.TLS = d.proxy.TLS(o.TLS)
		}
		if err := c.rt.Registry().Register(d.certificate); err != nil {
			return err
		}
		c.rt.AddAlways("certificate", d.certificate.Run)
	}
	server := serve.New(handler, o)
	if err := c.rt.Registry().Register(server); err != nil {
		return err
	}
	c.rt.AddAlways("http", func(ctx context.Context) error {
		if !c.NoAuth && slices.Contains(c.audiences, "") && !isLoopback(d.api) {
			c.log.WarnContext(
				ctx, "callers authenticate with tokens that the API server itself accepts, which they should not send to other servers: "+
					"let them request tokens for a separate audience, and set --audience to it", "flag", "--audience="+ownAudience,
			)
		}
		c.log.InfoContext(ctx, "HTTP API is served", "scheme", c.scheme(), "address", d.api.Addr().String())
		if ready != nil {
			ready(d.api.Addr())
		}
		defer context.AfterFunc(ctx, func() { close(stop) })()
		return server.Run(ctx, d.api)
	})
	return nil
}

func isLoopback(l net.Listener) bool {
	at, ok := l.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// handler returns the HTTP API, and the controller's own pages unless they have a separate address. Event streams end
// when stop is closed.
func (c *controller) handler(authorizer authorizer, stop <-chan struct{}, d *doors) (http.Handler, error) {
	api, err := httpapi.New(httpapi.Options{
		Scheduler: c.scheduler, Operations: c.operations.Store, Namespaces: c.namespaces, All: len(c.namespaces) == 0,
		Authorizer: authorizer, Callbacks: c.executor.Taker(), PublicURL: c.publicURL, Stop: stop, Logger: c.log,
		Registerer: c.rt.Registry(), TracerProvider: c.spans.tracers(),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	c.health(mux)
	pages, err := c.console(authorizer)
	if err != nil {
		return nil, err
	}
	mux.Handle("/console/", pages)
	mux.Handle("/api/", pages)
	if d.metrics == nil {
		metrics := c.rt.Handler()
		if !isLoopback(d.api) {
			metrics = httpapi.Protect(metrics, authorizer, c.namespaces...)
		}
		mux.Handle("/metrics", metrics)
		mux.Handle("/debug/flows", c.flows(authorizer))
		mux.Handle("/debug/", c.rt.Handler())
	}
	return c.onlyLocal(d.proxy.Handler(mux))
}

// authorizer decides about operations for the HTTP API, and about any access for the console.
type authorizer interface {
	httpapi.Authorizer
	console.Authorizer
}

// console returns the console. All replicas share the callback key, so it seals the sessions.
func (c *controller) console(authorizer authorizer) (http.Handler, error) {
	o := console.Options{
		Runtime: c.rt, InsecureNoAuth: c.NoAuth, SessionKey: c.key, SessionNamespace: c.systemNamespace,
		Logger: c.log, Sections: []console.Section{operationsconsole.Section{
			Operations: c.operations.Store, Webhooks: c.webhooks.Store, Scheduler: c.scheduler, Executor: c.executor,
			Namespaces: c.namespaces, TraceURL: c.traceURL,
		}},
	}
	if !c.NoAuth {
		o.Authorizer = authorizer
	}
	if c.sharing != nil {
		o.Shards = c.sharing.group.Report
	}
	return console.New(o)
}

// ownPages returns the controller's own pages.
func (c *controller) ownPages(authorizer httpapi.Authorizer) http.Handler {
	mux := http.NewServeMux()
	c.health(mux)
	mux.Handle("/metrics", c.rt.Handler())
	mux.Handle("/debug/flows", c.flows(authorizer))
	mux.Handle("/debug/", c.rt.Handler())
	return mux
}

func (c *controller) health(mux *http.ServeMux) {
	mux.Handle("/healthz", c.rt.Handler())
	mux.Handle("GET /readyz", c.sharing.ready(c.rt.Handler()))
}

func (c *controller) flows(authorizer httpapi.Authorizer) http.Handler {
	return httpapi.Protect(c.executor.Flows().DebugHandler(), authorizer, c.namespaces...)
}

// onlyLocal refuses pages of other sites if no authentication is required.
func (c *controller) onlyLocal(pages http.Handler) (http.Handler, error) {
	if !c.NoAuth {
		return pages, nil
	}
	return localOnly(pages, c.publicURL)
}
