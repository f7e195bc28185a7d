package admission

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
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

// Host runs the webhooks. The fairlead runtime is one, and so is each of its clusters.
type Host interface {
	Client() *client.Client
	Cache() *cache.Cache
	Calls() *call.Client
	Registry() *prometheus.Registry
	Inherit() reconcile.Inherited
	// Check has fn asked what is wrong with the declarations before anything begins.
	Check(fn func() error)
	// AddAlways has fn run in every process, whether or not it leads.
	AddAlways(name string, fn func(ctx context.Context) error)
	// AddReady has /readyz ask fn; an error is why this process is not ready.
	AddReady(name string, fn func() error)
	// Ask has Rights tell what a asks of the API server, too.
	Ask(a rights.Asker)
}

// Options say where the webhooks are served. Name and Namespace are required, and either Service or URL.
type Options struct {
	// Name is that of the webhook configurations, and a part of other names: a DNS label.
	Name string
	// Namespace is where the program runs and its Secret is. No hook is asked about what is in it.
	Namespace string
	// Service is the Service by which the API server reaches all replicas, in Namespace, at ServicePort (443).
	Service     string
	ServicePort int32
	// URL is where the API server reaches the hooks without a Service: https://host:port, and a path perhaps.
	URL string
	// Listen is the address to listen on. Default: ":9443". Listener is used instead if there is one, and closed.
	Listen   string
	Listener net.Listener

	// Secret is the name of the Secret with the authority. Default: Name + "-webhook-ca".
	Secret string
	// ExcludeNamespaces are further namespaces that no hook is asked about, such as that of a Lease that is not in
	// Namespace. kube-system and Namespace are always excluded.
	ExcludeNamespaces []string
	// Only selects the namespaces that hooks are asked about, besides what their rules say. Default: all others.
	Only *metav1.LabelSelector

	Certificates Certificates

	// ExitOnLostFields ends Run with ErrFieldsMayBeLost after a CustomResourceDefinition was repaired whose conversion
	// strategy was None. Default: the program goes on.
	ExitOnLostFields bool

	// Linger is how long new requests are still taken at the end, until the API server knows that this replica is gone.
	// Default: 3 s; negative: none are.
	Linger time.Duration
	// Drain is how long requests under way may go on after that. Default: 10 s.
	Drain time.Duration
	// Logger is used instead of that of the host.
	Logger *slog.Logger
	// TracerProvider makes a span of each question of the API server, below its own where it makes some. Default: that of
	// the host; without it none are made.
	TracerProvider trace.TracerProvider
}

// Certificates says how long certificates are good. Zero fields have the defaults named here.
type Certificates struct {
	Authority time.Duration // how long an authority is valid; a year
	Leaf      time.Duration // how long a certificate is; 30 days, and it is replaced after two thirds of that
	Overlap   time.Duration // how long before its end an authority is followed by the next one; 90 days
	Settle    time.Duration // how long the next one is trusted before it signs; 10 minutes
	Look      time.Duration // how often the Secret and the configurations are looked at; 1 minute
	// Now is the clock by which certificates are made. Default: time.Now.
	Now func() time.Time
}

// Errors that the declarations of hooks, and what becomes of them, match.
var (
	// errInvalid: a declaration is not complete, or contradicts itself.
	errInvalid = errors.New("the declaration is invalid")
	// errName: two hooks have one name.
	errName = errors.New("another hook has this name")
	// ErrNotServed: the API server does not serve a type.
	ErrNotServed = errors.New("the API server does not serve this type")
	// ErrFieldsMayBeLost: the API server has stored objects of several versions without a conversion. See
	// Options.ExitOnLostFields.
	ErrFieldsMayBeLost = errors.New("stored objects may have lost fields")
)

// HookError is an error of one hook; it names it.
type HookError struct {
	Hook  string                  // its name, or the Go type where there is none yet
	Kind  schema.GroupVersionKind // of its type, if that is known
	Place string                  // file and line of the declaration
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

// Hooks are the webhooks of a program. Make them with [Serve], before Run, and declare them with [Validate], [Mutate]
// and [Convert]. It is safe for concurrent use.
type Hooks struct {
	host    Host
	o       Options
	log     *slog.Logger
	tracer  trace.Tracer // nil: none
	metrics *metrics
	serving atomic.Pointer[tls.Certificate]
	// of requests to hooks, and of conversions: a hook may read what has to be converted
	turns, conversions chan struct{}
	since              map[string]time.Time // from when on each authority is in all configurations; of who looks
	repaired           []string             // definitions whose strategy was None; of who looks
	done               chan struct{}        // closed when the hooks serve and are configured

	mu         sync.Mutex
	sealed     bool // the runtime has begun
	mistakes   []error
	hooks      []*hook
	converters []*converter
	problem    error // why it is not ready
}

// maxRequests bounds the requests that are worked on at a time; further ones wait. Conversions have an eighth besides.
const maxRequests = 64

// Serve has a host serve webhooks. A mistake in the options is one of Run of the runtime, as are those of the hooks.
func Serve(host Host, o Options) *Hooks {
	h := &Hooks{host: host, done: make(chan struct{}), problem: errors.New("they are not served yet"), log: o.Logger}
	h.mistakes = append(h.mistakes, o.complete())
	h.o = o
	h.turns, h.conversions = make(chan struct{}, maxRequests), make(chan struct{}, maxRequests/8)
	if host == nil {
		h.log = cmp.Or(h.log, slog.New(slog.DiscardHandler))
		return h
	}
	inherited := host.Inherit()
	h.log = cmp.Or(h.log, inherited.Logger, slog.New(slog.DiscardHandler))
	h.log = h.log.With("admission", o.Name)
	h.tracer = tracing.Tracer(cmp.Or(o.TracerProvider, inherited.TracerProvider), "admission")
	h.metrics = newMetrics(h)
	labels := prometheus.Labels{"cluster": inherited.Cluster, "admission": o.Name}
	if r := host.Registry(); r != nil {
		if err := prometheus.WrapRegistererWith(labels, r).Register(h.metrics); err != nil {
			h.mistakes = append(h.mistakes, fmt.Errorf("cannot register the metrics of admission %q: %w", o.Name, err))
		}
	}
	at := place.Outside("github.com/fairlead-io/fairlead/admission")
	host.Check(func() error {
		if err := h.seal(); err != nil {
			return fmt.Errorf("%s: cannot serve webhooks: %w", at, err)
		}
		return nil
	})
	host.AddReady("admission "+o.Name, h.ready)
	host.Ask(h)
	host.AddAlways("admission "+o.Name, func(ctx context.Context) error { return h.run(ctx, inherited.Degraded) })
	return h
}

func (o *Options) complete() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...))
	}
	for what, name := range map[string]string{"Name": o.Name, "Namespace": o.Namespace} {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			wrong("%s is %q: %s", what, name, problems[0])
		}
	}
	if (o.Service == "") == (o.URL == "") {
		wrong("either Service or URL is needed")
	}
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
			u.User != nil || u.Fragment != "" {
			wrong("URL is %q, and has to be https://host:port with a path at most", o.URL)
		}
	}
	if o.Service != "" {
		if problems := validation.IsDNS1035Label(o.Service); len(problems) > 0 {
			wrong("Service is %q: %s", o.Service, problems[0])
		}
	}
	o.ServicePort = cmp.Or(o.ServicePort, 443)
	o.Listen = cmp.Or(o.Listen, ":9443")
	o.Secret = cmp.Or(o.Secret, o.Name+"-webhook-ca")
	o.Linger = cmp.Or(o.Linger, 3*time.Second)
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	if _, err := metav1.LabelSelectorAsSelector(o.Only); err != nil {
		wrong("Only: %v", err)
	}
	if err := o.Certificates.complete(); err != nil {
		wrong("%v", err)
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
		return fmt.Errorf("what is new settles for %v, which has to be at least twice as long as Look, %v", c.Settle, c.Look)
	case c.Leaf < 6*c.Look:
		return fmt.Errorf("a certificate is good for %v, which has to be at least six times as long as Look, %v", c.Leaf,
			c.Look)
	case c.Overlap < c.Settle+6*c.Look:
		return fmt.Errorf("authorities overlap for %v, which has to be longer than to settle, %v", c.Overlap, c.Settle)
	case c.Authority <= c.Overlap:
		return fmt.Errorf("an authority is good for %v, and has to be for longer than the overlap, %v", c.Authority,
			c.Overlap)
	}
	return nil
}

func (c Certificates) lifetimes() authority.Lifetimes {
	return authority.Lifetimes{Authority: c.Authority, Leaf: c.Leaf, Overlap: c.Overlap, Settle: c.Settle}
}

// hosts are the names by which the API server knows the server.
func (o *Options) hosts() []string {
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err == nil {
			return []string{u.Hostname()}
		}
	}
	return []string{o.Service + "." + o.Namespace + ".svc", o.Service + "." + o.Namespace + ".svc.cluster.local"}
}

// seal ends the declarations, and says what is wrong with them.
func (h *Hooks) seal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sealed = true
	errs := slices.Clone(h.mistakes)
	if len(h.hooks)+len(h.converters) == 0 {
		errs = append(errs, fmt.Errorf("%w: there are no hooks", errInvalid))
	}
	for _, c := range h.converters {
		errs = append(errs, c.check())
	}
	return errors.Join(errs...)
}

// declare notes a mistake in a declaration; one that comes too late is logged.
func (h *Hooks) mistake(err error) {
	if h.sealed {
		h.log.Error("mistake in a declaration", "error", err)
	}
	h.mistakes = append(h.mistakes, err)
}

// ready says why the hooks do not serve yet.
func (h *Hooks) ready() error {
	h.mu.Lock()
	problem := h.problem
	h.mu.Unlock()
	if problem != nil {
		return problem
	}
	if leaf := h.leaf(); h.o.Certificates.Now().After(leaf.NotAfter) {
		return fmt.Errorf("the certificate has expired on %v", leaf.NotAfter)
	}
	return nil
}

// Ready is closed when the hooks serve, and are configured at the API server; that learns of it a moment later.
func (h *Hooks) Ready() <-chan struct{} { return h.done }

func (h *Hooks) leaf() *x509.Certificate {
	if c := h.serving.Load(); c != nil {
		return c.Leaf
	}
	return nil
}

// noMatch has an error of discovery match ErrNotServed.
func noMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %w", ErrNotServed, err)
	}
	return err
}
