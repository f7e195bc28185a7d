package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
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

// plant makes a callback key in a namespace, as somebody may who has rights there.
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

// pidOf is the process that holds a Lease.
func pidOf(lease *coordinationv1.Lease) string {
	parts := strings.Split(*lease.Spec.HolderIdentity, "_")
	return parts[len(parts)-2]
}

// forge calls back as somebody would who knows a key.
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

// TestForgedCallback: a tenant whose namespace is served among others has nothing to forge their callbacks with,
// whether or not anybody has said where the key is to be.
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
			ids := s.scheduleMany(1, operation.Request{Webhooks: []string{"back"}})
			var op *v1alpha1.Operation
			s.eventually("waiting for the callback", func() bool {
				var err error
				op, err = s.scheduler.Get(s.ctx, operation.Resource{Type: "app", ID: "0"})
				return err == nil && len(op.Status.Webhooks) == 1 && op.Status.Webhooks[0].LastStatusCode == http.StatusAccepted
			})
			for _, namespace := range []string{tenant, s.namespace} {
				if s.key(namespace) != nil {
					t.Errorf("the key is in namespace %s", namespace)
				}
			}
			if lease := s.held(system); s.key(system) == nil || lease == nil {
				t.Errorf("key or Lease are not in namespace %s", system)
			}
			// The tenant makes a key of his own, before and after a restart of the controller.
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

// TestMove rolls two replicas over to another place of key and Lease, with calls of all modes under way, and callbacks
// that come late: none is made twice, none is lost, and nobody leads beside another.
func TestMove(t *testing.T) {
	t.Parallel()
	m := newModes(newSite(t, env.Config(t)))
	system := clustertest.Namespace(t, m.config)
	var mu sync.Mutex
	var late []string // callbacks that nobody makes before the move
	m.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/late" {
			m.ServeHTTP(w, r)
			return
		}
		var body struct{ Callback string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		late = append(late, body.Callback)
		mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	})
	m.webhook("late", "/late", func(w *v1alpha1.WebhookSpec) {
		w.Mode, w.Request.Body = v1alpha1.ModeAsyncCallback, new(`{"callback": "{{.CallbackURL}}"}`)
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(late) }

	first, second := m.process("--leader-elect"), m.process("--leader-elect")
	var waiting []string
	for i := range 3 {
		op, err := m.scheduler.Schedule(m.ctx, operation.Request{
			Type: operation.Update, Resource: operation.Resource{Type: "slow", ID: fmt.Sprint(i)}, Webhooks: []string{"late"},
		})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, op.EffectiveID())
	}
	m.eventually("called", func() bool { return count() == len(waiting) })
	ids := m.scheduleMany(30, allModes)
	third := m.process("--leader-elect", "--system-namespace", system)
	before := *m.held(m.namespace).Spec.HolderIdentity
	m.eventually("the new place taken", func() bool {
		l := m.held(system)
		return l != nil && *l.Spec.HolderIdentity != ""
	})
	if now := *m.held(m.namespace).Spec.HolderIdentity; now != before {
		t.Errorf("%s led, and now %s does while it runs", before, now)
	}
	m.stop(first)
	fourth := m.process("--leader-elect", "--system-namespace", system)
	m.stop(second)
	m.once(ids)
	m.eventually("both Leases held by the leader", func() bool { // the operations may have ended before the move
		here, there := m.held(m.namespace), m.held(system)
		return *here.Spec.HolderIdentity != "" && *there.Spec.HolderIdentity != "" && pidOf(here) == pidOf(there)
	})
	// The key of before is good for what began before, at any replica, and for nothing else.
	old, key := m.key(m.namespace), m.key(system)
	if string(old) == string(key) || key == nil {
		t.Fatal("there is no new key")
	}
	for _, to := range late {
		m.callBack(to)
	}
	for i, id := range waiting {
		v, err := m.scheduler.Wait(m.ctx, operation.Resource{Type: "slow", ID: fmt.Sprint(i)}, id, nil)
		if err != nil || v.Status != operation.Succeeded {
			t.Errorf("operation %d: %+v (%v)", i, v, err)
		}
	}
	if count() != len(waiting) {
		t.Errorf("%d calls, want %d", count(), len(waiting))
	}
	op, err := m.scheduler.Schedule(m.ctx, operation.Request{
		Type: operation.Update, Resource: operation.Resource{Type: "slow", ID: "after"}, Webhooks: []string{"late"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.eventually("called", func() bool { return count() == len(waiting)+1 })
	cb := executor.Callback{Namespace: m.namespace, Name: op.Name, OperationID: op.EffectiveID(), WebhookID: "late"}
	for _, p := range []*process{third, fourth} {
		if code := m.forge(<-p.address, old, cb); code != http.StatusNotFound {
			t.Errorf("the key of before, for what began after: %d", code)
		}
	}
	m.callBack(late[len(late)-1])
	if v, err := m.scheduler.Wait(m.ctx, operation.Resource{Type: "slow", ID: "after"}, op.EffectiveID(),
		nil); err != nil || v.Status != operation.Succeeded {
		t.Errorf("after the move: %+v (%v)", v, err)
	}
	m.stop(third)
	m.stop(fourth)
	if len(m.failed) > 0 {
		t.Errorf("failed callbacks: %q", m.failed)
	}
}

// TestMoveWithoutRights: where the Lease in the place of before may not be held any more, the leader waits until one
// that was held has expired.
func TestMoveWithoutRights(t *testing.T) {
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
	begin := func() *process {
		p := s.controller(program.Kubeconfig(t, s.config, token.Status.Token), "--insecure-no-auth", "--leader-elect",
			"--system-namespace", system)
		<-p.address
		return p
	}
	end := func(p *process) {
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.end(s.ctx, t); err != nil {
			t.Errorf("%v\n%s", err, p.log)
		}
	}
	p := begin()
	ids := s.scheduleMany(1, operation.Request{Webhooks: []string{"first"}})
	s.allSucceeded(ids, "first")
	if s.held(s.namespace) != nil || s.key(s.namespace) != nil || s.held(system) == nil {
		t.Error("key or Lease are in the namespace that is served")
	}
	const waits = "waiting until one that is held has expired"
	if end(p); !strings.Contains(p.log.String(), waits) {
		t.Errorf("it has not waited:\n%s", p.log)
	}
	// Once is enough.
	p = begin()
	resource := operation.Resource{Type: "app", ID: "next"}
	op, err := s.scheduler.Schedule(s.ctx, operation.Request{
		Type: operation.Update, Resource: resource, Webhooks: []string{"first"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.scheduler.Wait(s.ctx, resource, op.EffectiveID(), nil); err != nil || v.Status != operation.Succeeded {
		t.Errorf("%+v (%v)", v, err)
	}
	if end(p); strings.Contains(p.log.String(), waits) {
		t.Errorf("it has waited again:\n%s", p.log)
	}
}
