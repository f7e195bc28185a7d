package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operation"
)

// to makes a Webhook that goes elsewhere than to the receiver, and is given up soon.
func (s *site) to(name, target string) {
	s.t.Helper()
	s.webhook(name, "/", func(w *v1alpha1.WebhookSpec) {
		w.Request.URL, w.Retry.MaxAttempts, w.RequestTimeout = target, 1, metav1.Duration{Duration: time.Second}
	})
}

// outcome runs one operation with one webhook.
func (s *site) outcome(webhook string) operation.View {
	s.t.Helper()
	resource := operation.Resource{Type: "app", ID: webhook}
	op, err := s.scheduler.Schedule(s.ctx, operation.Request{
		Type: operation.Update, Resource: resource, Webhooks: []string{webhook},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.scheduler.Wait(s.ctx, resource, op.EffectiveID(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func node(name string, cidrs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs},
	}
}

// TestTargets: webhooks reach neither the services and pods of the cluster, where these have public addresses, nor the
// API server, whatever is allowed, nor what is denied; and all else as before.
func TestTargets(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	clients := kubernetes.NewForConfigOrDie(s.config)
	if _, err := clients.NetworkingV1().ServiceCIDRs().Create(s.ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "public"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"34.118.224.0/20"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Nodes().Create(s.ctx, node("one", "35.190.0.0/24", "2600:1900:4000::/64"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	local := func(host string) string { return "https://" + net.JoinHostPort(host, at.Port()) + "/version" }
	receiver, err := url.Parse(s.receiver.URL)
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{
		"service": "http://34.118.226.7/", "pod": "http://35.190.0.9:8080/", "pod6": "http://[2600:1900:4000::9]/",
		"embedded": "http://[64:ff9b::34.118.226.7]/",
		"api":      local("127.0.0.1"), "api-name": local("localhost"), "api-mapped": local("::ffff:127.0.0.1"),
		"api-any": local("0.0.0.0"), "api-other": local("127.0.0.2"),
		"denied": "http://127.0.0.3:" + receiver.Port() + "/",
	}
	for name, target := range refused {
		s.to(name, target)
	}
	s.to("good", s.receiver.URL+"/")
	s.to("named", "http://localhost:"+receiver.Port()+"/")
	s.to("later", "http://35.190.1.9/")
	s.to("allowed", "http://34.118.239.255:1/")
	p := s.controller(s.kubeconfig, "--insecure-no-auth", "--allow-target", "127.0.0.0/8", "--allow-target", "0.0.0.0",
		"--allow-target", "localhost",
		"--allow-target", "34.118.239.255", "--deny-target", "127.0.0.3")
	<-p.address
	for name, target := range refused {
		if v := s.outcome(name); v.Reason != v1alpha1.ReasonTargetRefused {
			t.Errorf("%s: %s %s %s", target, v.Status, v.Reason, v.Error)
		}
	}
	for _, name := range []string{"good", "named"} {
		if v := s.outcome(name); v.Status != operation.Succeeded {
			t.Errorf("%s: %s %s", name, v.Reason, v.Error)
		}
	}
	if v := s.outcome("allowed"); v.Reason == v1alpha1.ReasonTargetRefused {
		t.Errorf("allowed within what the cluster has: %s", v.Error)
	}
	// A node that comes later.
	if _, err := clients.CoreV1().Nodes().Create(s.ctx, node("two", "35.190.1.0/24"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("refused", func() bool { return s.outcome("later").Reason == v1alpha1.ReasonTargetRefused })
}

// told collects log lines.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *told) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// follow runs targets until the test ends.
func (s *site) follow(config *rest.Config, change func(*targets)) (*targets, *told) {
	s.t.Helper()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(calls.Close)
	log := &told{}
	targets, err := newTargets(config, calls, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		s.t.Fatal(err)
	}
	if change != nil {
		change(targets)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := targets.run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(func() { cancel(); running.Wait() })
	return targets, log
}

// TestTargetsWithoutRights: who may not read the ranges says so once, and what to do; rights that come later are used,
// and what was learned stays when they go.
func TestTargetsWithoutRights(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	clients := kubernetes.NewForConfigOrDie(s.config)
	_, err := clients.CoreV1().ServiceAccounts(s.namespace).Create(s.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.ctx, "nobody",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Nodes().Create(s.ctx, node("one", "35.190.0.0/24"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token.Status.Token
	targets, log := s.follow(config, nil)
	targets.await(s.ctx)
	knows := func(want string) func() bool {
		return func() bool { return slices.Contains(load(&targets.inside)(), netip.MustParsePrefix(want)) }
	}
	if lines := log.all(); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") ||
		!strings.Contains(lines[0], "--deny-target") ||
		!strings.Contains(lines[0], "nodes") || !strings.Contains(lines[0], "servicecidrs") {
		t.Errorf("told %q", lines)
	}
	if at, err := netip.ParseAddrPort(strings.TrimPrefix(s.config.Host, "https://")); err != nil ||
		!slices.Contains(load(&targets.never)(), at) {
		t.Errorf("the API server at %s is not among %v (%v)", s.config.Host, load(&targets.never)(), err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "ranges"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: []string{"list", "watch"}},
	}}
	if _, err := clients.RbacV1().ClusterRoles().Create(s.ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ranges"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ranges"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "nobody", Namespace: s.namespace}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("known", knows("35.190.0.0/24"))
	s.eventually("known, of services", knows("10.0.0.0/24"))
	if err := clients.RbacV1().ClusterRoleBindings().Delete(s.ctx, "ranges", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.RestartAPIServer(s.ctx); err != nil { // so that the watches end
		t.Fatal(err)
	}
	s.eventually("forbidden", func() bool {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
	if !knows("35.190.0.0/24")() {
		t.Errorf("what was known is forgotten: %v", load(&targets.inside)())
	}
	if lines := log.all(); len(lines) != 1 {
		t.Errorf("told %q", lines)
	}
}

// TestAPIServerAddresses: all addresses that the name of the API server stands for count, those of a while ago too, and
// those of the service kubernetes and behind it.
func TestAPIServerAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	at, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	targets, _ := s.follow(s.config, func(x *targets) {
		x.host, x.lookUp = "api.example", func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "api.example" {
				return nil, fmt.Errorf("asked for %s", host)
			}
			return []netip.Addr{
				netip.MustParseAddr("34.1.2.3"), netip.MustParseAddr("::ffff:34.1.2.4"),
				netip.MustParseAddr("2001:4860::1"),
			}, nil
		}
	})
	service, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().Services("default").Get(s.ctx, "kubernetes",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"34.1.2.3:" + at.Port(), "34.1.2.4:" + at.Port(), "[2001:4860::1]:" + at.Port(),
		service.Spec.ClusterIP + ":443",
	}
	s.eventually("known", func() bool {
		return !slices.ContainsFunc(want, func(text string) bool {
			return !slices.Contains(load(&targets.never)(), netip.MustParseAddrPort(text))
		})
	})
	one, two := netip.MustParseAddrPort("34.9.9.9:443"), netip.MustParseAddrPort("34.9.9.8:443")
	now := time.Now()
	targets.found([]netip.AddrPort{one}, now)
	targets.found([]netip.AddrPort{two}, now.Add(keepAddress))
	if !slices.Contains(load(&targets.never)(), one) {
		t.Error("an address that the name stood for lately is forgotten")
	}
	targets.found(nil, now.Add(3*keepAddress)) // as when names cannot be looked up
	if !slices.Contains(load(&targets.never)(), two) {
		t.Error("the last known address is forgotten")
	}
	targets.found([]netip.AddrPort{two}, now.Add(2*keepAddress))
	if slices.Contains(load(&targets.never)(), one) {
		t.Error("an address is never forgotten")
	}
}

// TestWrongTargets: what cannot be meant is said before anything runs.
func TestWrongTargets(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--deny-target", "http://x"},
		{"--allow-target", "10.0.0.0/99"},
		{"--credentials", "some"},
		{"--system-namespace", "A_b"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"controller", "--kubeconfig", writeKubeconfig(t, env.Config(t), "")},
			args...), strings.NewReader(""), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), args[1]) {
			t.Errorf("%q: %d %s", args, code, errs.String())
		}
	}
}
