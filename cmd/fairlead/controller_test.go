package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/install"
)

// site is a namespace of a real control plane, a receiver, and controllers that run as processes of their own.
type site struct {
	t          *testing.T
	ctx        context.Context
	config     *rest.Config
	calls      *call.Client
	namespace  string
	kubeconfig string
	scheduler  *operation.Scheduler
	receiver   *httptest.Server
	env        []string // of the controllers, beside that of the test

	mu      sync.Mutex
	effects map[string]int // by idempotency key: how often it was asked for
}

func newSite(t *testing.T, config *rest.Config) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	s := &site{
		t: t, ctx: ctx, config: config, calls: calls, namespace: clustertest.Namespace(t, config),
		effects: make(map[string]int),
	}
	s.kubeconfig = writeKubeconfig(t, config, "")
	if s.scheduler, err = operation.NewScheduler(
		operation.Options{Config: config, Calls: calls, Namespace: s.namespace},
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.scheduler.Close)
	s.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.mu.Lock()
		s.effects[r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		if r.URL.Path == "/slow" { // so that there is always a call in flight to be killed in
			select {
			case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.receiver.Close)
	return s
}

// writeKubeconfig writes a kubeconfig for the same server, with a token instead of the administrator's certificate if
// there is one.
func writeKubeconfig(t *testing.T, config *rest.Config, token string) string {
	t.Helper()
	user := &clientcmdapi.AuthInfo{Token: token}
	if token == "" {
		user = &clientcmdapi.AuthInfo{
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
			ClientCertificate: config.CertFile, ClientKey: config.KeyFile, Token: config.BearerToken,
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *site) webhook(name, path string, change func(*v1alpha1.WebhookSpec)) {
	s.t.Helper()
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	w.Spec.Request.URL = s.receiver.URL + path
	w.Spec.Retry.InitialInterval = metav1.Duration{Duration: 50 * time.Millisecond}
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	if _, err := call.Do(s.ctx, s.calls, call.Request{
		Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook,
		Namespace: s.namespace, Name: name, Object: w,
	}, call.Policy{}); err != nil {
		s.t.Fatal(err)
	}
}

// process is a controller that runs.
type process struct {
	*exec.Cmd
	mu      sync.Mutex // of the log, until it has ended
	log     *bytes.Buffer
	address chan string
	ended   chan error
}

// controller starts a controller as a process of its own.
func (s *site) controller(kubeconfig string, args ...string) *process {
	s.t.Helper()
	return s.start(append([]string{"--kubeconfig", kubeconfig, "--namespace", s.namespace}, args...)...)
}

// start starts a controller for what the arguments say.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "fairlead",
		append([]string{"controller", "--listen", "127.0.0.1:0", "--allow-target", "127.0.0.1"}, args...)...)
	cmd.SysProcAttr, cmd.Env = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, append(os.Environ(), s.env...)
	p := &process{Cmd: cmd, log: &bytes.Buffer{}, address: make(chan string, 1), ended: make(chan error, 1)}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			fmt.Fprintln(p.log, lines.Text())
			p.mu.Unlock()
			if _, at, ok := strings.Cut(lines.Text(), "address="); ok {
				p.address <- at
			}
		}
		p.ended <- cmd.Wait()
	}()
	s.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// end waits for the end of a process, after which its log may be read.
func (p *process) end(ctx context.Context, t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-ctx.Done():
		t.Fatal("the controller does not end")
		return nil
	}
}

func (s *site) scheduleMany(n int, r operation.Request) (ids []string) {
	s.t.Helper()
	for i := range n {
		r.Type, r.Resource = operation.Delete, operation.Resource{Type: "app", ID: fmt.Sprint(i)}
		op, err := s.scheduler.Schedule(s.ctx, r)
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, op.EffectiveID())
	}
	return ids
}

// allSucceeded waits for the end of all operations and checks that each had every effect, and nothing else happened.
func (s *site) allSucceeded(ids []string, webhooks ...string) {
	s.t.Helper()
	for i, id := range ids {
		v, err := s.scheduler.Wait(s.ctx, operation.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if v.Status != operation.Succeeded {
			s.t.Errorf("operation %d: %s %s %s", i, v.Status, v.Reason, v.Error)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		for _, name := range webhooks {
			if s.effects[s.namespace+"."+id+"."+name] == 0 {
				s.t.Errorf("webhook %s of operation %s had no effect", name, id)
			}
		}
	}
	if len(s.effects) != len(ids)*len(webhooks) {
		s.t.Errorf("%d effects, want %d", len(s.effects), len(ids)*len(webhooks))
	}
}

// TestKilledController kills the controller at random moments over a hundred running operations.
func TestKilledController(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("first", "/slow", nil)
	s.webhook("second", "/slow", nil)
	ids := s.scheduleMany(100, operation.Request{Webhooks: []string{"first", "second"}})
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

// TestPausedLeader pauses the leader of two replicas; the other one takes over, and the first one finds that out and
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
	warm := s.scheduleMany(1, operation.Request{Webhooks: []string{"first"}})
	s.allSucceeded(warm, "first")
	leader := s.leader(replicas)
	if err := leader.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	clear(s.effects)
	s.mu.Unlock()
	ids := s.scheduleMany(20, operation.Request{Webhooks: []string{"first"}})
	s.allSucceeded(ids, "first")
	if err := leader.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := leader.end(s.ctx, t); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(leader.log.String(), "lost the Lease") {
		t.Errorf("the deposed leader: %v\n%s", err, leader.log)
	}
	s.allSucceeded(ids, "first") // nothing was repeated or changed
}

// lease returns the Lease as it is.
func (s *site) lease() *coordinationv1.Lease {
	s.t.Helper()
	lease, err := kubernetes.NewForConfigOrDie(s.config).CoordinationV1().Leases(s.namespace).Get(s.ctx, leaseName,
		metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		s.t.Fatalf("no leader: %v", err)
	}
	return lease
}

// leader finds out which process holds the Lease, by the process id in the identity.
func (s *site) leader(replicas map[int]*process) *process {
	s.t.Helper()
	lease := s.lease()
	var pid int
	host, rest, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	if _, err := fmt.Sscanf(rest, "%d_", &pid); err != nil || replicas[pid] == nil {
		s.t.Fatalf("identity %s of %s names no process: %v", *lease.Spec.HolderIdentity, host, err)
	}
	return replicas[pid]
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
	ids := s.scheduleMany(30, operation.Request{Webhooks: []string{"first", "second"}})
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

// TestLeastPrivilege runs a controller with exactly the rights of deploy/, through everything that needs one.
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
		ObjectMeta: metav1.ObjectMeta{Name: "login", Labels: map[string]string{v1alpha1.LabelWebhookCredentials: "true"}},
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
	p := s.controller(writeKubeconfig(t, s.config, token.Status.Token), "--leader-elect")
	address := <-p.address
	ids := s.scheduleMany(1, operation.Request{Webhooks: []string{"bearer", "account"}, Compensate: []string{"bearer"}})
	s.allSucceeded(ids, "bearer", "account")

	// The HTTP API needs rights too: this caller is the controller itself.
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
		t.Errorf("flows are shown to anybody: %d", code)
	}
	if code, answer := ask("GET", "/debug/flows", "", token.Status.Token); code != http.StatusOK {
		t.Errorf("flows are not shown to who may list operations: %d %s", code, answer)
	}
	_, page := ask("GET", "/metrics", "", "")
	for _, name := range []string{
		"fairlead_operations_started_total{category=\"\",type=",
		"fairlead_operations_finished_total{category=\"\",phase=\"Success\"", "fairlead_operation_duration_seconds_count",
		"fairlead_operations_in_progress", "fairlead_operations_near_timeout",
		"fairlead_webhook_tries_total{purpose=\"main\",verdict=\"Succeeded\"}",
		"fairlead_webhook_calls_queued", "fairlead_call_requests_total{",
	} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	s.eventually("deleted after its time to live", func() bool {
		_, err := s.scheduler.Get(s.ctx, operation.Resource{Type: "app", ID: "ttl"})
		return errors.Is(err, operation.ErrNotFound)
	})
	s.eventually("events written", func() bool {
		events, err := clients.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{})
		return err == nil && len(events.Items) >= 2
	})
	s.eventually("status of the webhook written", func() bool {
		op, err := call.Do(s.ctx, s.calls, call.Request{
			Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource, Kind: "Webhook", Namespace: s.namespace, Name: "bearer",
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

// deploy applies a manifest of deploy/ with the namespace of the test instead of the usual one, and names of its own
// for what has none.
func (s *site) deploy(file string) {
	s.t.Helper()
	s.deployIn(s.namespace, file)
}

func (s *site) deployIn(namespace, file string) {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
	if err != nil {
		s.t.Fatal(err)
	}
	objects := dynamic.NewForConfigOrDie(s.config)
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		obj := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(doc, &obj.Object)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{
			Group: obj.GroupVersionKind().Group, Version: "v1",
			Resource: strings.ToLower(obj.GetKind()) + "s",
		}
		obj.SetNamespace("")
		var api dynamic.ResourceInterface = objects.Resource(gvr).Namespace(namespace)
		if strings.HasPrefix(obj.GetKind(), "ClusterRole") {
			api = objects.Resource(gvr)
			obj.SetName(obj.GetName() + "-" + namespace)
			if name, ok, _ := unstructured.NestedString(obj.Object, "roleRef", "name"); ok {
				_ = unstructured.SetNestedField(obj.Object, name+"-"+namespace, "roleRef", "name")
			}
			s.t.Cleanup(func() {
				_ = api.Delete(context.WithoutCancel(s.ctx), obj.GetName(), metav1.DeleteOptions{}) // the control plane goes too
			})
		}
		if subjects, ok, _ := unstructured.NestedSlice(obj.Object, "subjects"); ok {
			subjects[0].(map[string]any)["namespace"] = namespace
			_ = unstructured.SetNestedSlice(obj.Object, subjects, "subjects")
		}
		if _, err := api.Create(s.ctx, obj, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("never %s", what)
		}
	}
}
