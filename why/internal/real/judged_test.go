package real_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/why"
)

// judged is what has to be told of ConfigMap x of a stuck program.
type judged struct {
	reason string
	run    func(w *world) *fairlead.Runtime
	want   why.Type
	// message, advice and evidence ("key=part") are parts of what is said; then is what is told after it.
	message, advice string
	evidence        []string
	then            []why.Type
	until           time.Duration // about when from now; negative: never
	progress        bool
}

func (j judged) faults(a why.Answer) (all []string) {
	if len(a.Causes) == 0 {
		return []string{"nothing is told"}
	}
	c := a.Causes[0]
	if c.Type != j.want {
		all = append(all, "it is not "+string(j.want))
	}
	if !strings.Contains(c.Message, j.message) {
		all = append(all, "the message does not say "+j.message)
	}
	if !strings.Contains(c.Advice, j.advice) {
		all = append(all, "the advice does not say "+j.advice)
	}
	for _, pair := range j.evidence {
		key, part, _ := strings.Cut(pair, "=")
		if got := c.Evidence[key]; got == "" || !strings.Contains(got, part) {
			all = append(all, "the evidence lacks "+pair)
		}
	}
	for i, next := range j.then {
		if len(a.Causes) < i+2 || a.Causes[i+1].Type != next {
			all = append(all, "then "+string(next)+" is to be told")
		}
	}
	switch left := time.Until(c.Until); {
	case j.until > 0 && (left > j.until+10*time.Second || left < j.until/20):
		all = append(all, "until is not within "+j.until.String())
	case j.until < 0 && !c.Until.IsZero():
		all = append(all, "there is an until")
	}
	if a.Stuck != (c.Type != why.Ended && !j.progress) {
		all = append(all, "stuck is wrong")
	}
	return all
}

// judge waits until the answer about x is as it has to be.
func (w *world) judge(rt *fairlead.Runtime, j judged) {
	w.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(15 * time.Second)
	defer patience.Stop()
	for {
		got, err := rt.Why(w.Context(), why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: "x"})
		faults := j.faults(got)
		if err == nil && len(faults) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-patience.C:
			text, _ := json.MarshalIndent(got, "", "  ")
			w.Errorf("%s: %v\n%s", strings.Join(faults, "; "), err, text)
			return
		}
	}
}

// steps runs a program whose objects are fibers of these steps.
func steps(nodes ...flow.Node[configMap]) func(*world) *fairlead.Runtime {
	return func(w *world) *fairlead.Runtime { return w.fibers(flow.New("bring", nodes...)) }
}

type fiberOf = *flow.Fiber[configMap]

// answers has the API server answer requests of a program to Secrets as somebody says.
func (w *world) answers(code int, reason, message string) *fairlead.Runtime {
	w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/secrets") {
			return next.RoundTrip(r)
		}
		return status(r, code, reason, message), nil
	})
	return w.creates()
}

func TestJudged(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	for name, j := range map[string]judged{
		"panic": {
			reason: "a reconciler that panics each time says that it does",
			run: func(w *world) *fairlead.Runtime {
				return w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) { panic("no tenant") }))
			},
			want: why.BackOff, message: "no tenant", evidence: []string{"error=panic", "attempts="}, advice: "log",
		},
		"exhausted": {
			reason: "the attempts are used up: nothing comes until the object changes",
			run: func(w *world) *fairlead.Runtime {
				return w.program(fn(func(context.Context, *configMap) (reconcile.Result, error) {
					return reconcile.Retry(errors.New("no route"))
				}), reconcile.MaxAttempts(2), reconcile.WithBackoff(reconcile.Backoff{Base: time.Millisecond}))
			},
			want: why.BackOff, message: "not tried again until", evidence: []string{"error=no route", "class=stopped"}, until: -1,
			advice: "Change the object",
		},
		"terminal step": {
			reason: "a step that fails for good ends the fiber, and nothing tries again",
			run: steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next {
				return f.Fail(reconcile.AsTerminal(errors.New("no such size")))
			}, flow.Retry(flow.Backoff{}))),
			want: why.BackOff, message: "not tried again until", evidence: []string{"error=no such size"}, until: -1,
		},
		"step fails": {
			reason: "a fiber that has failed is begun again after a while",
			run: steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next {
				return f.Fail(errors.New("the shop is shut"))
			})),
			want: why.BackOff, evidence: []string{"error=the shop is shut", "attempts="},
		},
		"step deadline": {
			reason: "a step whose time is over",
			run: steps(flow.Step("order", func(ctx context.Context, f fiberOf) flow.Next {
				return f.Await(flow.Func(func(context.Context) (bool, error) { return false, nil }, hour))
			}, flow.Deadline(300*time.Millisecond))),
			want: why.DeadlinePassed, evidence: []string{"error=order", "attempts="},
		},
		"await timeout": {
			reason: "a wait whose time is over, again and again",
			run: steps(flow.Step("order", func(ctx context.Context, f fiberOf) flow.Next {
				return f.Await(flow.Func(func(context.Context) (bool, error) { return false, nil }, hour),
					flow.Timeout(100*time.Millisecond))
			})),
			want: why.DeadlinePassed, evidence: []string{"error=order"},
		},
		"child flow": {
			reason: "a fiber waits for its child, which waits for a condition",
			run: steps(flow.Step("all", func(_ context.Context, f fiberOf) flow.Next {
				kid := flow.New("kid", flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
					c, _ := flow.Use[*client.Client](f)
					return f.Await(client.Condition[corev1.Pod](c, client.Key{Namespace: f.Packet.Namespace, Name: "web"}, "Ready"))
				}))
				return f.Fork([]flow.Child{kid.Child("kid", f.Packet)})
			})),
			want: why.Parked, message: "children", then: []why.Type{why.Parked},
		},
		"never": {
			reason: "a condition that never holds",
			run: steps(flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
				return f.Await(flow.Func(func(context.Context) (bool, error) { return false, nil }, hour))
			})),
			want: why.Parked, message: "looked at every 1h0m0s", evidence: []string{"step=bring/await"},
		},
		"poll fails": {
			reason: "a condition that cannot be looked at",
			run: steps(flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
				return f.Await(flow.Func(func(context.Context) (bool, error) { return false, errors.New("no route to the crm") },
					50*time.Millisecond))
			})),
			want: why.BackOff, evidence: []string{"error=no route to the crm"},
		},
		"delay": {
			reason: "a step that lets time pass is no trouble",
			run: steps(flow.Step("sleep", func(_ context.Context, f fiberOf) flow.Next { return f.Delay(hour) }),
				flow.Step("end", func(_ context.Context, f fiberOf) flow.Next { return f.End() })),
			want: why.Parked, message: "lets time pass", until: hour, progress: true,
		},
		"panicking step": {
			reason: "a step that panics",
			run:    steps(flow.Step("burst", func(context.Context, fiberOf) flow.Next { panic("nil map") })),
			want:   why.BackOff, message: "nil map", evidence: []string{"error=panic"},
		},
		"step at work": {
			reason: "a step that does not return",
			run: steps(flow.Step("block", func(ctx context.Context, f fiberOf) flow.Next {
				<-ctx.Done()
				return f.Fail(ctx.Err())
			})),
			want: why.Parked, message: "has been running since", evidence: []string{"step=bring/block"},
		},
		"at work": {
			reason: "what is worked on now has not ended",
			run: steps(flow.Step("block", func(ctx context.Context, f fiberOf) flow.Next {
				<-ctx.Done()
				return f.Fail(ctx.Err())
			})),
			want: why.Parked, progress: true,
		},
		"deadline": {
			reason: "a reconciliation whose time is over",
			run: func(w *world) *fairlead.Runtime {
				return w.program(fn(func(ctx context.Context, _ *configMap) (reconcile.Result, error) {
					<-ctx.Done()
					return reconcile.Retry(context.Cause(ctx))
				}), reconcile.Deadline(100*time.Millisecond))
			},
			want: why.DeadlinePassed, evidence: []string{"attempts=", "error="},
		},
		"too large": {
			reason: "what is written is too large for etcd",
			run: func(w *world) *fairlead.Runtime {
				var rt *fairlead.Runtime
				ready := make(chan struct{})
				rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
					<-ready
					s := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "large"}}
					s.Annotations = map[string]string{"a": strings.Repeat("x", 4<<20)}
					return reconcile.Retry(rt.Client().Create(ctx, s))
				}))
				close(ready)
				return rt
			},
			want: why.BackOff, evidence: []string{"verb=create", "status="}, advice: "smaller",
		},
		"no space": {
			reason: "etcd takes nothing any more",
			run: func(w *world) *fairlead.Runtime {
				return w.answers(http.StatusInternalServerError, "InternalError", "etcdserver: mvcc: database space exceeded")
			},
			want: why.BackOff, evidence: []string{"status=500", "error=space exceeded"}, advice: "etcd",
		},
		"conversion": {
			reason: "nobody converts the objects of a kind",
			run: func(w *world) *fairlead.Runtime {
				return w.answers(http.StatusInternalServerError, "InternalError", "conversion webhook for example.com/v1, Kind=Gateway "+
					"failed: Post \"https://conv.default.svc:443/convert?timeout=30s\": dial tcp: connection refused")
			},
			want: why.BackOff, evidence: []string{"webhook=example.com/v1, Kind=Gateway"}, advice: "conversion",
		},
		"unauthorized": {
			reason: "the token of the program is not taken any more",
			run: func(w *world) *fairlead.Runtime {
				return w.answers(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			},
			want: why.BackOff, evidence: []string{"status=401"}, advice: "token",
		},
		"invalid": {
			reason: "what is written is refused by the schema",
			run: func(w *world) *fairlead.Runtime {
				var rt *fairlead.Runtime
				ready := make(chan struct{})
				rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
					<-ready
					return reconcile.Retry(rt.Client().Create(ctx, secret(m.Namespace, "No_Name")))
				}))
				close(ready)
				return rt
			},
			want: why.BackOff, evidence: []string{"status=422", "error=No_Name"}, advice: "invalid",
		},
		"no namespace": {
			reason: "what is written is for a namespace that does not exist",
			run: func(w *world) *fairlead.Runtime {
				var rt *fairlead.Runtime
				ready := make(chan struct{})
				rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
					<-ready
					return reconcile.Retry(rt.Client().Create(ctx, secret("no-such-place", "s")))
				}))
				close(ready)
				return rt
			},
			want: why.BackOff, evidence: []string{"status=404", "error=no-such-place"}, advice: "does not exist",
		},
		"name taken": {
			reason: "a name that a program wants is somebody else's",
			run: func(w *world) *fairlead.Runtime {
				if _, err := w.kube.CoreV1().Secrets(w.ns).Create(w.Context(), secret(w.ns, "x"), metav1.CreateOptions{}); err != nil {
					w.Fatal(err)
				}
				return w.creates()
			},
			want: why.Conflict, evidence: []string{"status=409", "reason=AlreadyExists"}, advice: "another name", message: "already exists",
		},
		"nothing there": {
			reason: "what is read does not exist",
			run: func(w *world) *fairlead.Runtime {
				var rt *fairlead.Runtime
				ready := make(chan struct{})
				rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
					<-ready
					return reconcile.Retry(rt.Client().Live().Get(ctx, client.Key{Namespace: m.Namespace, Name: "login"}, &corev1.Secret{}))
				}))
				close(ready)
				return rt
			},
			want: why.BackOff, evidence: []string{"status=404", "error=login"}, advice: "does not exist",
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put("x")
			w.judge(j.run(w), j)
		})
	}
}

// TestDeselected: somebody has taken the label away by which an object was chosen, to pause it, or has deleted it since.
func TestDeselected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", labeled("app", "web"))
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", cleaner{fn: well}, here(w, source.Labels("app=web")), reconcile.WithoutEvents())
	w.run(rt)
	w.told(rt, "x", why.Ended, nil)
	w.change("x", func(m *configMap) { m.Labels["app"] = "paused" })
	w.told(rt, "x", why.NotSelected, map[string]string{"selector": "app=web", "labels": "app=paused"})
	w.remove("x")
	a := w.told(rt, "x", why.NotSelected, map[string]string{"selector": "app=web"})
	if len(a.Causes) != 1 {
		t.Errorf("%+v", a)
	}
}

// TestLeavingNamespace: the namespace is being deleted, so that nothing can be made in it.
func TestLeavingNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", kept("example.com/router"))
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), w.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.told(w.creates(), "x", why.Forbidden, map[string]string{"refusedBy": "terminated", "verb": "create"})
}

// TestChildKept: a child that is to go before its owner is kept by the finalizer of somebody else.
func TestChildKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.children()
	w.told(rt, "x", why.Parked, map[string]string{"node": "deployment"})
	deployments := w.kube.AppsV1().Deployments(w.ns)
	d, err := deployments.Get(t.Context(), "x", metav1.GetOptions{})
	if err == nil {
		d.Finalizers = append(d.Finalizers, "example.com/drain")
		_, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.remove("x")
	a := w.told(rt, "x", why.Parked, map[string]string{"node": "deployment", "finalizers": "example.com/drain"})
	if len(a.Causes) < 2 || a.Causes[1].Type != why.ForeignFinalizer || a.Causes[1].About == nil ||
		a.Causes[1].About.Kind != "Deployment" {
		t.Errorf("what keeps the child is not told: %+v", a.Causes)
	}
}

// TestChildOfChild: a child of a child is what does not move.
func TestChildOfChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	g := dependent.For[configMap]()
	dependent.Add(g, "deployment", func(_ context.Context, m *configMap) (*appsv1.Deployment, error) { return web(m), nil },
		dependent.Watch(reconcile.From(source.Namespaces(w.ns))), dependent.Ready(dependent.IsReady[appsv1.Deployment]))
	g.Controller(rt, "maps", here(w), reconcile.WithoutEvents())
	reconcile.New(rt, "deployments", reconcile.Func[appsv1.Deployment](func(context.Context, *appsv1.Deployment) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no node is left"))
	}), reconcile.Primary(reconcile.From(source.Namespaces(w.ns))), reconcile.WithoutEvents())
	w.run(rt)
	w.judge(rt, judged{want: why.Parked, evidence: []string{"child=x"}, then: []why.Type{why.BackOff}})
}

// TestUnauthorized: the API server does not know the program any more, and answers all the same.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	expired := make(chan struct{})
	w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		select {
		case <-expired:
			return status(r, http.StatusUnauthorized, "Unauthorized", "Unauthorized"), nil
		default:
			return next.RoundTrip(r)
		}
	})
	rt := w.program(well)
	w.told(rt, "x", why.Ended, nil)
	close(expired)
	c := w.told(rt, "x", why.SourceStale, map[string]string{"error": "Unauthorized"}).Causes[0]
	if strings.Contains(c.Message, "does not answer") || !strings.Contains(c.Advice, "token") {
		t.Errorf("%+v", c)
	}
}

// TestNotRun: a program that nobody has started.
func TestNotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", well, here(w), reconcile.WithoutEvents())
	if c := w.told(rt, "x", why.NotLeading, nil).Causes[0]; c.Advice == "" {
		t.Errorf("%+v", c)
	}
}

// status is an answer of an API server that tells of a failure.
func status(r *http.Request, code int, reason, message string) *http.Response {
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReason(reason), Code: int32(code), Message: message,
	})
	return &http.Response{
		StatusCode: code, Request: r, Body: io.NopCloser(bytes.NewReader(body)), ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}

// change changes a ConfigMap.
func (w *world) change(name string, fn func(*configMap)) {
	w.Helper()
	for {
		m, err := w.kube.CoreV1().ConfigMaps(w.ns).Get(w.Context(), name, metav1.GetOptions{})
		if err == nil {
			fn(m)
			_, err = w.kube.CoreV1().ConfigMaps(w.ns).Update(w.Context(), m, metav1.UpdateOptions{})
		}
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

// gateways installs a definition whose objects nobody converts, if so, with one object of the version that is stored.
func (w *world) gateways(converted bool) dynamic.Interface {
	w.Helper()
	c, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	yes := true
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes},
			},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "gateways." + testbed.GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: testbed.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "gateways", Singular: "gateway", Kind: "Gateway", ListKind: "GatewayList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", !converted)},
		},
	}
	stored := "v1"
	if converted {
		stored = "v2"
		crd.Spec.Versions = append(crd.Spec.Versions, version(stored, true))
		url := "https://127.0.0.1:1/convert"
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	}
	clustertest.InstallCRDs(w.T, w.cfg, clustertest.CRDObjects(crd))
	gvr := testbed.Gateways
	gvr.Version = stored
	if _, err := c.Resource(gvr).Namespace(w.ns).Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": testbed.GroupVersion.Group + "/" + stored, "kind": "Gateway", "metadata": map[string]any{"name": "x"},
	}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return c
}

// ofGateways runs a controller of them.
func (w *world) ofGateways() *fairlead.Runtime {
	rt := fairlead.New(w.cfg, fairlead.WithScheme(testbed.Scheme()))
	reconcile.New(rt, "gateways", reconcile.Func[testbed.Gateway](func(context.Context, *testbed.Gateway) (reconcile.Result, error) {
		return reconcile.Done, nil
	}), here(w), reconcile.WithoutEvents())
	return w.run(rt)
}

// TestDefinitionGone: the definition of the kind is deleted while the program runs, and with it all objects.
func TestDefinitionGone(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	w := at(t, c.Config(), clustertest.Namespace(t, c.Config()))
	api := w.gateways(false)
	rt := w.ofGateways()
	x := why.Object{Kind: "Gateway", Namespace: w.ns, Name: "x"}
	w.toldOf(rt, x, why.Ended, nil)
	crds := api.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	if err := crds.Delete(t.Context(), "gateways."+testbed.GroupVersion.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	told := w.toldOf(rt, x, why.SourceStale, map[string]string{"reason": "NotFound", "resource": "gateways"}).Causes[0]
	if !strings.Contains(told.Advice, "install its definition") {
		t.Errorf("%+v", told)
	}
}

// TestConversionDown: objects of the version that the program reads have to be converted, and nobody does.
func TestConversionDown(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	w := at(t, c.Config(), clustertest.Namespace(t, c.Config()))
	w.gateways(true)
	rt := w.ofGateways()
	told := w.toldOf(rt, why.Object{Kind: "Gateway", Namespace: w.ns, Name: "x"}, why.SourceStale,
		map[string]string{"error": "conversion webhook"}).Causes[0]
	if strings.Contains(told.Message, "does not answer") || !strings.Contains(told.Advice, "conversion") {
		t.Errorf("%+v", told)
	}
}
