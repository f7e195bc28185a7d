package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

// Host runs the webhooks. The fairlead runtime and each of its clusters implement it.
type Host interface {
	Client() *client.Client
	Cache() *cache.Cache
	Calls() *call.Client
	Registry() *prometheus.Registry
	Inherit() reconcile.Inherited
	// Check calls fn before the run starts; fn returns the mistakes in the declarations.
	Check(fn func() error)
	// AddAlways runs fn in every process, whether or not it leads.
	AddAlways(name string, fn func(ctx context.Context) error)
	// AddReady adds fn to the checks of /readyz. The process is not ready while fn returns an error.
	AddReady(name string, fn func() error)
	// Ask includes the rights of a in Rights.
	Ask(a rights.Asker)
}

// Options configure the serving of webhooks. Name, Namespace and either Service or URL are required.
type Options struct {
	// Name is the name of the webhook configurations and a part of other names. It must be a DNS label.
	Name string
	// Namespace is the namespace of the program and of its Secret. Hooks are not called for objects in it.
	Namespace string
	// Service is the Service in Namespace through which the API server reaches all replicas, at ServicePort (default
	// 443).
	Service     string
	ServicePort int32
	// URL is the address at which the API server reaches the hooks without a Service: https://host:port, optionally
	// with a path.
	URL string
	// Listen is the address to listen on. Default: ":9443". If Listener is set, it is used instead and closed at the
	// end.
	Listen   string
	Listener net.Listener

	// Secret is the name of the Secret that holds the authorities. Default: Name + "-webhook-ca".
	Secret string
	// ExcludeNamespaces are further namespaces for which hooks are not called, such as that of a Lease outside
	// Namespace. kube-system and Namespace are always excluded.
	ExcludeNamespaces []string
	// Only selects the namespaces for which hooks are called, in addition to the selectors of their rules. Default: all
	// except the excluded namespaces.
	Only *metav1.LabelSelector

	Certificates Certificates

	// ExitOnLostFields makes Run return ErrFieldsMayBeLost after the repair of a CustomResourceDefinition whose
	// conversion strategy was None. Default: the program continues.
	ExitOnLostFields bool

	// Linger is how long the server accepts new requests at the end, while the API server learns that this replica
	// stops. Default: 3 s. A negative value means not at all.
	Linger time.Duration
	// Drain bounds how long requests in progress may take after Linger. Default: 10 s.
	Drain time.Duration
	// Logger replaces the logger of the host.
	Logger *slog.Logger
	// TracerProvider creates a span for each request of the API server, as a child of the API server's span if there is
	// one. Default: that of the host. Without a provider there are no spans.
	TracerProvider trace.TracerProvider
}

// Certificates sets the lifetimes of certificates. Zero fields have the defaults named here.
type Certificates struct {
	Authority time.Duration // validity of an authority; one year
	Leaf      time.Duration // validity of a certificate; 30 days. It is replaced after two thirds of that
	Overlap   time.Duration // time before an authority's end at which its successor is created; 90 days
	Settle    time.Duration // time for which a new authority is trusted before it signs; 10 minutes
	Look      time.Duration // interval between checks of the Secret and the configurations; 1 minute
	// Now is the clock for certificates. Default: time.Now.
	Now func() time.Time
}

// Errors of declarations of hooks and of serving them.
var (
	// errInvalid means that a declaration is incomplete or contradicts itself.
	errInvalid = errors.New("the declaration is invalid")
	// errName means that two hooks have the same name.
	errName = errors.New("another hook has this name")
	// ErrNotServed means that the API server does not serve a type.
	ErrNotServed = errors.New("the API server does not serve this type")
	// ErrFieldsMayBeLost means that the API server has stored objects of several versions without a conversion. See
	// Options.ExitOnLostFields.
	ErrFieldsMayBeLost = errors.New("stored objects may have lost fields")
)

// HookError is an error of one hook.
type HookError struct {
	Hook  string                  // name of the hook, or its Go type if it has no name yet
	Kind  schema.GroupVersionKind // kind of its type, if known
	Place string                  // file:line of the declaration
	Err   error
}

// Error implements error.
func (e *HookError) Error() string {
	if e.Kind.Kind == "" {
		return fmt.Sprintf("%s: cannot serve hook %s: %v", e.Place, e.Hook, e.Err)
	}
	return fmt.Sprintf("%s: cannot serve hook %s of %s: %v", e.Place, e.Hook, e.Kind, e.Err)
}

// Unwrap returns the cause.
func (e *HookError) Unwrap() error { return e.Err }

// Hooks are the webhooks of a program. Make them with [Serve] before Run, and declare each with [Validate], [Mutate] or
// [Convert]. Hooks is safe for concurrent use. It only connects its parts, which the documentation of the package
// lists.
type Hooks struct {
	host        Host // nil: nothing is served
	o           Options
	log         *slog.Logger
	declared    *declarations
	readiness   *readiness
	certificate *certificate
	server      *server
	metrics     *metrics
}

// Serve makes a host serve webhooks. Run of the host returns mistakes in the options and in the declarations of hooks.
func Serve(host Host, o Options) *Hooks {
	err := o.complete()
	h := &Hooks{
		host: host, o: o, readiness: newReadiness(), certificate: &certificate{now: o.Certificates.Now},
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	h.declared = &declarations{mistakes: []error{err}, log: h.log}
	if host == nil {
		return h
	}
	inherited := host.Inherit()
	h.log = cmp.Or(o.Logger, inherited.Logger, slog.New(slog.DiscardHandler)).With("admission", o.Name)
	h.declared.log = h.log
	h.declared.hold = func(kind schema.GroupKind) { host.Cache().Hold(kind, h.Ready()) }
	h.metrics = newMetrics(h.certificate.leaf)
	h.server = newServer(h.log, h.metrics,
		tracer{tracing.Tracer(cmp.Or(o.TracerProvider, inherited.TracerProvider), "admission")})
	labels := prometheus.Labels{"cluster": inherited.Cluster, "admission": o.Name}
	if r := host.Registry(); r != nil {
		if err := prometheus.WrapRegistererWith(labels, r).Register(h.metrics); err != nil {
			h.declared.mistake(fmt.Errorf("cannot register the metrics of admission %q: %w", o.Name, err))
		}
	}
	at := place.Outside("github.com/fairlead-io/fairlead/admission")
	host.Check(func() error {
		if err := h.declared.seal(); err != nil {
			return fmt.Errorf("%s: cannot serve webhooks: %w", at, err)
		}
		return nil
	})
	host.AddReady("admission "+o.Name, h.ready)
	host.Ask(h)
	host.AddAlways("admission "+o.Name, func(ctx context.Context) error { return h.run(ctx, inherited.Degraded) })
	return h
}

// ready returns the reason why the hooks are not served.
func (h *Hooks) ready() error {
	if err := h.readiness.err(); err != nil {
		return err
	}
	return h.certificate.err()
}

// Ready returns a channel that is closed when the hooks are served and configured at the API server. The API server
// applies the configuration a moment later.
func (h *Hooks) Ready() <-chan struct{} { return h.readiness.done }

func (o *Options) complete() error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...))
	}
	for what, name := range map[string]string{"Name": o.Name, "Namespace": o.Namespace} {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			invalid("%s is %q: %s", what, name, problems[0])
		}
	}
	if (o.Service == "") == (o.URL == "") {
		invalid("either Service or URL is needed")
	}
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
			u.User != nil || u.Fragment != "" {
			invalid("URL is %q, must be https://host:port with an optional path", o.URL)
		}
	}
	if o.Service != "" {
		if problems := validation.IsDNS1035Label(o.Service); len(problems) > 0 {
			invalid("Service is %q: %s", o.Service, problems[0])
		}
	}
	o.ServicePort = cmp.Or(o.ServicePort, 443)
	o.Listen = cmp.Or(o.Listen, ":9443")
	o.Secret = cmp.Or(o.Secret, o.Name+"-webhook-ca")
	o.Linger = cmp.Or(o.Linger, 3*time.Second)
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	if _, err := metav1.LabelSelectorAsSelector(o.Only); err != nil {
		invalid("Only: %v", err)
	}
	if err := o.Certificates.complete(); err != nil {
		invalid("%v", err)
	}
	return errors.Join(errs...)
}

func (c *Certificates) complete() error {
	const day = 24 * time.Hour
	c.Authority = cmp.Or(c.Authority, 365*day)
	c.Leaf = cmp.Or(c.Leaf, 30*day)
	c.Overlap = cmp.Or(c.Overlap, 90*day)
	c.Settle = cmp.Or(c.Settle, 10*time.Minute)
	c.Look = cmp.Or(c.Look, time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.Look <= 0 || c.Settle < 2*c.Look:
		return fmt.Errorf("the settle time is %v, must be at least twice Look, %v", c.Settle, c.Look)
	case c.Leaf < 6*c.Look:
		return fmt.Errorf("the lifetime of a certificate is %v, must be at least six times Look, %v", c.Leaf,
			c.Look)
	case c.Overlap < c.Settle+6*c.Look:
		return fmt.Errorf("the overlap of authorities is %v, must be longer than Settle, %v", c.Overlap, c.Settle)
	case c.Authority <= c.Overlap:
		return fmt.Errorf("the lifetime of an authority is %v, must be longer than the overlap, %v", c.Authority,
			c.Overlap)
	}
	return nil
}

func (c Certificates) lifetimes() authority.Lifetimes {
	return authority.Lifetimes{Authority: c.Authority, Leaf: c.Leaf, Overlap: c.Overlap, Settle: c.Settle}
}

// hosts returns the host names under which the API server reaches the server.
func (o *Options) hosts() []string {
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err == nil {
			return []string{u.Hostname()}
		}
	}
	return []string{o.Service + "." + o.Namespace + ".svc", o.Service + "." + o.Namespace + ".svc.cluster.local"}
}

// noMatch makes a no-match error of discovery match ErrNotServed.
func noMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %w", ErrNotServed, err)
	}
	return err
}
