package controller

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
)

// serverAddresses knows the addresses of the API server. It is safe for concurrent use.
type serverAddresses struct {
	calls    *call.Client
	host     string // as configured
	port     string
	names    []string // with ports
	lookUpIP func(ctx context.Context, host string) ([]netip.Addr, error)

	published atomic.Pointer[[]netip.AddrPort] // the keys of seen

	mu   sync.Mutex // guards seen
	seen map[netip.AddrPort]time.Time
}

// addressLifetime is how long an address stays denied after the last lookup that returned it. A name may resolve to
// different addresses each time.
const addressLifetime = time.Hour

func newServerAddresses(config *rest.Config, calls *call.Client) (*serverAddresses, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot determine the address of the API server: %w", err)
	}
	a := &serverAddresses{
		calls: calls, host: u.Hostname(), port: portOf(u),
		lookUpIP: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		seen: map[netip.AddrPort]time.Time{},
	}
	for _, name := range []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	} {
		a.names = append(a.names, net.JoinHostPort(name, "443"))
	}
	if _, err := netip.ParseAddr(a.host); err != nil {
		a.names = append(a.names, net.JoinHostPort(a.host, a.port))
	}
	return a, nil
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// current returns the addresses of the lookups within addressLifetime. The caller must not change the slice.
func (a *serverAddresses) current() []netip.AddrPort {
	if all := a.published.Load(); all != nil {
		return *all
	}
	return nil
}

// lookUp looks up the addresses by the configured name, as the service kubernetes, and of its endpoints. unreadable is
// the error if this process has no right to read the service or its endpoints.
func (a *serverAddresses) lookUp(ctx context.Context) (unreadable, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupInterval)
	defer cancel()
	var found []netip.AddrPort
	add := func(host, port string) {
		if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
			found = append(found, netip.AddrPortFrom(at.Addr().WithZone("").Unmap(), at.Port()))
		}
	}
	add(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	addrs, err := a.resolve(ctx)
	for _, addr := range addrs {
		add(addr.String(), a.port)
	}
	service, endpoints, readErr := a.read(ctx)
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
	a.record(found, time.Now())
	switch {
	case err != nil:
		return nil, err
	case readErr != nil && !apierrors.IsForbidden(readErr):
		return nil, readErr
	}
	return readErr, nil
}

// resolve returns the addresses of the configured name. If it stands for this machine, it returns all addresses of the
// machine.
func (a *serverAddresses) resolve(ctx context.Context) ([]netip.Addr, error) {
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(a.host); err == nil {
		addrs = []netip.Addr{addr}
	} else if addrs, err = a.lookUpIP(ctx, a.host); err != nil {
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

// read returns the service and the endpoints of the API server, as the API server maintains them.
func (a *serverAddresses) read(
	ctx context.Context,
) (service corev1.Service, endpoints discoveryv1.EndpointSlice, err error) {
	for _, each := range []struct {
		request call.Request
		into    runtime.Object
	}{
		{call.Request{Resource: corev1.SchemeGroupVersion.WithResource("services"), Kind: "Service"}, &service},
		{
			call.Request{
				Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
				Kind:     "EndpointSlice",
			},
			&endpoints,
		},
	} {
		q := each.request
		q.Verb, q.Namespace, q.Name, q.NotFoundOK = call.VerbGet, "default", "kubernetes", true
		answer, failed := call.Do(ctx, a.calls, q, call.Policy{})
		if failed == nil && answer != nil {
			failed = answer.Into(each.into)
		}
		if failed != nil {
			err = failed
		}
	}
	return service, endpoints, err
}

// record adds the addresses of a lookup. Without any address it forgets none.
func (a *serverAddresses) record(addrs []netip.AddrPort, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range addrs {
		a.seen[at] = now
	}
	var all []netip.AddrPort
	for at, last := range a.seen {
		if len(addrs) > 0 && now.Sub(last) > addressLifetime {
			delete(a.seen, at)
			continue
		}
		all = append(all, at)
	}
	a.published.Store(&all)
}
