package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/install"
)

// Hostile values of objects: markup, and characters that reverse the direction of a text.
const (
	markup  = `<script>alert(1)</script><img src=x onerror=alert(2)>"'&{{.}}`
	hostile = markup + "\u202e\u2066evil\u200b"
)

// world is an API server, a controller with its console, and a receiver.
type world struct {
	ctx       context.Context
	t         *testing.T
	config    *rest.Config
	dir       string // of the API server
	calls     *call.Client
	clients   kubernetes.Interface
	namespace string
	scheduler *operations.Scheduler
	base      string // scheme and host of the console
	answers   atomic.Bool
	admin     string // a token with all rights
	stranger  string // a token without rights
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	servers := clustertest.Start(t, cluster.Options{})
	w := &world{ctx: ctx, t: t, config: servers.Config(), dir: servers.Dir()}
	var err error
	if w.calls, err = call.New(call.Options{Config: w.config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.calls.Close)
	if err := install.CRDs(ctx, w.calls); err != nil {
		t.Fatal(err)
	}
	w.clients = kubernetes.NewForConfigOrDie(w.config)
	w.namespace = clustertest.Namespace(t, w.config)
	if w.scheduler, err = operations.NewScheduler(
		operations.Options{Config: w.config, Calls: w.calls, Namespace: w.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.scheduler.Close)
	receiver := httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(receiver.Close)
	for name, path := range map[string]string{"ok": "/ok", "refuses": "/refuses", "slow": "/slow", "later": "/later"} {
		w.webhook(name, receiver.URL+path)
	}
	w.admin, w.stranger = w.account("admin", "cluster-admin", time.Hour), w.account("stranger", "", time.Hour)
	return w
}

// receive answers webhooks. One refuses with a text of its own, and one fails until the test releases it.
func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch {
	case r.URL.Path == "/refuses":
		rw.Header().Set("Content-Type", "text/plain")
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(rw, hostile+strings.Repeat(" very long", 1000))
	case r.URL.Path == "/slow" || r.URL.Path == "/later" && !w.answers.Load():
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (w *world) webhook(name, url string) {
	w.t.Helper()
	hook := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	hook.Spec.Request.URL = url
	hook.Spec.Retry.InitialInterval = metav1.Duration{Duration: 200 * time.Millisecond}
	hook.Spec.Retry.MaxInterval = metav1.Duration{Duration: 500 * time.Millisecond}
	if name == "later" { // it is retried until the test releases it
		hook.Spec.Retry.MaxAttempts, hook.Spec.Breaker.Failures = 1000, 1000
	}
	hook.Default()
	if _, err := call.Do(w.ctx, w.calls, call.Request{
		Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook,
		Namespace: w.namespace, Name: name, Object: hook,
	}, call.Policy{}); err != nil {
		w.t.Fatal(err)
	}
}

// account creates a service account with a cluster role, if any, and returns a token of it.
func (w *world) account(name, role string, life time.Duration) string {
	w.t.Helper()
	accounts := w.clients.CoreV1().ServiceAccounts(w.namespace)
	if _, err := accounts.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if role != "" {
		if _, err := w.clients.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "console-e2e-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: name}},
		}, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	seconds := int64(life.Seconds())
	token, err := accounts.CreateToken(w.ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: []string{"fairlead"}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return token.Status.Token
}

// controller starts fairlead controller as a process. It returns the scheme and host of its console, and a function
// that kills it.
func (w *world) controller(args ...string) (base string, kill func()) {
	t := w.t
	t.Helper()
	program, kubeconfig := fairleadProgram(t), filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: w.config.Host, CertificateAuthorityData: w.config.CAData, CertificateAuthority: w.config.CAFile},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: w.config.CertData, ClientKeyData: w.config.KeyData, ClientCertificate: w.config.CertFile,
			ClientKey: w.config.KeyFile, Token: w.config.BearerToken,
		}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(w.ctx, program, append([]string{
		"controller", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0",
		"--audience", "fairlead", "--allow-target", "127.0.0.1", "--system-namespace", w.namespace,
	}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	address, ended := make(chan string, 1), make(chan struct{})
	var said strings.Builder // written by the reader below, until it has ended
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
			if _, at, ok := strings.Cut(lines.Text(), "HTTP API is served\" scheme=http address="); ok {
				address <- at
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("the controller said:\n%s", said.String())
		}
	})
	select {
	case at := <-address:
		base = "http://" + at
	case <-ended:
		t.Fatal("the controller has ended")
	case <-w.ctx.Done():
		t.Fatal("the controller does not begin")
	}
	return base, func() { _ = cmd.Process.Kill(); <-ended }
}

// schedule schedules an operation, and waits until it is in a phase.
func (w *world) schedule(r operations.Request, phase v1alpha1.Phase) *v1alpha1.Operation {
	w.t.Helper()
	r.Type = v1alpha1.OperationCreate
	if _, err := w.scheduler.Schedule(w.ctx, r); err != nil {
		w.t.Fatal(err)
	}
	return w.phase(r.Resource.ID, phase)
}

// phase waits until an operation of an app is in a phase.
func (w *world) phase(app string, phase v1alpha1.Phase) *v1alpha1.Operation {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		op, err := w.scheduler.Get(w.ctx, operations.Resource{Type: "app", ID: app})
		if err == nil && op.Status.Phase == phase {
			return op
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%s never %s", app, phase)
		}
	}
}

func path(op *v1alpha1.Operation) string {
	return "/console/operations/" + op.Namespace + "/" + op.Name
}
