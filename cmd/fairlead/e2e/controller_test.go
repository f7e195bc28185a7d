package e2e_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestKilledController kills the controller at random moments over a hundred running operations.
func TestKilledController(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("first", "/slow", nil)
	s.webhook("second", "/slow", nil)
	ids := s.scheduleMany(100, operations.Request{Webhooks: []string{"first", "second"}})
	for range 5 {
		p := s.controller(s.kubeconfig, "--insecure-no-auth")
		select {
		case <-p.address: // it works from here on
		case err := <-p.ended:
			t.Fatalf("%v: %s", err, p.log)
		}
		timer := time.NewTimer(time.Duration(100+rand.IntN(700)) * time.Millisecond)
		<-timer.C // the random moment
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.end(s.ctx, t) // killed
	}
	last := s.controller(s.kubeconfig, "--insecure-no-auth")
	s.allSucceeded(ids, "first", "second")
	repeated := 0
	for _, n := range s.effects {
		repeated += n - 1
	}
	t.Logf("%d calls were repeated, with the same keys", repeated)
	if err := last.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := last.end(s.ctx, t); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, last.log)
	}
}

// TestPausedLeader pauses the leader of two replicas. The other one takes over, and the first one notices that and
// ends.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("first", "/slow", nil)
	replicas := map[int]*process{}
	for range 2 {
		p := s.controller(s.kubeconfig, "--insecure-no-auth", "--leader-elect")
		replicas[p.Process.Pid] = p
		<-p.address
	}
	warm := s.scheduleMany(1, operations.Request{Webhooks: []string{"first"}})
	s.allSucceeded(warm, "first")
	leader := s.leader(replicas)
	if err := leader.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	clear(s.effects)
	s.mu.Unlock()
	ids := s.scheduleMany(20, operations.Request{Webhooks: []string{"first"}})
	s.allSucceeded(ids, "first")
	if err := leader.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := leader.end(s.ctx, t); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(leader.log.String(), "lost the Lease") {
		t.Errorf("the deposed leader: %v\n%s", err, leader.log)
	}
	s.allSucceeded(ids, "first") // with neither repeated nor changed calls
}

// TestDisrupted restarts the API server and pauses etcd under running operations.
func TestDisrupted(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	s.webhook("first", "/slow", nil)
	s.webhook("second", "/slow", nil)
	p := s.controller(s.kubeconfig, "--insecure-no-auth")
	<-p.address
	ids := s.scheduleMany(30, operations.Request{Webhooks: []string{"first", "second"}})
	if err := c.RestartAPIServer(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.PauseEtcd(s.ctx); err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(2 * time.Second)
	<-timer.C
	if err := c.ResumeEtcd(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.allSucceeded(ids, "first", "second")
}

// TestLeastPrivilege runs a controller with exactly the rights of deploy/, and uses each of them.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	clients := kubernetes.NewForConfigOrDie(s.config)
	s.deploy("rbac.yaml")
	token, err := clients.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.ctx, "fairlead-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().ServiceAccounts(s.namespace).Create(s.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "caller", Annotations: map[string]string{v1alpha1.AnnotationWebhookAudiences: "crm"},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Secrets(s.namespace).Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "login",
			Labels: map[string]string{v1alpha1.LabelWebhookCredentials: "true"},
		},
		StringData: map[string]string{"token": "t-o-k-e-n"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.webhook("bearer", "/", func(w *v1alpha1.WebhookSpec) {
		w.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	})
	s.webhook("account", "/", func(w *v1alpha1.WebhookSpec) {
		w.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "caller",
		}}
	})
	p := s.controller(program.Kubeconfig(t, s.config, token.Status.Token), "--leader-elect")
	address := <-p.address
	ids := s.scheduleMany(1,
		operations.Request{Webhooks: []string{"bearer", "account"}, Compensate: []string{"bearer"}})
	s.allSucceeded(ids, "bearer", "account")

	// The HTTP API needs rights, too: here the controller itself is the caller.
	ask := func(method, path, body, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(s.ctx, method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(answer)
	}
	body := `{"operationType":"Delete","resourceType":"app","resourceID":"ttl","ttlAfterFinished":"0s"}`
	if code, answer := ask("POST", "/operations", body, token.Status.Token); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, answer)
	}
	if code, _ := ask("GET", "/debug/flows", "", "forged"); code != http.StatusUnauthorized {
		t.Errorf("flows are shown without the right: %d", code)
	}
	if code, answer := ask("GET", "/debug/flows", "", token.Status.Token); code != http.StatusOK {
		t.Errorf("flows are not shown with the right to list operations: %d %s", code, answer)
	}
	if code, answer := ask("GET", "/debug/", "", token.Status.Token); !strings.Contains(answer, "/debug/flows\n") {
		t.Errorf("the index of the debug pages lacks the flows: %d %s", code, answer)
	}
	_, page := ask("GET", "/metrics", "", "")
	for _, name := range []string{
		"fairlead_operations_started_total{category=\"\",type=",
		"fairlead_operations_finished_total{category=\"\",phase=\"Success\"",
		"fairlead_operation_duration_seconds_count",
		"fairlead_operations_in_progress", "fairlead_operations_near_timeout",
		"fairlead_webhook_tries_total{purpose=\"main\",verdict=\"Succeeded\"}",
		"fairlead_webhook_calls_queued", "fairlead_call_requests_total{",
	} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	s.eventually("deleted after its time to live", func() bool {
		_, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "ttl"})
		return errors.Is(err, operations.ErrNotFound)
	})
	s.eventually("events written", func() bool {
		events, err := clients.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{})
		return err == nil && len(events.Items) >= 2
	})
	s.eventually("status of the webhook written", func() bool {
		op, err := call.Do(s.ctx, s.calls, call.Request{
			Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource, Kind: "Webhook", Namespace: s.namespace,
			Name: "bearer",
		}, call.Policy{})
		w := &v1alpha1.Webhook{}
		return err == nil && op.Into(w) == nil && w.Status.ObservedGeneration > 0
	})
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(s.ctx, t); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if log := p.log.String(); strings.Contains(log, "orbidden") || strings.Contains(log, "--deny-target") ||
		strings.Contains(log, "t-o-k-e-n") {
		t.Errorf("a right is missing, or a secret is in the log:\n%s", log)
	}
}
