package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// logLines collects log lines.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// following runs targets against a server in memory that serves every resource that they request.
type following struct {
	*targets
	server *apiserver.Server
	log    *logLines
}

// followTargets runs targets until the test ends. The rules apply to their requests from the start.
func followTargets(t *testing.T, refused ...apiserver.Match) (f *following, rules []*apiserver.Rule) {
	t.Helper()
	of := func(group, resource, kind string, namespaced bool) apiserver.Resource {
		return apiserver.Resource{Group: group, Version: "v1", Resource: resource, Kind: kind, Namespaced: namespaced}
	}
	f = &following{log: &logLines{}, server: testbed.Server(t, apiserver.Options{Resources: append(
		apiserver.DefaultResources(), of("networking.k8s.io", "servicecidrs", "ServiceCIDR", false),
		of("discovery.k8s.io", "endpointslices", "EndpointSlice", true),
	)})}
	t.Cleanup(f.server.Close)
	for _, match := range refused {
		rules = append(rules, f.server.On(match, apiserver.Answer(apiserver.Failure(http.StatusForbidden))))
	}
	config := f.server.Config()
	config.Host = "http://api.example:6443"
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	if f.targets, err = newTargets(config, calls, slog.New(slog.NewTextHandler(f.log, nil))); err != nil {
		t.Fatal(err)
	}
	f.servers.lookUpIP = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "api.example" {
			return nil, fmt.Errorf("asked for %s", host)
		}
		return []netip.Addr{
			netip.MustParseAddr("34.1.2.3"), netip.MustParseAddr("::ffff:34.1.2.4"),
			netip.MustParseAddr("2001:4860::1"),
		}, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f, rules
}

func (f *following) knows(prefix string) bool {
	return slices.Contains(f.ranges.all(), netip.MustParsePrefix(prefix))
}

func (f *following) denies(address string) bool {
	return slices.Contains(f.servers.current(), netip.MustParseAddrPort(address))
}

// TestTargetsWithoutRights: a controller that may not read the ranges logs that once, with advice. It uses rights that
// are granted later, and keeps the ranges when they are revoked.
func TestTargetsWithoutRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		matches := []apiserver.Match{
			{Resource: "nodes"}, {Resource: "servicecidrs"}, {Resource: "services"}, {Resource: "endpointslices"},
		}
		f, rules := followTargets(t, matches...)
		testbed.Put(t, f.server, node("one", "35.190.0.0/24"))
		testbed.Put(t, f.server, &networkingv1.ServiceCIDR{
			TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"},
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}},
		})
		f.await(t.Context(), t.Context())
		loggedOnce := func() {
			t.Helper()
			if lines := f.log.all(); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
				!strings.Contains(lines[0], "--deny-target") ||
				!strings.Contains(lines[0], "nodes") || !strings.Contains(lines[0], "servicecidrs") {
				t.Errorf("logged %q", lines)
			}
		}
		loggedOnce()
		if !f.denies("34.1.2.3:6443") {
			t.Errorf("the API server is not among %v", f.servers.current())
		}
		for _, rule := range rules {
			rule.Off()
		}
		testbed.Settle(time.Minute)
		for _, prefix := range []string{"35.190.0.0/24", "10.0.0.0/24"} {
			if !f.knows(prefix) {
				t.Errorf("with the rights it does not know %s, but %v", prefix, f.ranges.all())
			}
		}
		rules = nil
		for _, match := range matches {
			rules = append(rules, f.server.On(match, apiserver.Answer(apiserver.Failure(http.StatusForbidden))))
		}
		f.server.DropConnections() // the watches end
		testbed.Settle(time.Minute)
		for i, rule := range rules {
			if rule.Hits() == 0 {
				t.Errorf("it does not request %s again", matches[i].Resource)
			}
		}
		for _, prefix := range []string{"35.190.0.0/24", "10.0.0.0/24"} {
			if !f.knows(prefix) {
				t.Errorf("known ranges are forgotten: %v", f.ranges.all())
			}
		}
		loggedOnce()
	})
}

// TestAPIServerAddresses: all addresses of the API server's name are denied, recent ones too, and those of the service
// kubernetes and its endpoints.
func TestAPIServerAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := followTargets(t)
		testbed.Put(t, f.server, &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Port: 443}},
			},
		})
		testbed.Put(t, f.server, &discoveryv1.EndpointSlice{
			TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"34.1.2.9"}}},
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8443))}},
		})
		testbed.Settle(2 * lookupInterval)
		for _, address := range []string{
			"34.1.2.3:6443", "34.1.2.4:6443", "[2001:4860::1]:6443", "10.0.0.1:443", "34.1.2.9:8443",
		} {
			if !f.denies(address) {
				t.Errorf("%s is not among %v", address, f.servers.current())
			}
		}
		const one, two = "34.9.9.9:443", "34.9.9.8:443"
		now := time.Now()
		f.servers.record([]netip.AddrPort{netip.MustParseAddrPort(one)}, now)
		f.servers.record([]netip.AddrPort{netip.MustParseAddrPort(two)}, now.Add(addressLifetime))
		if !f.denies(one) {
			t.Error("a recent address is forgotten")
		}
		f.servers.record(nil, now.Add(3*addressLifetime)) // as if names could not be resolved
		if !f.denies(two) {
			t.Error("the last known address is forgotten")
		}
		f.servers.record([]netip.AddrPort{netip.MustParseAddrPort(two)}, now.Add(2*addressLifetime))
		if f.denies(one) {
			t.Error("an address is never forgotten")
		}
	})
}

func node(name string, cidrs ...string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs},
	}
}
