package e2e_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// key reads the callback key of a namespace, nil if there is none.
func (s *site) key(namespace string) []byte {
	s.t.Helper()
	secret, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().Secrets(namespace).Get(s.ctx, callbackSecret,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return secret.Data["key"]
}

// held returns the Lease of a namespace, nil if there is none.
func (s *site) held(namespace string) *coordinationv1.Lease {
	s.t.Helper()
	lease, err := kubernetes.NewForConfigOrDie(s.config).CoordinationV1().Leases(namespace).Get(s.ctx, leaseName,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// plant creates a callback key in a namespace, as a user with rights there may do.
func (s *site) plant(namespace string, key []byte) {
	s.t.Helper()
	if _, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().Secrets(namespace).Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: callbackSecret}, Data: map[string][]byte{"key": key},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// serving starts a controller for several namespaces.
func (s *site) serving(namespaces []string, args ...string) *process {
	s.t.Helper()
	for _, namespace := range namespaces {
		args = append(args, "--namespace", namespace)
	}
	return s.start(append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
}

// inContext returns a copy of a kubeconfig with another namespace in its context.
func inContext(t *testing.T, kubeconfig, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// forge calls back as an attacker who knows a key.
func (s *site) forge(address string, key []byte, cb executor.Callback) (code int) {
	s.t.Helper()
	to := "http://" + address + "/callbacks/" + executor.NewCallbacks("http://x", key).Token(cb)
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, to, strings.NewReader(`{"status":"SUCCEEDED"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestForgedCallback: a tenant whose namespace is served among others cannot forge callbacks of the others, with and
// without --system-namespace.
func TestForgedCallback(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]bool{"Said": true, "Default": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, env.Config(t))
			tenant, system := clustertest.Namespace(t, s.config), clustertest.Namespace(t, s.config)
			args := []string{"--insecure-no-auth", "--leader-elect"}
			if said {
				args = append(args, "--system-namespace", system)
			} else {
				s.kubeconfig = inContext(t, s.kubeconfig, system)
			}
			s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusAccepted)
			})
			s.webhook("back", "/", func(w *v1alpha1.WebhookSpec) {
				w.Mode, w.Request.Body = v1alpha1.ModeAsyncCallback, new(`{"callback": "{{.CallbackURL}}"}`)
			})
			p := s.serving([]string{tenant, s.namespace}, args...)
			address := <-p.address
			ids := s.scheduleMany(1, operations.Request{Webhooks: []string{"back"}})
			var op *v1alpha1.Operation
			s.eventually("waiting for the callback", func() bool {
				var err error
				op, err = s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "0"})
				return err == nil && len(op.Status.Webhooks) == 1 &&
					op.Status.Webhooks[0].LastStatusCode == http.StatusAccepted
			})
			for _, namespace := range []string{tenant, s.namespace} {
				if s.key(namespace) != nil {
					t.Errorf("the key is in namespace %s", namespace)
				}
			}
			if lease := s.held(system); s.key(system) == nil || lease == nil {
				t.Errorf("key or Lease are not in namespace %s", system)
			}
			// The tenant creates a key of their own, before and after a restart of the controller.
			cb := executor.Callback{Namespace: s.namespace, Name: op.Name, OperationID: ids[0], WebhookID: "back"}
			forged := []byte("0123456789abcdef0123456789abcdef")
			s.plant(tenant, forged)
			if code := s.forge(address, forged, cb); code != http.StatusNotFound {
				t.Errorf("a callback with the tenant's own key: %d", code)
			}
			next := s.serving([]string{tenant, s.namespace}, args...)
			if code := s.forge(<-next.address, forged, cb); code != http.StatusNotFound {
				t.Errorf("the same after a restart: %d", code)
			}
			if code := s.forge(address, s.key(system), cb); code != http.StatusNoContent {
				t.Errorf("the right one: %d", code)
			}
		})
	}
}

// TestRightsInTheSystemNamespace: the rights of rbac.yaml in the system namespace suffice for key and Lease. No served
// namespace has them.
func TestRightsInTheSystemNamespace(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("first", "/", nil)
	system := clustertest.Namespace(t, s.config)
	s.deployIn(system, "rbac.yaml")
	token, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().ServiceAccounts(system).CreateToken(
		s.ctx, "fairlead-controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := s.controller(program.Kubeconfig(t, s.config, token.Status.Token), "--insecure-no-auth", "--leader-elect",
		"--system-namespace", system)
	<-p.address
	ids := s.scheduleMany(1, operations.Request{Webhooks: []string{"first"}})
	s.allSucceeded(ids, "first")
	if s.held(s.namespace) != nil || s.key(s.namespace) != nil || s.held(system) == nil {
		t.Error("key or Lease are in the namespace that is served")
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(s.ctx, t); err != nil {
		t.Errorf("%v\n%s", err, p.log)
	}
}
