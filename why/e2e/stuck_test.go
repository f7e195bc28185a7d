package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// creates runs a program that creates a Secret for each ConfigMap.
func (w *world) creates() *fairlead.Runtime {
	return does(func(ctx context.Context, c *client.Client, m *configMap) error {
		return c.Create(ctx, secret(m.Namespace, m.Name))
	})(w)
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg = w.user()
	w.put("x")
	a := w.expect(w.creates(), "x", why.Forbidden, map[string]string{
		"verb": "create", "resource": "secrets", "namespace": w.ns, "user": "user-of-" + w.ns, "status": "403",
		"attempts": "",
		"rule":     `{apiGroups: [""], resources: ["secrets"], verbs: ["create"]}`,
	})
	c := a.Causes[0]
	if c.Until.IsZero() || c.Since.IsZero() || !strings.Contains(c.Advice, c.Evidence["rule"]) || c.About == nil ||
		c.About.Kind != "Secret" || c.About.Namespace != w.ns {
		t.Errorf("%+v, about %v", c, c.About)
	}
}

// TestForbiddenWatch: the program may not watch, so its cache is empty.
func TestForbiddenWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.cfg
	cfg := w.user()
	w.put("x")
	rt := fairlead.New(cfg)
	reconcile.New(rt, "maps", fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Done,
			nil
	}),
		here(w), reconcile.WithoutEvents(), reconcile.Owns[corev1.Secret](reconcile.From(cache.Namespaces(w.ns))))
	w.run(rt)
	w.expect(rt, "x", why.SourceStale, map[string]string{"resource": "secrets", "reason": "Forbidden", "synced": "false"})
	w.cfg = admin
}

// TestConflictStorm: another client writes before each write of a reconciler. The object is a Secret, since each change
// of a ConfigMap is a new spec, which ends a failure.
func TestConflictStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	secrets := w.kube.CoreV1().Secrets(w.ns)
	if _, err := secrets.Create(t.Context(), secret(w.ns, "shared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other := func(ctx context.Context) error {
		_, err := secrets.Patch(ctx, "shared", types.MergePatchType,
			[]byte(`{"stringData":{"at":"`+time.Now().String()+`"}}`), metav1.PatchOptions{})
		return err
	}
	var rt *fairlead.Runtime
	ready := make(chan struct{})
	rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
		<-ready
		shared := secret(m.Namespace, "shared")
		if err := rt.Client().Live().Get(ctx, client.KeyOf(shared), shared); err != nil {
			return reconcile.Retry(err)
		}
		if err := other(ctx); err != nil {
			return reconcile.Retry(err)
		}
		shared.StringData = map[string]string{"mine": "1"}
		return reconcile.Retry(rt.Client().Update(ctx, shared, client.SameVersion()))
	}))
	close(ready)
	w.expect(rt, "x", why.Conflict, map[string]string{"status": "409", "conflicts": "", "verb": "update", "attempts": ""})
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	begun := time.Now().Truncate(time.Second)
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("the router is off"))
	}), reconcile.WithBackoff(reconcile.Backoff{Base: time.Hour, Cap: time.Hour})) // one attempt within the test
	c := w.expect(rt, "x", why.BackOff, map[string]string{
		"error": "the router is off", "attempts": "1",
		"controller": "maps",
	}).Causes[0]
	// The delay is at least a tenth of the base.
	if wait := c.Until.Sub(c.Since); wait < 5*time.Minute || wait > time.Hour || c.Since.Before(begun) {
		t.Errorf("since %v, until %v", c.Since, c.Until)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Terminal(errors.New("no such size"))
	}))
	c := w.expect(rt, "x", why.BackOff, map[string]string{"error": "no such size", "class": "stopped"}).Causes[0]
	if !c.Until.IsZero() || !strings.Contains(c.Message, "not retried") {
		t.Errorf("%+v", c)
	}
}

func TestOwnCause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Retry(why.Because(errors.New("cannot push"), why.Cause{Type: "NoMoney", Message: "nobody has paid"}))
	}))
	w.expect(rt, "x", "NoMoney", map[string]string{"error": "cannot push", "attempts": ""})
}

func TestAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.After(time.Hour),
			nil
	}))
	if c := w.expect(rt, "x", why.Parked,
		map[string]string{"result": "After"}).Causes[0]; time.Until(c.Until) < 50*time.Minute || !c.Progress {
		t.Errorf("%+v", c)
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	begun := time.Now().Truncate(time.Second)
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) { return reconcile.Done, nil }))
	for _, kind := range []string{"ConfigMap", "configmaps", "cm"} {
		a := w.expectOf(rt, why.Object{Kind: kind, Namespace: w.ns, Name: "x"}, why.Ended, nil)
		if a.Causes[0].Since.Before(begun) || a.Kind != "ConfigMap" {
			t.Errorf("%+v", a)
		}
	}
	if _, err := rt.Why(t.Context(), why.Object{Kind: "cm", Namespace: w.ns, Name: "none"}); !errors.Is(err,
		why.ErrNotFound) {
		t.Errorf("an absent object: %v", err)
	}
}

// fibers returns a program whose objects are fibers.
func (w *world) fibers(fl *flow.Flow[configMap]) *fairlead.Runtime {
	rt := fairlead.New(w.cfg)
	reconcile.Flow(rt, "maps", rt.Engine(), reconcile.Fibers[configMap, configMap]{
		Flow: fl, Changed: func(context.Context, *configMap) bool { return true },
	}, here(w), reconcile.WithoutEvents())
	return w.run(rt)
}

func TestParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.fibers(flow.New("bring", flow.Step("wait", func(_ context.Context, f *flow.Fiber[configMap]) flow.Next {
		c, _ := flow.Use[*client.Client](f)
		return f.Await(client.Condition[corev1.Pod](c, client.Key{Namespace: f.Packet.Namespace, Name: "web"}, "Ready"),
			flow.Timeout(time.Hour))
	})))
	w.expect(rt, "x", why.Parked, map[string]string{"step": "bring/wait", "condition": "Ready", "seen": "there is no Pod"})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	pods := w.kube.CoreV1().Pods(w.ns)
	if _, err := w.kube.CoreV1().ServiceAccounts(w.ns).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "False", Reason: "Crashing", Message: "exit 1"}}
	if _, err := pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := w.expect(rt, "x", why.Parked, map[string]string{"condition": "Ready", "seen": "False, Crashing, exit 1"})
	c := a.Causes[0]
	if c.About == nil || *c.About != (why.Object{Kind: "Pod", Namespace: w.ns, Name: "web"}) {
		t.Errorf("about %v", c.About)
	}
}

// TestStepForbidden: a step of a fiber lacks a permission and is retried.
func TestStepForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg = w.user()
	w.put("x")
	rt := w.fibers(flow.New("bring", flow.Step("write", func(ctx context.Context, f *flow.Fiber[configMap]) flow.Next {
		c, _ := flow.Use[*client.Client](f)
		if err := c.Create(ctx, secret(f.Packet.Namespace, "s")); err != nil {
			return f.Fail(err)
		}
		return f.Next()
	}, flow.Retry(flow.Backoff{}))))
	w.expect(rt, "x", why.Forbidden, map[string]string{
		"verb": "create", "resource": "secrets", "step": "bring/write", "attempts": "",
	})
}

// TestTwoFibers: a fiber with the key of an object waits for another fiber, which waits for a token.
func TestTwoFibers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) { return reconcile.Done, nil }))
	w.expect(rt, "x", why.Ended, nil)
	holds := flow.New("holds", flow.Step("wait", func(_ context.Context, f *flow.Fiber[configMap]) flow.Next {
		return f.Suspend(f.Token())
	}))
	for range 2 {
		if _, err := holds.Start(t.Context(), rt.Engine(), &configMap{}, flow.StartOptions{
			Key: w.ns + "/x", Mode: flow.Coalesce,
		}); err != nil {
			t.Fatal(err)
		}
		w.has(rt, "x", why.Parked)
	}
	a := w.expect(rt, "x", why.QueuedBehind, map[string]string{"holder": "holds/wait", "holderStatus": "parked"})
	if len(a.Causes) < 2 || a.Causes[1].Type != why.Parked || !strings.Contains(a.Causes[1].Message, "token") {
		t.Errorf("%+v", a.Causes)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	begun := make(chan string, 10)
	rt := w.program(fn(func(_ context.Context, m *configMap) (reconcile.Result, error) {
		begun <- m.Name
		<-done
		return reconcile.Done, nil
	}), reconcile.Workers(1))
	w.put("slow")
	<-begun
	for _, name := range []string{"a", "b", "c"} {
		w.put(name)
	}
	a := w.judge(rt, "c", judge.Case{
		Want: why.QueuedBehind, Then: []why.Type{why.Parked}, Lacks: "slow",
		Evidence: []string{"before=2", "sameNamespace=2", "workers=1", "running=1", "busy=s"},
	})
	slow := why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: "slow"}
	if strings.Contains(a.Causes[0].Evidence["busy"], "slow") || a.Causes[1].About == nil || *a.Causes[1].About != slow {
		t.Errorf("the first cause names another object: %+v", a)
	}
	w.expect(rt, "slow", why.Parked, map[string]string{"running": "s", "controller": "maps"})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	begun := time.Now()
	w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/secrets") {
			return next.RoundTrip(r)
		}
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,` +
			`"message":"too much to do","details":{"retryAfterSeconds":40}}`
		return &http.Response{
			StatusCode: http.StatusTooManyRequests, Request: r, Body: io.NopCloser(bytes.NewReader([]byte(body))),
			Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"40"}}, ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	})
	c := w.expect(w.creates(), "x", why.RetryAfter, map[string]string{
		"status": "429", "retryAfter": "40s", "running": "", "verb": "create",
	}).Causes[0]
	// The delay is 40 seconds plus up to a tenth, from the response on.
	if c.Until.Before(begun.Add(39*time.Second)) || time.Until(c.Until) > 45*time.Second {
		t.Errorf("until %v", c.Until)
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	policies := w.kube.AdmissionregistrationV1()
	name := "no-secrets-" + w.ns
	fail := admissionv1.Fail
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "secrets are not wanted here"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns},
				}},
			},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}) // the test is over
		_ = policies.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})       // the test is over
	})
	var rt *fairlead.Runtime
	ready := make(chan struct{})
	rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
		<-ready
		s := secret(m.Namespace, "")
		s.GenerateName = "s-" // repeated until the policy is in force
		if err := rt.Client().Create(ctx, s); err != nil {
			return reconcile.Retry(err)
		}
		return reconcile.After(100 * time.Millisecond), nil
	}))
	close(ready)
	w.expect(rt, "x", why.Forbidden, map[string]string{
		"refusedBy": "ValidatingAdmissionPolicy " + name, "error": "secrets are not wanted here", "verb": "create",
	})
}

func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	none := corev1.ResourceList{"count/secrets": resource.MustParse("0")}
	quotas := w.kube.CoreV1().ResourceQuotas(w.ns)
	q, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{})
	if err == nil { // a controller does this, which this control plane lacks
		q.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
		_, err = quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.expect(w.creates(), "x", why.Forbidden, map[string]string{
		"refusedBy": "ResourceQuota small", "error": "exceeded quota", "status": "403",
	})
}
