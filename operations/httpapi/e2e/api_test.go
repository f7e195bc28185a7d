package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/operations/install"
)

// api is the HTTP API of a namespace of its own. No executor runs.
type api struct {
	t                *testing.T
	ctx              context.Context
	namespace, other string
	calls            *call.Client
	tokens           map[string]string // by user: "all" has each right, "reader" may read, "nobody" has none
	clients          *kubernetes.Clientset
	handler          http.Handler
}

func setup(t *testing.T, audiences []string, change func(*httpapi.Options)) *api {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	config := env.Config(t)
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	a := &api{
		t: t, ctx: ctx, namespace: env.Namespace(t), other: env.Namespace(t), calls: calls,
		tokens: map[string]string{"": "", "forged": "abc.def.ghi"}, clients: kubernetes.NewForConfigOrDie(config),
	}
	for user, verbs := range map[string][]string{
		"all": {"get", "list", "create", "update"}, "reader": {"get", "list"}, "nobody": nil,
	} {
		a.user(user, verbs)
	}
	scheduler, err := operations.NewScheduler(operations.Options{Config: config, Calls: calls, Namespace: a.namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	o := httpapi.Options{
		Scheduler: scheduler, Authorizer: httpapi.NewKubernetes(calls, audiences...),
		Operations: operationbed.Follow(ctx, t, config, v1alpha1.OperationsResource, v1alpha1.KindOperation, a.namespace),
	}
	if change != nil {
		change(&o)
	}
	if a.handler, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	<-o.Operations.Synced()
	return a
}

// send sends a request with a token, unless that is empty.
func (a *api) send(to http.Handler, token, method, path, body string) *httptest.ResponseRecorder {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.ctx, method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	return w
}

// do sends a request of a user.
func (a *api) do(user, method, path, body string) *httptest.ResponseRecorder {
	a.t.Helper()
	w := a.send(a.handler, a.tokens[user], method, path, body)
	if w.Code >= 400 {
		var p httpapi.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Title == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			a.t.Errorf("%s %s: %d is not a problem document: %v %s", method, path, w.Code, w.Header(), w.Body)
		}
	}
	return w
}

// user creates a service account with rights on operations, in the served namespace and in another one. It returns when
// the API server applies the rights.
func (a *api) user(name string, verbs []string) {
	a.t.Helper()
	if _, err := a.clients.CoreV1().ServiceAccounts(a.namespace).Create(a.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	if len(verbs) > 0 {
		var rights []runtime.Object
		for _, ns := range []string{a.namespace, a.other} {
			meta := metav1.ObjectMeta{Namespace: ns, Name: name}
			rights = append(rights, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"fairlead.io"}, Resources: []string{"operations"}, Verbs: verbs},
			}}, &rbacv1.RoleBinding{
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: name}},
			})
		}
		env.Limited(a.t, a.account(name), rights...)
	}
	token, err := a.clients.CoreV1().ServiceAccounts(a.namespace).CreateToken(a.ctx, name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.tokens[name] = token.Status.Token
}

// account returns the name of a service account as a user.
func (a *api) account(name string) string { return "system:serviceaccount:" + a.namespace + ":" + name }

// mayDebug creates a user who may only get the paths below /debug/. It returns when the API server applies that right.
func (a *api) mayDebug(name string) {
	a.t.Helper()
	a.user(name, nil)
	meta := metav1.ObjectMeta{Name: a.namespace + "-" + name}
	env.Limited(a.t, a.account(name), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/debug/*"}}},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: name}},
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		review, err := a.clients.AuthorizationV1().SubjectAccessReviews().Create(a.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:                  a.account(name),
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/debug/flows"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
		if review.Status.Allowed {
			return
		}
		<-tick.C // if a.ctx ends, the next request fails
	}
}
