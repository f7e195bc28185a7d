package e2e_test

import (
	"net"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// to creates a Webhook with a target other than the receiver, and one try of at most patience.
func (s *site) to(name, target string, patience time.Duration) {
	s.t.Helper()
	s.webhook(name, "/", func(w *v1alpha1.WebhookSpec) {
		w.Request.URL, w.Retry.MaxAttempts, w.RequestTimeout = target, 1, metav1.Duration{Duration: patience}
	})
}

// outcome runs one operation with one webhook.
func (s *site) outcome(webhook string) operations.View {
	s.t.Helper()
	resource := operations.Resource{Type: "app", ID: webhook}
	op, err := s.scheduler.Schedule(s.ctx, operations.Request{
		Type: operations.Update, Resource: resource, Webhooks: []string{webhook},
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

// TestTargets: webhooks reach no services and pods of the cluster, even at public addresses. They never reach the API
// server or denied targets. All other targets are reachable.
func TestTargets(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	clients := kubernetes.NewForConfigOrDie(s.config)
	if _, err := clients.NetworkingV1().ServiceCIDRs().Create(s.ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "public"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"34.118.224.0/20"}},
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
		s.to(name, target, time.Minute)
	}
	s.to("good", s.receiver.URL+"/", time.Minute)
	s.to("named", "http://localhost:"+receiver.Port()+"/", time.Minute)
	s.to("later", "http://35.190.1.9/", time.Second) // nothing answers there
	s.to("allowed", "http://34.118.239.255:1/", time.Second)
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
		if v := s.outcome(name); v.Status != operations.Succeeded {
			t.Errorf("%s: %s %s", name, v.Reason, v.Error)
		}
	}
	if v := s.outcome("allowed"); v.Reason == v1alpha1.ReasonTargetRefused {
		t.Errorf("allowed within the ranges of the cluster: %s", v.Error)
	}
	// A node that joins later.
	if _, err := clients.CoreV1().Nodes().Create(s.ctx, node("two", "35.190.1.0/24"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("refused", func() bool { return s.outcome("later").Reason == v1alpha1.ReasonTargetRefused })
}
