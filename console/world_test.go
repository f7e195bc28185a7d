package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/operation/install"
	"github.com/fairlead-io/fairlead/source"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

// world is a program with operations and a console, on the real control plane.
type world struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	rt        *fairlead.Runtime
	scheduler *operation.Scheduler
	clients   *kubernetes.Clientset
	receiver  *httptest.Server
	server    *httptest.Server
	pages     http.Handler
	tokens    map[string]string
}

func newWorld(t *testing.T, change func(*console.Options)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	cfg := env.Config(t)
	w := &world{t: t, ctx: ctx, namespace: env.Namespace(t), tokens: map[string]string{}}
	w.clients = kubernetes.NewForConfigOrDie(cfg)
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	w.rt = fairlead.New(cfg, fairlead.WithScheme(types))
	if err := install.CRDs(ctx, w.rt.Calls()); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.scheduler, err = operation.NewScheduler(operation.Options{Config: cfg, Namespace: w.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.scheduler.Close)
	here := source.Namespaces(w.namespace)
	ops, err := w.rt.Cache().Acquire(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation), here)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := w.rt.Cache().Acquire(v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook), here)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := w.rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ops.Release(); hooks.Release(); secrets.Release() })
	e, err := executor.New(executor.Options{
		Calls: w.rt.Calls(), Operations: ops.Store, Webhooks: hooks.Store, Secrets: secrets.Store, AnyCredentials: true,
		AllowTargets: []string{"127.0.0.0/8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.rt.Add("executor", e.Run)
	w.rt.Explain(e)
	o := console.Options{Runtime: w.rt, Operations: &console.Operations{
		Operations: ops.Store, Webhooks: hooks.Store, Scheduler: w.scheduler, Executor: e,
		Namespaces: []string{w.namespace},
	}}
	if change != nil {
		change(&o)
	}
	if w.pages, err = console.New(o); err != nil {
		t.Fatal(err)
	}
	w.receiver = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(w.receiver.Close)
	w.server = httptest.NewServer(w.pages)
	running, stop := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.rt.Run(running); err != nil {
			t.Errorf("the runtime ended: %v", err)
		}
	})
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
		stop()
		run.Wait()
	})
	if err := w.rt.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// receive answers as the path says.
func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/fail":
		rw.WriteHeader(http.StatusInternalServerError)
	case "/refuse":
		rw.WriteHeader(http.StatusBadRequest)
	case "/job":
		rw.Header().Set("Location", "/running")
		rw.WriteHeader(http.StatusAccepted)
	case "/running":
		_, _ = io.WriteString(rw, `{"status":"IN_PROGRESS"}`)
	}
}

// webhook makes a Webhook that calls a path of the receiver; jobs are asked for each minute.
func (w *world) webhook(name string) {
	w.t.Helper()
	hook := &v1alpha1.Webhook{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindWebhook},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.WebhookSpec{Request: v1alpha1.WebhookRequest{URL: w.receiver.URL + "/" + name}},
	}
	if name == "job" {
		hook.Spec.Mode, hook.Spec.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Minute}
	}
	if err := w.rt.Client().Apply(w.ctx, hook); err != nil {
		w.t.Fatal(err)
	}
}

// schedule schedules an operation of App/id.
func (w *world) schedule(id string, hooks ...string) *v1alpha1.Operation {
	w.t.Helper()
	op, err := w.scheduler.Schedule(w.ctx, operation.Request{
		Type: v1alpha1.OperationUpdate, Category: "tests", CorrelationID: "c-" + strings.ToValidUTF8(id[:min(len(id), 8)], ""), Resource: operation.Resource{Type: "App", ID: id},
		Webhooks: hooks,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

// path is the page of an operation.
func (w *world) path(op *v1alpha1.Operation) string {
	return "/console/operations/" + op.Namespace + "/" + op.Name
}

// user makes a service account with rules, in the namespace, or everywhere.
func (w *world) user(name string, everywhere bool, rules ...rbacv1.PolicyRule) string {
	w.t.Helper()
	_, err := w.clients.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: name}}
	meta := metav1.ObjectMeta{Name: w.namespace + "-" + name}
	switch {
	case len(rules) == 0:
	case everywhere:
		_, err = w.clients.RbacV1().ClusterRoles().Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err == nil {
			_, err = w.clients.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			}, metav1.CreateOptions{})
		}
	default:
		_, err = w.clients.RbacV1().Roles(w.namespace).Create(w.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err == nil {
			_, err = w.clients.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	token, err := w.clients.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.tokens[name] = token.Status.Token
	return token.Status.Token
}

// rule is a right.
func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

const group = "fairlead.io"

// answer is what was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks as a user with a bearer token; "" has none.
func (w *world) get(user, path string) answer {
	w.t.Helper()
	return w.send(nil, user, http.MethodGet, path, nil)
}

func (w *world) send(browser *http.Client, user, method, path string, form url.Values, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, method, w.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+w.tokens[user])
	}
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if browser == nil {
		browser = w.browser()
	}
	resp, err := browser.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// browser keeps cookies, and follows no redirects.
func (w *world) browser() *http.Client {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// login logs a user in.
func (w *world) login(user string) *http.Client {
	w.t.Helper()
	b := w.browser()
	got := w.send(b, "", http.MethodPost, "/console/login", url.Values{"token": {w.tokens[user]}, "next": {"/console/flows"}})
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/console/flows" {
		w.t.Fatalf("the login is answered by %d %s: %s", got.status, got.header, got.body)
	}
	return b
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// csrf is what the forms of a page send.
func (w *world) csrf(browser *http.Client, path string) string {
	w.t.Helper()
	got := w.send(browser, "", http.MethodGet, path, nil)
	found := csrfField.FindStringSubmatch(got.body)
	if len(found) == 0 {
		w.t.Fatalf("%s has no form: %d %s", path, got.status, got.body)
	}
	return found[1]
}

// eventually waits until a condition holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for tick := time.Tick(20 * time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-w.ctx.Done():
			w.t.Fatalf("it never was so: %s", what)
		}
	}
}

// why asks the API.
func (w *world) why(user, kind, name string) (status int, found whyAnswer) {
	w.t.Helper()
	got := w.get(user, "/api/why?"+url.Values{"kind": {kind}, "namespace": {w.namespace}, "name": {name}}.Encode())
	if err := json.Unmarshal([]byte(got.body), &found); err != nil {
		w.t.Fatalf("%v: %d %s", err, got.status, got.body)
	}
	return got.status, found
}

type whyAnswer struct {
	Kind, Namespace, Name string
	Stuck                 bool
	Causes                []struct{ Type, Message string }
	Detail                string
}

func (a whyAnswer) types() string {
	all := []string{}
	for _, c := range a.Causes {
		all = append(all, c.Type)
	}
	return fmt.Sprint(all)
}
