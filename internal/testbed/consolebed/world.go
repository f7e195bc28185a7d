// Package consolebed is the test bed of package console: a program with operations and a console. It runs on a real
// control plane and on the in-memory API server.
package consolebed

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
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// World is a program with operations and a console. Its cluster serves Operations and Webhooks.
type World struct {
	T         *testing.T
	Ctx       context.Context //nolint:containedctx // of the test
	Namespace string
	Runtime   *fairlead.Runtime
	Scheduler *operations.Scheduler
	Clients   *kubernetes.Clientset
	Receiver  *httptest.Server
	Server    *httptest.Server
	Pages     http.Handler
	Tokens    map[string]string

	operations *store.Store // the store that the console reads
}

// New starts a program that serves one namespace, and stops it when the test ends. change may be nil.
func New(t *testing.T, cfg *rest.Config, namespace string, change func(*console.Options)) *World {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	w := &World{T: t, Ctx: ctx, Namespace: namespace, Tokens: map[string]string{}}
	w.Clients = kubernetes.NewForConfigOrDie(cfg)
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	w.Runtime = fairlead.New(cfg, fairlead.WithScheme(types))
	var err error
	if w.Scheduler, err = operations.NewScheduler(operations.Options{Config: cfg, Namespace: w.Namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Scheduler.Close)
	here := source.Namespaces(w.Namespace)
	ops, err := w.Runtime.Cache().Acquire(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation), here)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := w.Runtime.Cache().Acquire(v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook), here)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := w.Runtime.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ops.Release(); hooks.Release(); secrets.Release() })
	w.operations = ops.Store
	e, err := executor.New(executor.Options{
		Calls: w.Runtime.Calls(), Operations: ops.Store, Webhooks: hooks.Store, Secrets: secrets.Store, AnyCredentials: true,
		AllowTargets: []string{"127.0.0.0/8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Runtime.Add("executor", e.Run)
	w.Runtime.Explain(e)
	o := console.Options{Runtime: w.Runtime, Sections: []console.Section{operationsconsole.Section{
		Operations: ops.Store, Webhooks: hooks.Store, Scheduler: w.Scheduler, Executor: e,
		Namespaces: []string{w.Namespace},
	}}}
	if change != nil {
		change(&o)
	}
	if w.Pages, err = console.New(o); err != nil {
		t.Fatal(err)
	}
	w.Receiver = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(w.Receiver.Close)
	w.Server = httptest.NewServer(w.Pages)
	running, stop := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.Runtime.Run(running); err != nil {
			t.Errorf("the runtime ended: %v", err)
		}
	})
	t.Cleanup(func() {
		w.Server.CloseClientConnections()
		w.Server.Close()
		stop()
		run.Wait()
	})
	if err := w.Runtime.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// receive is the handler of the receiver. The path determines the response.
func (w *World) receive(rw http.ResponseWriter, r *http.Request) {
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

// Webhook creates a Webhook that calls a path of the receiver. It polls a job once a minute.
func (w *World) Webhook(name string) {
	w.T.Helper()
	hook := &v1alpha1.Webhook{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindWebhook},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       v1alpha1.WebhookSpec{Request: v1alpha1.WebhookRequest{URL: w.Receiver.URL + "/" + name}},
	}
	if name == "job" {
		hook.Spec.Mode, hook.Spec.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Minute}
	}
	if err := w.Runtime.Client().Apply(w.Ctx, hook); err != nil {
		w.T.Fatal(err)
	}
}

// Schedule schedules an operation of App/id, and waits until the console shows it.
func (w *World) Schedule(id string, hooks ...string) *v1alpha1.Operation {
	w.T.Helper()
	op, err := w.Scheduler.Schedule(w.Ctx, operations.Request{
		Type: v1alpha1.OperationUpdate, Category: "tests",
		CorrelationID: "c-" + strings.ToValidUTF8(id[:min(len(id), 8)], ""),
		Resource:      operations.Resource{Type: "App", ID: id},
		Webhooks:      hooks,
	})
	if err != nil {
		w.T.Fatal(err)
	}
	if err := w.operations.WaitForNamespace(w.Ctx, op.Namespace, op.ResourceVersion); err != nil {
		w.T.Fatal(err)
	}
	return op
}

// Path returns the path of the page of an operation.
func (w *World) Path(op *v1alpha1.Operation) string {
	return "/console/operations/" + op.Namespace + "/" + op.Name
}

// User creates a service account with rules in the namespace or everywhere, and returns its token. It waits until the
// API server grants the rules, which happens a moment after they are written.
func (w *World) User(name string, everywhere bool, rules ...rbacv1.PolicyRule) string {
	w.T.Helper()
	_, err := w.Clients.CoreV1().ServiceAccounts(w.Namespace).Create(w.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: name}}
	meta := metav1.ObjectMeta{Name: w.Namespace + "-" + name}
	switch {
	case len(rules) == 0:
	case everywhere:
		_, err = w.Clients.RbacV1().ClusterRoles().Create(w.Ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err == nil {
			_, err = w.Clients.RbacV1().ClusterRoleBindings().Create(w.Ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{
					APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
					Name: meta.Name,
				},
			}, metav1.CreateOptions{})
		}
	default:
		_, err = w.Clients.RbacV1().Roles(w.Namespace).Create(w.Ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err == nil {
			_, err = w.Clients.RbacV1().RoleBindings(w.Namespace).Create(w.Ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{
					APIGroup: rbacv1.GroupName, Kind: "Role",
					Name: meta.Name,
				},
			}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		w.T.Fatal(err)
	}
	for _, rule := range rules {
		w.granted(name, everywhere, rule)
	}
	token, err := w.Clients.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.Ctx, name,
		&authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	w.Tokens[name] = token.Status.Token
	return token.Status.Token
}

// granted waits until a service account may do what a rule allows.
func (w *World) granted(account string, everywhere bool, rule rbacv1.PolicyRule) {
	w.T.Helper()
	for _, verb := range rule.Verbs {
		spec := authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + w.Namespace + ":" + account}
		if len(rule.NonResourceURLs) > 0 {
			path := strings.ReplaceAll(rule.NonResourceURLs[0], "*", "any")
			spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: path, Verb: verb}
		} else {
			spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0],
			}
			if !everywhere {
				spec.ResourceAttributes.Namespace = w.Namespace
			}
		}
		w.Eventually(account+" may "+verb, func() bool {
			review, err := w.Clients.AuthorizationV1().SubjectAccessReviews().Create(w.Ctx,
				&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				w.T.Fatal(err)
			}
			return review.Status.Allowed
		})
	}
}

// Rule returns a rule about resources of a group.
func Rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Group is the API group of operations and webhooks.
const Group = "fairlead.io"

// Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Get requests a page with the token of a user. The user "" has no token.
func (w *World) Get(user, path string) Answer {
	w.T.Helper()
	return w.Send(nil, user, http.MethodGet, path, nil)
}

// Send sends a request with a form and headers, which are pairs of a name and a value. The user "" has no token. A
// nil browser stands for a new one.
func (w *World) Send(browser *http.Client, user, method, path string, form url.Values, headers ...string) Answer {
	w.T.Helper()
	r, err := http.NewRequestWithContext(w.Ctx, method, w.Server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.T.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+w.Tokens[user])
	}
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if browser == nil {
		browser = w.Browser()
	}
	resp, err := browser.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(text)}
}

// Browser returns a client with a cookie jar that follows no redirects.
func (w *World) Browser() *http.Client {
	w.T.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.T.Fatal(err)
	}
	transport := &http.Transport{}
	w.T.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Login returns a browser with a session of a user.
func (w *World) Login(user string) *http.Client {
	w.T.Helper()
	b := w.Browser()
	got := w.Send(b, "", http.MethodPost, "/console/login",
		url.Values{"token": {w.Tokens[user]}, "next": {"/console/flows"}})
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/console/flows" {
		w.T.Fatalf("the login is answered by %d %s: %s", got.Status, got.Header, got.Body)
	}
	return b
}

// csrfField matches the CSRF token in a form.
var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// CSRF returns the CSRF token of the forms on a page.
func (w *World) CSRF(browser *http.Client, path string) string {
	w.T.Helper()
	got := w.Send(browser, "", http.MethodGet, path, nil)
	token, found := FormToken(got.Body)
	if !found {
		w.T.Fatalf("%s has no form: %d %s", path, got.Status, got.Body)
	}
	return token
}

// FormToken returns the CSRF token of the first form in the HTML of a page.
func FormToken(page string) (token string, found bool) {
	if m := csrfField.FindStringSubmatch(page); len(m) > 0 {
		return m[1], true
	}
	return "", false
}

// Eventually waits until holds returns true.
func (w *World) Eventually(what string, holds func() bool) {
	w.T.Helper()
	for tick := time.Tick(20 * time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-w.Ctx.Done():
			w.T.Fatalf("it never was so: %s", what)
		}
	}
}

// Why requests /api/why for an object with the token of a user.
func (w *World) Why(user, kind, name string) (status int, found WhyAnswer) {
	w.T.Helper()
	got := w.Get(user, "/api/why?"+url.Values{"kind": {kind}, "namespace": {w.Namespace}, "name": {name}}.Encode())
	if err := json.Unmarshal([]byte(got.Body), &found); err != nil {
		w.T.Fatalf("%v: %d %s", err, got.Status, got.Body)
	}
	return got.Status, found
}

// WhyAnswer is a response of /api/why.
type WhyAnswer struct {
	Kind, Namespace, Name string
	Stuck                 bool
	Causes                []struct{ Type, Message string }
	Detail                string
}

// Types returns the types of the causes.
func (a WhyAnswer) Types() string {
	all := []string{}
	for _, c := range a.Causes {
		all = append(all, c.Type)
	}
	return fmt.Sprint(all)
}
