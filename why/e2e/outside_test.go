package e2e_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/why"
)

// well is a reconciler that has nothing to do.
var well = fn(func(context.Context, *configMap) (reconcile.Result, error) { return reconcile.Done, nil })

// labeled gives a ConfigMap labels.
func labeled(pairs ...string) func(*configMap) {
	return func(m *configMap) {
		m.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func kept(by ...string) func(*configMap) { return func(m *configMap) { m.Finalizers = by } }

func TestNotSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", labeled("app", "db"))
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", well, here(w, cache.Labels("app=web")), reconcile.WithoutEvents())
	w.run(rt)
	w.expect(rt, "x", why.NotSelected, map[string]string{"selector": "app=web", "labels": "app=db", "controller": "maps"})
	w.put("y", labeled("app", "web"))
	w.expect(rt, "y", why.Ended, nil)
	other := at(t, w.cfg, env.Namespace(t))
	other.put("x", labeled("app", "web"))
	other.expect(rt, "x", why.NotSelected, map[string]string{"namespaces": "1"})
}

// TestSelectedByAnother: an object outside the selector of one controller is selected by another one.
func TestSelectedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", labeled("app", "db"))
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "web", well, here(w, cache.Labels("app=web")), reconcile.WithoutEvents())
	reconcile.New(rt, "db", fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("the database is off"))
	}), here(w, cache.Labels("app=db")), reconcile.WithoutEvents())
	w.run(rt)
	w.expect(rt, "x", why.BackOff, map[string]string{"error": "the database is off", "controller": "db"})
}

func TestFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", well, here(w),
		reconcile.Primary(reconcile.If(func(m *configMap) bool { return m.Data != nil })),
		reconcile.WithoutEvents())
	w.run(rt)
	w.expect(rt, "x", why.NotSelected, map[string]string{"filter": "If", "controller": "maps", "at": "outside_test.go"})
}

func TestNotWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.program(well)
	w.expectOf(rt, why.Object{Kind: "svc", Namespace: "default", Name: "kubernetes"}, why.NotSelected,
		map[string]string{"resource": "services"})
}

func TestNotLeading(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	replica := func() *fairlead.Runtime {
		rt := fairlead.New(w.cfg, fairlead.WithLeaderElection(w.ns, "program"))
		reconcile.New(rt, "maps", well, here(w), reconcile.WithoutEvents())
		return w.run(rt)
	}
	w.expect(replica(), "x", why.Ended, nil)
	host, err := os.Hostname() // the name of a replica begins with it
	if err != nil {
		t.Fatal(err)
	}
	c := w.expect(replica(), "x", why.NotLeading, map[string]string{"leader": host, "lease": w.ns + "/program"}).Causes[0]
	if time.Since(c.Since) > time.Hour {
		t.Errorf("%+v", c)
	}
}

func TestHeldBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	var replicas []*fairlead.Runtime
	for _, name := range []string{"one", "two"} {
		rt := fairlead.New(w.cfg, fairlead.WithShards(w.ns, "program", fairlead.ShardBy(shard.Namespace),
			func(o *group.Options) {
				o.Member, o.Address = name, "http://"+name
			}))
		reconcile.New(rt, "maps", well, here(w), reconcile.WithoutEvents())
		replicas = append(replicas, w.run(rt))
	}
	slot := replicas[0].Shards().Layout().SlotOf(w.ns, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for replicas[0].Shards().Held().Len() != 32 || replicas[1].Shards().Held().Len() != 32 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the replicas do not share")
		}
	}
	holder, other, name := replicas[0], replicas[1], "one"
	if holder.Shards().Fence(slot) != nil {
		holder, other, name = replicas[1], replicas[0], "two"
	}
	w.expect(holder, "x", why.Ended, nil)
	w.expect(other, "x", why.HeldBy, map[string]string{"member": name, "address": "http://" + name, "slot": ""})
}

func TestForeignFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", kept("example.com/router"))
	rt := w.program(well)
	w.expect(rt, "x", why.Ended, nil)
	begun := time.Now().Truncate(time.Second)
	w.remove("x")
	c := w.expect(rt, "x", why.ForeignFinalizer, map[string]string{"finalizers": "example.com/router"}).Causes[0]
	if c.Since.Before(begun) {
		t.Errorf("since %v", c.Since)
	}
}

// cleaner has a finalizer, and a clean-up that fails or waits.
type cleaner struct {
	fn
	err error
}

func (c cleaner) Cleanup(context.Context, *configMap) (reconcile.Result, error) {
	return reconcile.Done, c.err
}

func TestOwnFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", kept("example.com/router"))
	rt := w.program(cleaner{well, errors.New("the router is off")})
	w.expect(rt, "x", why.Ended, nil)
	w.remove("x")
	a := w.expect(rt, "x", why.BackOff, map[string]string{"finalizer": "fairlead.io/maps", "error": "the router is off"})
	if len(a.Causes) != 1 {
		t.Errorf("the other finalizer is a cause too early: %+v", a.Causes)
	}
}

// TestOwnFinalizerDone: after the own finalizer is removed, the cause is that of another client.
func TestOwnFinalizerDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", kept("example.com/router"))
	rt := w.program(cleaner{fn: well})
	w.expect(rt, "x", why.Ended, nil)
	w.remove("x")
	w.expect(rt, "x", why.ForeignFinalizer, map[string]string{"finalizers": "example.com/router"})
}

// TestUndecodable: the schema of a custom kind admits an object that the Go type cannot hold.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	yes := true
	clustertest.InstallCRDs(t, w.cfg, clustertest.CRDObjects(&apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "gateways." + testbed.GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: testbed.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "gateways", Singular: "gateway", Kind: "Gateway", ListKind: "GatewayList", ShortNames: []string{"gw"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes},
				},
			}},
		},
	}))
	c, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(testbed.Gateways).Namespace(w.ns).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": testbed.GroupVersion.String(), "kind": "Gateway", "metadata": map[string]any{"name": "x"},
			"spec": map[string]any{"size": "large"},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rt := fairlead.New(w.cfg, fairlead.WithScheme(testbed.Scheme()))
	reconcile.New(rt, "gateways", reconcile.Func[testbed.Gateway](func(context.Context,
		*testbed.Gateway,
	) (reconcile.Result, error) {
		return reconcile.Done, nil
	}), here(w), reconcile.WithoutEvents())
	w.run(rt)
	a := w.expectOf(rt, why.Object{Kind: "gw", Namespace: w.ns, Name: "x"}, why.Quarantined,
		map[string]string{"error": "size"})
	if a.Kind != "Gateway" {
		t.Errorf("kind %s", a.Kind)
	}
}

// TestFrozen: the API server does not respond, and the cache becomes stale.
func TestFrozen(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	w := at(t, c.Config(), clustertest.Namespace(t, c.Config()))
	w.put("x")
	rt := w.program(well)
	w.expect(rt, "x", why.Ended, nil)
	if err := c.PauseAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect(rt, "x", why.SourceStale, map[string]string{"resource": "configmaps", "error": ""})
	if err := c.ResumeAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect(rt, "x", why.Ended, nil)
	if err := c.KillAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect(rt, "x", why.SourceStale, map[string]string{"reason": "Disconnected"})
}

// web returns a Deployment that never becomes ready, since this control plane runs no pods.
func web(m *configMap) *appsv1.Deployment {
	labels := map[string]string{"app": m.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}
}

// children runs a program whose ConfigMaps have a Deployment, followed by a Service.
func (w *world) children() *fairlead.Runtime {
	rt := fairlead.New(w.cfg)
	g := dependent.For[configMap]()
	d := dependent.Add(g, "deployment", func(_ context.Context, m *configMap) (*appsv1.Deployment,
		error,
	) {
		return web(m), nil
	},
		dependent.Watch(reconcile.From(cache.Namespaces(w.ns))), dependent.Ready(dependent.IsReady[appsv1.Deployment]))
	dependent.Add(g, "service", func(_ context.Context, m *configMap) (*corev1.Service, error) {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, nil
	}, dependent.Watch(reconcile.From(cache.Namespaces(w.ns)))).After(d)
	g.Controller(rt, "maps", here(w), reconcile.WithoutEvents())
	return w.run(rt)
}

func TestChildNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.children()
	a := w.expect(rt, "x", why.Parked, map[string]string{
		"node": "deployment", "child": w.ns + "/x",
		"childKind": "Deployment",
	})
	if c := a.Causes[0]; c.About == nil || *c.About != (why.Object{
		Group: "apps", Kind: "Deployment", Namespace: w.ns,
		Name: "x",
	}) {
		t.Errorf("about %v", c.About)
	}
	if len(a.Causes) < 2 || a.Causes[1].Evidence["after"] != "deployment" {
		t.Errorf("the other child, which waits, is a cause: %+v", a.Causes)
	}
	deployments := w.kube.AppsV1().Deployments(w.ns)
	d, err := deployments.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: "False", Reason: "NoNodes"}}
	if _, err := deployments.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect(rt, "x", why.Parked, map[string]string{"conditions": "Available is False, NoNodes"})
}

func TestChildOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := web(&configMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: w.ns}})
	if _, err := w.kube.AppsV1().Deployments(w.ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.put("x")
	w.expect(w.children(), "x", why.Conflict, map[string]string{
		"child": w.ns + "/x", "error": "has another owner",
		"attempts": "",
	})
}

func TestChildForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg = w.user(rule("apps", "deployments", "list", "watch", "get"), rule("", "services", "list", "watch", "get"),
		rule("", "configmaps", "*"))
	w.put("x")
	c := w.expect(w.children(), "x", why.Forbidden, map[string]string{
		"child": w.ns + "/x", "resource": "deployments.apps",
		"node": "deployment",
	}).Causes[0]
	if c.About == nil || c.About.Kind != "Deployment" {
		t.Errorf("about %v", c.About)
	}
}
