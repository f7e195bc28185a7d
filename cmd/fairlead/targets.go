package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// targets knows the addresses of the cluster itself that Webhooks must not reach: those of the API server, and the
// ranges of services and pods, which may be public. It follows their changes during run. It is safe for concurrent use.
type targets struct {
	calls  *call.Client
	log    *slog.Logger
	host   string // of the API server, as configured
	port   string
	names  []string // of the API server, with ports
	lookUp func(ctx context.Context, host string) ([]netip.Addr, error)

	never  atomic.Pointer[[]netip.AddrPort]
	inside atomic.Pointer[[]netip.Prefix]

	mu      sync.Mutex
	ranges  map[string][]netip.Prefix // by source resource
	seen    map[netip.AddrPort]time.Time
	unknown map[string]struct{} // sources not known yet
	missing []string            // unavailable sources with the reason
	settled chan struct{}       // closed when unknown is empty
}

const (
	// lookAgain is the interval of address lookups for the API server, and lookSoon the interval after a failure.
	lookAgain = 30 * time.Second
	lookSoon  = 2 * time.Second
	// keepAddress is how long an address of the API server stays denied after the last lookup that returned it. A name
	// may resolve to different addresses each time.
	keepAddress = time.Hour
	// settleTime bounds how long operations wait for the ranges of the cluster.
	settleTime = 10 * time.Second

	theAPIServer = "the addresses of the API server"
)

var (
	nodes        = corev1.SchemeGroupVersion.WithResource("nodes")
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
)

func newTargets(config *rest.Config, calls *call.Client, log *slog.Logger) (*targets, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot determine the address of the API server: %w", err)
	}
	t := &targets{
		calls: calls, log: log, host: u.Hostname(), port: portOf(u),
		lookUp: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		ranges: map[string][]netip.Prefix{}, seen: map[netip.AddrPort]time.Time{}, settled: make(chan struct{}),
		unknown: map[string]struct{}{nodes.Resource: {}, serviceCIDRs.Resource: {}, theAPIServer: {}},
	}
	for _, name := range []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	} {
		t.names = append(t.names, net.JoinHostPort(name, "443"))
	}
	if _, err := netip.ParseAddr(t.host); err != nil {
		t.names = append(t.names, net.JoinHostPort(t.host, t.port))
	}
	return t, nil
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// options returns the targets for an executor.
func (t *targets) options(deny []string) executor.Targets {
	return executor.Targets{Never: load(&t.never), NeverHosts: t.names, Deny: deny, Inside: load(&t.inside)}
}

func load[T any](p *atomic.Pointer[[]T]) func() []T {
	return func() []T {
		if known := p.Load(); known != nil {
			return *known
		}
		return nil
	}
}

// run follows the addresses and ranges until ctx ends.
func (t *targets) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, of := range []struct {
		source source.Config
		read   func(raw []byte) ([]string, error)
	}{{source.Config{Resource: nodes}, podCIDRs}, {source.Config{Resource: serviceCIDRs}, serviceRanges}} {
		of.source.Connection, of.source.Encoding = t.calls.Connection(), source.JSON
		src, err := source.New(of.source, func(string) source.Sink {
			return &rangeSink{
				targets: t, resource: of.source.Resource.Resource, read: of.read,
				known: map[string][]netip.Prefix{},
			}
		})
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := src.Run(ctx); err != nil {
				t.log.ErrorContext(ctx, "cannot follow the ranges of the cluster", "error", err)
			}
		})
	}
	for {
		wait := lookAgain
		if err := t.find(ctx); err != nil && ctx.Err() == nil {
			wait = lookSoon
			t.log.DebugContext(ctx, "cannot determine all addresses of the API server", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// await waits until the ranges of the cluster are known or known to be unavailable, at most for settleTime.
func (t *targets) await(ctx context.Context) {
	select {
	case <-t.settled:
		return
	default:
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-t.settled:
	case <-ctx.Done():
	case <-timer.C:
		t.log.WarnContext(ctx,
			"operations start before the address ranges of services and pods are known: list public ones with --deny-target")
	}
}

// find looks up the addresses of the API server: by its configured name, as the service kubernetes, and of its
// endpoints.
func (t *targets) find(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	var found []netip.AddrPort
	add := func(host, port string) {
		if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
			found = append(found, netip.AddrPortFrom(at.Addr().WithZone("").Unmap(), at.Port()))
		}
	}
	add(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	addrs, err := t.resolve(ctx)
	for _, addr := range addrs {
		add(addr.String(), t.port)
	}
	service, endpoints, readErr := t.behind(ctx)
	for _, ip := range service.Spec.ClusterIPs {
		for _, port := range service.Spec.Ports {
			add(ip, fmt.Sprint(port.Port))
		}
	}
	for _, endpoint := range endpoints.Endpoints {
		for _, ip := range endpoint.Addresses {
			for _, port := range endpoints.Ports {
				if port.Port != nil {
					add(ip, fmt.Sprint(*port.Port))
				}
			}
		}
	}
	t.found(found, time.Now())
	switch {
	case err != nil:
		return err
	case readErr != nil && !apierrors.IsForbidden(readErr):
		return readErr
	}
	t.known(theAPIServer, readErr)
	return nil
}

// resolve returns the addresses of the configured name. If it stands for this machine, it returns all addresses of the
// machine.
func (t *targets) resolve(ctx context.Context) ([]netip.Addr, error) {
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(t.host); err == nil {
		addrs = []netip.Addr{addr}
	} else if addrs, err = t.lookUp(ctx, t.host); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap().IsLoopback() }) {
		return addrs, nil
	}
	own, err := net.InterfaceAddrs()
	for _, each := range own {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs, err
}

// behind returns the service and the endpoints of the API server, as the API server maintains them.
func (t *targets) behind(ctx context.Context) (service corev1.Service, endpoints discoveryv1.EndpointSlice, err error) {
	for _, each := range []struct {
		request call.Request
		into    runtime.Object
	}{
		{call.Request{Resource: corev1.SchemeGroupVersion.WithResource("services"), Kind: "Service"}, &service},
		{
			call.Request{Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Kind: "EndpointSlice"},
			&endpoints,
		},
	} {
		q := each.request
		q.Verb, q.Namespace, q.Name, q.NotFoundOK = call.VerbGet, "default", "kubernetes", true
		answer, failed := call.Do(ctx, t.calls, q, call.Policy{})
		if failed == nil && answer != nil {
			failed = answer.Into(each.into)
		}
		if failed != nil {
			err = failed
		}
	}
	return service, endpoints, err
}

// found records the present addresses of the API server. Addresses within keepAddress stay in effect.
func (t *targets) found(addrs []netip.AddrPort, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range addrs {
		t.seen[at] = now
	}
	var all []netip.AddrPort
	for at, last := range t.seen {
		if len(addrs) > 0 && now.Sub(last) > keepAddress {
			delete(t.seen, at)
			continue
		}
		all = append(all, at)
	}
	t.never.Store(&all)
}

// has sets the ranges from a resource.
func (t *targets) has(resource string, prefixes []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ranges[resource] = prefixes
	var all []netip.Prefix
	for _, some := range t.ranges {
		all = append(all, some...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	all = slices.Compact(all)
	t.inside.Store(&all)
}

// known records that a source is known, or why it is unavailable. When all sources are settled, it logs the unavailable
// ones once.
func (t *targets) known(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, is := t.unknown[what]; !is {
		return
	}
	delete(t.unknown, what)
	if err != nil {
		t.missing = append(t.missing, fmt.Sprintf("%s (%v)", what, err))
	}
	if len(t.unknown) > 0 {
		return
	}
	defer close(t.settled)
	if len(t.missing) > 0 {
		slices.Sort(t.missing)
		t.log.Warn(
			"cannot read all address ranges of the cluster: webhooks may reach services and pods at public addresses. "+
				"List their ranges with --deny-target, or grant the RBAC rules of deploy/rbac.yaml",
			"missing", strings.Join(t.missing, "; "),
		)
	}
}
