package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyOfProcesses asks controllers that cannot advance an operation. One does not lead, one does not serve its
// namespace, and the leader of one is stopped.
func TestWhyOfProcesses(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("fine", "/fine", nil)
	token := s.reader("sees", "operations", "webhooks")
	leader := s.controller(s.kubeconfig, "--leader-elect")
	first := patient{s, <-leader.address, token}
	s.asks("done", operations.Request{Webhooks: []string{"fine"}})
	first.first("operation/app/done", why.Ended)
	standby := patient{s, <-s.controller(s.kubeconfig, "--leader-elect").address, token}
	s.asks("missing", operations.Request{Webhooks: []string{"nowhere"}})
	s.eventually("the standby names the leader and the cause from the object", func() bool {
		a := standby.itself("missing")
		return len(a.Causes) > 1 && a.Causes[0].Type == why.NotLeading && a.Causes[0].Evidence["leader"] != "" &&
			strings.HasPrefix(a.Causes[0].Evidence["lease"], s.namespace) && a.Causes[1].Type == why.WebhookMissing &&
			a.Causes[0].Evidence["address"] == "http://"+first.address
	})
	standby.first("operation/app/missing", why.WebhookMissing) // the leader was asked
	page := standby.visit(standby.of("missing", "").page)
	if a := pageAnswer(page); !strings.Contains(a.first, "NotLeading") ||
		!strings.Contains(a.later, "WebhookMissing") ||
		!strings.Contains(page, `href="http://`+first.address+`/console/why?`) {
		t.Errorf("the page of the standby has no link to the leader: %s", plainText(page))
	}
	standby.first("operation/app/done", why.Ended)

	other := s.in(clustertest.Namespace(t, s.config))
	other.asks("far", operations.Request{Webhooks: []string{"nowhere"}})
	clients := kubernetes.NewForConfigOrDie(s.config)
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"fairlead.io"}, Resources: []string{"operations"},
		Verbs: []string{"get"},
	}}
	_, err := clients.RbacV1().Roles(other.namespace).Create(s.ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "sees"}, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = clients.RbacV1().RoleBindings(other.namespace).Create(s.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "sees"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sees"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: "sees"}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.review(true, "get operations in another namespace", authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + s.namespace + ":sees",
		ResourceAttributes: reviewed(other.namespace, "get", "fairlead.io", "operations"),
	})
	away := patient{other, first.address, token}
	if a := away.first("operation/app/far", why.NotSelected, "namespaces=1"); !a.Stuck || a.Causes[0].Advice == "" {
		t.Errorf("a controller that does not serve the namespace answers %+v", a)
	}

	if err := leader.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.eventually("the new leader answers", func() bool {
		a := standby.itself("missing")
		return a.Stuck && len(a.Causes) > 0 && a.Causes[0].Type == why.WebhookMissing
	})
	if err := leader.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// itself returns the answer of a program about an operation, without asking the holder.
func (p patient) itself(id string) (a why.Answer) {
	p.t.Helper()
	of := url.Values{
		"kind": {v1alpha1.KindOperation}, "namespace": {p.namespace}, "name": {v1alpha1.OperationName("app", id)},
	}
	q, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://"+p.address+"/api/why?"+of.Encode(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		err = json.NewDecoder(answer.Body).Decode(&a)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// TestWhyWithoutServer asks a controller whose API server does not answer.
func TestWhyWithoutServer(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	hour := metav1.Duration{Duration: time.Hour}
	s.webhook("broken", "/broken", func(w *v1alpha1.WebhookSpec) {
		w.Retry.InitialInterval, w.Retry.MaxInterval = hour, hour
	})
	p := patient{s, <-s.controller(s.kubeconfig, "--insecure-no-auth").address, ""}
	s.asks("broken", operations.Request{Webhooks: []string{"broken"}})
	p.first("operation/app/broken", why.BackOff, "status=500")
	if err := c.PauseAPIServer(s.ctx); err != nil {
		t.Fatal(err)
	}
	a := p.first("operation/app/broken", why.SourceStale)
	if len(a.Causes) < 2 || !strings.Contains(a.Causes[0].Message, "does not answer") {
		t.Errorf("%+v", a)
	}
	if err := c.ResumeAPIServer(context.WithoutCancel(s.ctx)); err != nil {
		t.Fatal(err)
	}
	p.first("operation/app/broken", why.BackOff, "status=500")
}

// TestWhyOfRefusedStatus: a foreign admission policy refuses the status that the controller writes.
func TestWhyOfRefusedStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.webhook("fine", "/fine", nil)
	clients := kubernetes.NewForConfigOrDie(s.config)
	s.refuses(clients, "operations/status", "no changes on Fridays")
	p := patient{s, <-s.controller(s.kubeconfig).address, s.reader("sees", "operations", "webhooks")}
	mute := ""
	s.eventually("refused", func() bool { // the API server applies the policy after some time
		if mute == "" || s.over(mute) {
			mute = fmt.Sprint("mute", time.Now().UnixNano())
			s.asks(mute, operations.Request{Webhooks: []string{"fine"}})
		}
		a, code := p.why("operation/app/" + mute)
		return code == 0 && len(a.Causes) > 0 && a.Causes[0].Type == why.Forbidden
	})
	a := p.first("operation/app/"+mute, why.Forbidden, "refusedBy=ValidatingAdmissionPolicy",
		"error=no changes on Fridays")
	if c := a.Causes[0]; c.Since.IsZero() || !strings.Contains(c.Advice, "policy") {
		t.Errorf("%+v", a)
	}
}

// over reports whether an operation has ended.
func (s *site) over(id string) bool {
	op, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: id})
	return err == nil && op.Terminal()
}

// refuses makes the API server refuse updates of a resource in the namespace.
func (s *site) refuses(clients kubernetes.Interface, resource, words string) {
	s.t.Helper()
	api, name, fail := clients.AdmissionregistrationV1(), "no-"+s.namespace, admissionv1.Fail
	_, err := api.ValidatingAdmissionPolicies().Create(s.ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{"fairlead.io"}, APIVersions: []string{"*"}, Resources: []string{resource},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: words}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = api.ValidatingAdmissionPolicyBindings().Create(s.ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace},
				}},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}) // the test is over
		_ = api.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})       // the same
	})
}

// TestWhyOfPausedReplica pauses one of two replicas. As long as that one holds the object, the other one names it, and
// says that it does not answer. Then the other one holds the object, and gives its causes.
func TestWhyOfPausedReplica(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	token := s.reader("sees", "operations", "webhooks")
	replicas := map[string]*process{}
	for range 2 {
		p := s.controller(s.kubeconfig, "--shards")
		replicas[<-p.address] = p
	}
	s.asks("waits", operations.Request{Webhooks: []string{"nowhere"}})
	var holder string // holds the slot, so that the other one names it
	ask := func(at string) (a why.Answer, said string) {
		code, out, errs := fairlead(t, "why", "operation/app/waits", "-n", s.namespace, "-o", "json", "--url",
			"http://"+at, "--token", token)
		if code == 0 {
			if err := json.Unmarshal([]byte(out), &a); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		return a, errs
	}
	held := func(report *group.Report) (at string) {
		for _, m := range report.Members {
			for address, p := range replicas {
				if slices.Contains(m.Slots, (shard.Layout{}).SlotOf(s.namespace, "")) &&
					strings.HasSuffix(m.Name, fmt.Sprint("-", p.Process.Pid)) {
					at = address
				}
			}
		}
		return at
	}
	s.eventually("shared", func() bool {
		report, err := group.Read(s.ctx, s.config, s.namespace, groupDefault)
		if err != nil || len(report.Members) != 2 || len(report.Moving) > 0 {
			return false
		}
		holder = held(report)
		return holder != ""
	})
	other := ""
	for at := range replicas {
		if at != holder {
			other = at
		}
	}
	s.eventually("the holder answers", func() bool {
		a, said := ask(other)
		return said == "" && len(a.Causes) > 0 && a.Causes[0].Type == why.WebhookMissing
	})
	paused := replicas[holder]
	if err := paused.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = paused.Process.Signal(syscall.SIGCONT) }()
	a, said := ask(other)
	report, err := group.Read(s.ctx, s.config, s.namespace, groupDefault)
	if err != nil {
		t.Fatal(err)
	}
	if held(report) == holder && (len(a.Causes) == 0 || a.Causes[0].Type != why.HeldBy ||
		a.Causes[0].Evidence["member"] == "" || !strings.Contains(said, "cannot ask the replica")) {
		t.Errorf("while it is paused, and its Lease has not expired: %+v, %s", a, said)
	}
	s.eventually("the new holder answers", func() bool {
		a, said := ask(other)
		return said == "" && len(a.Causes) > 0 && a.Causes[0].Type == why.WebhookMissing
	})
}
