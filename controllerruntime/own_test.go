package controllerruntime_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// lag is a transport that holds back what watches bring, from the moment that it is told to.
type lag struct {
	next http.RoundTripper
	mu   sync.Mutex
	held chan struct{} // nil: nothing is held back; closed when it goes on
}

func (l *lag) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		res.Body = lagging{l, res.Body, r}
	}
	return res, err
}

// lagging is the body of a watch.
type lagging struct {
	*lag
	io.ReadCloser
	r *http.Request
}

func (l lagging) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-l.r.Context().Done():
		}
	}
	return n, err
}

// hold holds watches back until the function is called that it returns.
func (l *lag) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held = held
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = nil
		close(held)
	}
}

// forms returns an object of a kind in each representation.
func forms(kind schema.GroupVersionKind) []client.Object {
	typed, _ := scheme.Scheme.New(kind)
	untyped, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	untyped.SetGroupVersionKind(kind)
	metadata.SetGroupVersionKind(kind)
	return []client.Object{typed.(client.Object), untyped, metadata}
}

// lists are forms of lists.
func lists(kind schema.GroupVersionKind) []client.ObjectList {
	kind.Kind += "List"
	typed, _ := scheme.Scheme.New(kind)
	untyped, metadata := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	untyped.SetGroupVersionKind(kind)
	metadata.SetGroupVersionKind(kind)
	return []client.ObjectList{typed.(client.ObjectList), untyped, metadata}
}

// behind is a cache that hears of nothing, except from its own client.
type behind struct {
	*world
	reads int
}

func startBehind(t *testing.T) *behind {
	t.Helper()
	cfg := env.Config(t)
	hc, err := rest.HTTPClientFor(cfg)
	must(t, err)
	slow := &lag{next: hc.Transport}
	first, second := env.Namespace(t), env.Namespace(t)
	w := ours.openAt(t, cfg, first, cache.Options{
		HTTPClient:        &http.Client{Transport: slow},
		DefaultNamespaces: map[string]cache.Config{first: {}, second: {}},
	})
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
	} {
		for _, form := range forms(kind) {
			_, err := w.cache.GetInformer(w.ctx, form)
			must(t, err)
		}
	}
	must(t, w.cache.IndexField(w.ctx, &corev1.ConfigMap{}, "v", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["v"]}
	}))
	w.start()
	t.Cleanup(slow.hold())
	return &behind{world: w}
}

// shows checks that each representation of an object is as new as it was written.
func (b *behind) shows(reason string, obj client.Object, version string) {
	b.t.Helper()
	kind, err := apiutil.GVKForObject(obj, scheme.Scheme)
	must(b.t, err)
	for i, got := range forms(kind) {
		b.reads++
		if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(obj), got); err != nil {
			b.t.Errorf("%s: %T: %v", reason, got, err)
		} else if got.GetResourceVersion() != version {
			b.t.Errorf("%s: %T is of version %s, want %s", reason, got, got.GetResourceVersion(), version)
		}
		list := lists(kind)[i]
		b.reads++
		must(b.t, b.client.List(b.ctx, list, client.InNamespace(obj.GetNamespace())))
		if versions(b.t, list)[obj.GetName()] != version {
			b.t.Errorf("%s: %T has %v, want version %s", reason, list, versions(b.t, list), version)
		}
	}
}

func (b *behind) gone(reason string, obj client.Object) {
	b.t.Helper()
	kind, err := apiutil.GVKForObject(obj, scheme.Scheme)
	must(b.t, err)
	for i, got := range forms(kind) {
		b.reads++
		if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(obj), got); !apierrors.IsNotFound(err) {
			b.t.Errorf("%s: %T is still there: %v", reason, got, err)
		}
		list := lists(kind)[i]
		must(b.t, b.client.List(b.ctx, list, client.InNamespace(obj.GetNamespace())))
		if version, there := versions(b.t, list)[obj.GetName()]; there {
			b.t.Errorf("%s: %T still has version %s", reason, list, version)
		}
	}
}

// indexed checks what is found by a field.
func (b *behind) indexed(reason, value string, want int) {
	b.t.Helper()
	b.reads++
	var list corev1.ConfigMapList
	must(b.t, b.client.List(b.ctx, &list, client.MatchingFields{"v": value}))
	if len(list.Items) != want {
		b.t.Errorf("%s: %d objects are found by %q, want %d", reason, len(list.Items), value, want)
	}
}

// Whatever is written is read at once, though the watches tell nothing.
func TestOwnWrites(t *testing.T) {
	t.Parallel()
	b := startBehind(t)
	c, ctx := b.client, b.ctx
	for i := range 10 {
		cm := b.configMap(fmt.Sprint("a", i), "v", fmt.Sprint("one", i))
		must(t, c.Create(ctx, cm))
		b.shows("create", cm, cm.ResourceVersion)
		b.indexed("create", fmt.Sprint("one", i), 1)
		cm.Data["v"] = fmt.Sprint("two", i)
		must(t, c.Update(ctx, cm))
		b.shows("update", cm, cm.ResourceVersion)
		b.indexed("update", fmt.Sprint("one", i), 0)
		b.indexed("update", fmt.Sprint("two", i), 1)
		must(t, c.Patch(ctx, cm, merge(`{"data":{"w":"1"}}`)))
		b.shows("patch", cm, cm.ResourceVersion)

		applied := applycorev1.ConfigMap(cm.Name, cm.Namespace).WithData(map[string]string{"x": "1"})
		must(t, c.Apply(ctx, applied, client.FieldOwner("test")))
		b.shows("apply", cm, *applied.ResourceVersion)

		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		must(t, c.Get(ctx, client.ObjectKeyFromObject(cm), u))
		must(t, unstructured.SetNestedField(u.Object, "2", "data", "w"))
		must(t, c.Update(ctx, u))
		b.shows("update, unstructured", cm, u.GetResourceVersion())

		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		m.SetName(cm.Name)
		m.SetNamespace(cm.Namespace)
		must(t, c.Patch(ctx, m, merge(`{"metadata":{"finalizers":["example.com/f"]}}`)))
		b.shows("patch, metadata", cm, m.ResourceVersion)

		must(t, c.Delete(ctx, cm))
		must(t, b.live.Get(ctx, client.ObjectKeyFromObject(cm), cm))
		b.shows("delete with a finalizer", cm, cm.ResourceVersion)
		cm.Finalizers = nil
		must(t, c.Update(ctx, cm))
		b.gone("the last finalizer", cm)
		if err := c.Delete(ctx, cm); !apierrors.IsNotFound(err) {
			t.Errorf("a second delete is %v", err)
		}
		b.gone("delete of what is gone", cm)
	}
	all := []client.Object{b.configMap("x"), b.configMap("y")}
	for _, cm := range all {
		must(t, c.Create(ctx, cm))
	}
	must(t, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(b.namespace)))
	for _, cm := range all {
		b.gone("delete of all", cm)
	}
	foreign := b.configMap("foreign")
	b.create(foreign)
	if err := c.Create(ctx, b.configMap("foreign")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a create of what is there is %v", err)
	}
	must(t, b.live.Delete(ctx, foreign))
	if err := c.Delete(ctx, foreign); !apierrors.IsNotFound(err) {
		t.Errorf("a delete of what is gone is %v", err)
	}
	b.gone("404 on delete", foreign)
	t.Logf("%d reads, none of them stale but for those that are told above", b.reads)
}

// The subresources of a deployment.
func TestOwnWritesOfSubresources(t *testing.T) {
	t.Parallel()
	b := startBehind(t)
	c, ctx := b.client, b.ctx
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
	must(t, c.Create(ctx, d))
	b.shows("create", d, d.ResourceVersion)
	d.Status.ObservedGeneration = 1
	must(t, c.Status().Update(ctx, d))
	b.shows("status", d, d.ResourceVersion)
	must(t, c.Status().Patch(ctx, d, merge(`{"status":{"replicas":1}}`)))
	b.shows("patch of status", d, d.ResourceVersion)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	must(t, c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
	var live appsv1.Deployment
	must(t, b.live.Get(ctx, client.ObjectKeyFromObject(d), &live))
	b.shows("scale", d, live.ResourceVersion)

	dry := d.DeepCopy()
	dry.ResourceVersion, dry.Labels = "", labels
	must(t, c.Update(ctx, dry, client.DryRunAll))
	b.shows("dry run", d, live.ResourceVersion)
}
