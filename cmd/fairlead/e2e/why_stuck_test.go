package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

// patient asks a controller with the command why, as a user with the right to get some resources.
type patient struct {
	*site
	address, token string
}

// reader creates a service account that may get resources of Fairlead, and returns a token of it.
func (s *site) reader(name string, resources ...string) string {
	s.t.Helper()
	clients := kubernetes.NewForConfigOrDie(s.config)
	token := s.tokenFor(name, "fairlead")
	role, err := clients.RbacV1().Roles(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	if err == nil {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{"fairlead.io"}, Resources: resources, Verbs: []string{"get"},
		})
		_, err = clients.RbacV1().Roles(s.namespace).Update(s.ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, resource := range resources {
		s.authorized(true, s.namespace, name, "get", "fairlead.io", resource)
	}
	return token
}

// why runs the command, and returns the answer and the exit code.
func (p patient) why(object string) (a why.Answer, code int) {
	p.t.Helper()
	code, out, errs := fairlead(p.t, "why", object, "-n", p.namespace, "-o", "json", "--url", "http://"+p.address,
		"--token", p.token)
	if code != 0 {
		if !strings.Contains(errs, noSuchObject) {
			p.t.Fatalf("%s: exit code %d: %s", object, code, errs)
		}
		return a, code
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil || errs != "" {
		p.t.Fatalf("%s: %v: %s%s", object, err, out, errs)
	}
	return a, code
}

// first waits until the first cause is of a type and has the evidence "key=value", where value may be a part.
func (p patient) first(object string, want why.Type, evidence ...string) (a why.Answer) {
	p.t.Helper()
	answered := func() bool {
		var code int
		if a, code = p.why(object); code != 0 || len(a.Causes) == 0 || a.Causes[0].Type != want {
			return false
		}
		return !slices.ContainsFunc(evidence, func(pair string) bool {
			key, value, _ := strings.Cut(pair, "=")
			return !strings.Contains(a.Causes[0].Evidence[key], value)
		})
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !answered() {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.t.Fatalf("%s: the first cause is never %s with %v, but %+v", object, want, evidence, a)
		}
	}
	return a
}

func (s *site) asks(id string, r operations.Request) *v1alpha1.Operation {
	s.t.Helper()
	r.Type, r.Resource = operations.Update, operations.Resource{Type: "app", ID: id}
	op, err := s.scheduler.Schedule(s.ctx, r)
	if err != nil {
		s.t.Fatal(err)
	}
	return op
}

func (s *site) finalizers(id, list string) {
	s.t.Helper()
	if _, err := call.Do(s.ctx, s.calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Namespace: s.namespace,
		Name:      v1alpha1.OperationName("app", id), PatchType: types.MergePatchType,
		Body: fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, list),
	}, call.Policy{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) deletes(id string) {
	s.t.Helper()
	if _, err := call.Do(s.ctx, s.calls, call.Request{
		Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Namespace: s.namespace,
		Name:      v1alpha1.OperationName("app", id),
	}, call.Policy{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestWhyOfStuckOperations creates operations that are stuck, each in its own way, and runs the command why for each.
func TestWhyOfStuckOperations(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	release := make(chan struct{})
	defer close(release)
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hold":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "/later":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/wrong":
			w.WriteHeader(http.StatusBadRequest)
		case "/poll":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case "/back":
			w.WriteHeader(http.StatusAccepted)
		}
	})
	hour := metav1.Duration{Duration: 300 * time.Hour}
	rarely := func(w *v1alpha1.WebhookSpec) { w.Retry.InitialInterval, w.Retry.MaxInterval = hour, hour }
	s.webhook("hold", "/hold", nil)
	s.webhook("fine", "/fine", nil)
	s.webhook("wrong", "/wrong", nil)
	s.webhook("later", "/later", nil)
	s.webhook("broken", "/broken", rarely)
	s.webhook("dead", "/broken", func(w *v1alpha1.WebhookSpec) {
		w.Breaker.Failures, w.Breaker.OpenFor, w.Retry.MaxAttempts = 1, hour, 1
	})
	s.webhook("one", "/hold", func(w *v1alpha1.WebhookSpec) { w.Concurrency = 1 })
	s.webhook("poll", "/poll", func(w *v1alpha1.WebhookSpec) { w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, hour })
	s.webhook("back", "/back", func(w *v1alpha1.WebhookSpec) { w.Mode = v1alpha1.ModeAsyncCallback })
	s.webhook("refused", "/", func(w *v1alpha1.WebhookSpec) { w.Request.URL = "http://169.254.169.254/latest" })
	s.webhook("secret", "/fine", withSecret)
	s.webhook("account", "/fine", withAccount)
	if _, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().Secrets(s.namespace).Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login"}, StringData: map[string]string{"token": "t-o-k-e-n"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := s.controller(s.kubeconfig)
	p := patient{s, <-c.address, s.reader("sees", "operations", "webhooks")}

	lock := []operations.Resource{{Type: "db", ID: "7"}}
	s.asks("holder", operations.Request{Webhooks: []string{"hold"}, Lock: lock})
	if a := p.first("operation/app/holder", why.Parked, "webhook=hold"); a.Stuck {
		t.Errorf("an operation with a call under way is stuck: %+v", a)
	}
	s.asks("behind", operations.Request{Webhooks: []string{"fine"}, Lock: lock})
	s.asks("missing", operations.Request{Webhooks: []string{"nowhere"}})
	s.asks("full", operations.Request{Webhooks: []string{"one"}})
	p.first("operation/app/full", why.Parked, "webhook=one")
	for _, hook := range []string{
		"secret", "account", "refused", "later", "broken", "one", "poll", "back", "fine",
		"wrong",
	} {
		s.asks("of-"+hook, operations.Request{Webhooks: []string{hook}})
	}
	s.asks("late", operations.Request{Webhooks: []string{"nowhere"}, Notify: "broken", Timeout: time.Second})
	s.asks("dead", operations.Request{Webhooks: []string{"dead"}})
	p.first("operation/app/dead", why.Ended, "reason=RetriesExhausted")
	s.asks("of-dead", operations.Request{Webhooks: []string{"dead"}})
	s.asks("kept", operations.Request{Webhooks: []string{"fine"}})
	p.first("op/app/kept", why.Ended)
	s.finalizers("kept", `["example.com/keeper"]`)
	s.deletes("kept")

	s.asks("going", operations.Request{Webhooks: []string{"poll"}, Notify: "broken"})
	p.first("operation/app/going", why.Parked, "waitsFor=poll")
	s.eventually("held by its own finalizer", func() bool {
		op, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "going"})
		return err == nil && slices.Contains(op.Finalizers, v1alpha1.Finalizer)
	})
	s.deletes("going")

	for _, tc := range []struct {
		object   string
		want     why.Type
		evidence []string
		stuck    bool
	}{
		{"operation/app/behind", why.LockHeld, []string{"holder=app/holder", "resource=db/7"}, true},
		{"operation/app/missing", why.WebhookMissing, []string{"webhook=nowhere"}, true},
		{"operation/app/of-secret", why.NotReleased, []string{"webhook=secret"}, true},
		{"operation/app/of-account", why.NotReleased, []string{"webhook=account"}, true},
		{"operation/app/of-refused", why.Ended, []string{"reason=TargetRefused", "error=169.254.169.254"}, false},
		{"operation/app/of-later", why.RetryAfter, []string{"status=503", "attempts=1"}, false},
		{"operation/app/of-broken", why.BackOff, []string{"status=500", "webhook=broken"}, true},
		{"operation/app/of-one", why.RateLimited, []string{"bound=concurrency", "most=1"}, true},
		{"operation/app/of-poll", why.Parked, []string{"waitsFor=poll", "pollURL=/jobs/1"}, false},
		{"operation/app/of-back", why.Parked, []string{"waitsFor=callback"}, false},
		{"operation/app/of-fine", why.Ended, []string{"reason=Succeeded"}, false},
		{"operation/app/of-wrong", why.Ended, []string{"reason=WebhookFailed", "phase=Failed"}, false},
		{"operation/app/of-dead", why.CircuitOpen, []string{"state=Open", "webhook=dead"}, true},
		{"operation/app/late", why.BackOff, []string{"webhook=broken", "purpose=notify"}, true},
		{"operation/app/kept", why.ForeignFinalizer, []string{"finalizer=example.com/keeper"}, true},
		{"operation/app/going", why.BackOff, []string{"purpose=notify", "webhook=broken"}, true},
		{"webhook/dead", why.CircuitOpen, []string{"state=Open"}, true},
		{"webhook/one", why.RateLimited, []string{"waiting=1"}, true},
		{"webhook/secret", why.NotReleased, nil, true},
	} {
		a := p.first(tc.object, tc.want, tc.evidence...)
		if a.Stuck != tc.stuck || a.Causes[0].Type != why.Ended && a.Causes[0].Advice == "" ||
			a.Namespace != s.namespace {
			t.Errorf("%s: %+v", tc.object, a)
		}
	}
	if _, code := p.why("operation/app/nobody"); code != exitFailure {
		t.Errorf("of a missing object: exit code %d", code)
	}
	for token, object := range map[string]string{
		s.reader("blind", "pods"): "operation/app/of-fine", "nonsense": "operation/app/of-fine",
	} {
		if _, code := (patient{s, p.address, token}).why(object); code != exitFailure {
			t.Errorf("without the right: exit code %d", code)
		}
	}
	half := patient{s, p.address, s.reader("half", "operations")}
	if a := half.first("operation/app/missing", why.Hidden); strings.Contains(fmt.Sprint(a), "nowhere") {
		t.Errorf("without the right the answer is %+v", a)
	}
	s.finalizers("kept", "null")
}

// TestWhyOfReplicas asks two replicas that share the operations. The answer names the replica that holds the object,
// and the command asks that one.
func TestWhyOfReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	release := make(chan struct{})
	defer close(release)
	s.receiver.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s.webhook("one", "/", func(w *v1alpha1.WebhookSpec) { w.Concurrency, w.RequestTimeout.Duration = 1, 5*time.Minute })
	token := s.reader("sees", "operations", "webhooks")
	var replicas []patient
	for range 2 {
		replicas = append(replicas, patient{s, <-s.controller(s.kubeconfig, "--shards").address, token})
	}
	balanced(t, []string{"shards", s.namespace + "/fairlead-controller-shards", "--kubeconfig", s.kubeconfig},
		shard.DefaultSlots)
	s.asks("first", operations.Request{Webhooks: []string{"one"}})
	replicas[0].first("operation/app/first", why.Parked, "webhook=one")
	s.asks("next", operations.Request{Webhooks: []string{"one"}})
	for _, p := range replicas {
		s.eventually("one is reported to wait for the other", func() bool {
			waits := 0
			for _, id := range []string{"first", "next"} {
				if a, code := p.why("operation/app/" + id); code == 0 &&
					a.Causes[0].Evidence["bound"] == "concurrency" {
					waits++
				}
			}
			return waits == 1 // which only the memory of one of them has
		})
	}
}

// TestWhyOfMissingRight: a controller that lacks a right names the missing rule.
func TestWhyOfMissingRight(t *testing.T) {
	for resource, tc := range map[string]struct{ webhook, verb, group string }{
		"operations/status":     {"fine", "update", "fairlead.io"},
		"webhooks":              {"fine", "list", "fairlead.io"},
		"secrets":               {"secret", "list", ""},
		"serviceaccounts/token": {"account", "create", ""},
	} {
		t.Run(strings.ReplaceAll(resource, "/", "-"), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, env.Config(t))
			s.webhook("fine", "/fine", nil)
			s.webhook("secret", "/fine", withSecret)
			s.webhook("account", "/fine", withAccount)
			s.deploy("rbac.yaml")
			clients := kubernetes.NewForConfigOrDie(s.config)
			_, err := clients.CoreV1().ServiceAccounts(s.namespace).Create(s.ctx,
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
					Name: "caller", Annotations: map[string]string{v1alpha1.AnnotationWebhookAudiences: "crm"},
				}}, metav1.CreateOptions{})
			var role *rbacv1.ClusterRole
			if err == nil {
				role, err = clients.RbacV1().ClusterRoles().Get(s.ctx, "fairlead-controller-"+s.namespace,
					metav1.GetOptions{})
			}
			if err == nil {
				role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.Resources, resource)
				})
				_, err = clients.RbacV1().ClusterRoles().Update(s.ctx, role, metav1.UpdateOptions{})
			}
			var token *authenticationv1.TokenRequest
			if err == nil {
				token, err = clients.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.ctx, "fairlead-controller",
					&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			s.authorized(false, s.namespace, "fairlead-controller", tc.verb, tc.group, resource)
			c := s.controller(program.Kubeconfig(t, s.config, token.Status.Token))
			p := patient{s, <-c.address, s.reader("sees", "operations", "webhooks")}
			s.asks("mute", operations.Request{Webhooks: []string{tc.webhook}})
			a := p.first("operation/app/mute", why.Forbidden, "resource="+resource, "verb="+tc.verb,
				"user=fairlead-controller",
				fmt.Sprintf("rule={apiGroups: [%q], resources: [%q], verbs: [%q]}", tc.group, resource, tc.verb))
			if !a.Stuck || a.Causes[0].Since.IsZero() {
				t.Errorf("%+v", a)
			}
		})
	}
}

func withSecret(w *v1alpha1.WebhookSpec) {
	w.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
}

func withAccount(w *v1alpha1.WebhookSpec) {
	w.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
		Audience: "crm", ServiceAccountName: "caller",
	}}
}
