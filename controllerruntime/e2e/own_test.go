package e2e_test

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

	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
)

// lag is a transport that delays the events of watches after hold was called.
type lag struct {
	next http.RoundTripper
	mu   sync.Mutex
	held chan struct{} // nil: nothing is delayed; closed at the release
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

// hold delays watches until release is called.
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

// forms returns an empty object of a kind in each representation.
func forms(kind schema.GroupVersionKind) []client.Object {
	typed, _ := scheme.Scheme.New(kind)
	untyped, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	untyped.SetGroupVersionKind(kind)
	metadata.SetGroupVersionKind(kind)
	return []client.Object{typed.(client.Object), untyped, metadata}
}

// lists returns an empty list of a kind in each representation.
func lists(kind schema.GroupVersionKind) []client.ObjectList {
	kind.Kind += "List"
	typed, _ := scheme.Scheme.New(kind)
	untyped, metadata := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	untyped.SetGroupVersionKind(kind)
	metadata.SetGroupVersionKind(kind)
	return []client.ObjectList{typed.(client.ObjectList), untyped, metadata}
}

// behind is a cache that gets no events, so it knows only the writes of its own client.
type behind struct {
	*peer.World
	reads int
}

func startBehind(t *testing.T) *behind {
	t.Helper()
	cfg := env.Config(t)
	hc, err := rest.HTTPClientFor(cfg)
	peer.Must(t, err)
	slow := &lag{next: hc.Transport}
	first, second := env.Namespace(t), env.Namespace(t)
	w := peer.Ours.Open(t, cfg, first, cache.Options{
		HTTPClient:        &http.Client{Transport: slow},
		DefaultNamespaces: map[string]cache.Config{first: {}, second: {}},
	})
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
	} {
		for _, form := range forms(kind) {
			_, err := w.Cache.GetInformer(w.Ctx, form)
			peer.Must(t, err)
		}
	}
	peer.Must(t, w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "v", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["v"]}
	}))
	w.Start()
	t.Cleanup(slow.hold())
	return &behind{World: w}
}

// shows checks that each representation of an object has the written version.
func (b *behind) shows(reason string, obj client.Object, version string) {
	b.T.Helper()
	kind, err := apiutil.GVKForObject(obj, scheme.Scheme)
	peer.Must(b.T, err)
	for i, got := range forms(kind) {
		b.reads++
		if err := b.Client.Get(b.Ctx, client.ObjectKeyFromObject(obj), got); err != nil {
			b.T.Errorf("%s: %T: %v", reason, got, err)
		} else if got.GetResourceVersion() != version {
			b.T.Errorf("%s: %T is of version %s, want %s", reason, got, got.GetResourceVersion(), version)
		}
		list := lists(kind)[i]
		b.reads++
		peer.Must(b.T, b.Client.List(b.Ctx, list, client.InNamespace(obj.GetNamespace())))
		if peer.Versions(b.T, list)[obj.GetName()] != version {
			b.T.Errorf("%s: %T has %v, want version %s", reason, list, peer.Versions(b.T, list), version)
		}
	}
}

func (b *behind) gone(reason string, obj client.Object) {
	b.T.Helper()
	kind, err := apiutil.GVKForObject(obj, scheme.Scheme)
	peer.Must(b.T, err)
	for i, got := range forms(kind) {
		b.reads++
		if err := b.Client.Get(b.Ctx, client.ObjectKeyFromObject(obj), got); !apierrors.IsNotFound(err) {
			b.T.Errorf("%s: %T is still there: %v", reason, got, err)
		}
		list := lists(kind)[i]
		peer.Must(b.T, b.Client.List(b.Ctx, list, client.InNamespace(obj.GetNamespace())))
		if version, there := peer.Versions(b.T, list)[obj.GetName()]; there {
			b.T.Errorf("%s: %T still has version %s", reason, list, version)
		}
	}
}

// indexed checks the number of objects found by a field.
func (b *behind) indexed(reason, value string, want int) {
	b.T.Helper()
	b.reads++
	var list corev1.ConfigMapList
	peer.Must(b.T, b.Client.List(b.Ctx, &list, client.MatchingFields{"v": value}))
	if len(list.Items) != want {
		b.T.Errorf("%s: %d objects are found by %q, want %d", reason, len(list.Items), value, want)
	}
}

// Own writes are read at once, although the watches deliver nothing.
func TestOwnWrites(t *testing.T) {
	t.Parallel()
	b := startBehind(t)
	c, ctx := b.Client, b.Ctx
	for i := range 10 {
		cm := b.ConfigMap(fmt.Sprint("a", i), "v", fmt.Sprint("one", i))
		peer.Must(t, c.Create(ctx, cm))
		b.shows("create", cm, cm.ResourceVersion)
		b.indexed("create", fmt.Sprint("one", i), 1)
		cm.Data["v"] = fmt.Sprint("two", i)
		peer.Must(t, c.Update(ctx, cm))
		b.shows("update", cm, cm.ResourceVersion)
		b.indexed("update", fmt.Sprint("one", i), 0)
		b.indexed("update", fmt.Sprint("two", i), 1)
		peer.Must(t, c.Patch(ctx, cm, merge(`{"data":{"w":"1"}}`)))
		b.shows("patch", cm, cm.ResourceVersion)

		applied := applycorev1.ConfigMap(cm.Name, cm.Namespace).WithData(map[string]string{"x": "1"})
		peer.Must(t, c.Apply(ctx, applied, client.FieldOwner("test")))
		b.shows("apply", cm, *applied.ResourceVersion)

		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		peer.Must(t, c.Get(ctx, client.ObjectKeyFromObject(cm), u))
		peer.Must(t, unstructured.SetNestedField(u.Object, "2", "data", "w"))
		peer.Must(t, c.Update(ctx, u))
		b.shows("update, unstructured", cm, u.GetResourceVersion())

		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		m.SetName(cm.Name)
		m.SetNamespace(cm.Namespace)
		peer.Must(t, c.Patch(ctx, m, merge(`{"metadata":{"finalizers":["example.com/f"]}}`)))
		b.shows("patch, metadata", cm, m.ResourceVersion)

		peer.Must(t, c.Delete(ctx, cm))
		peer.Must(t, b.Live.Get(ctx, client.ObjectKeyFromObject(cm), cm))
		b.shows("delete with a finalizer", cm, cm.ResourceVersion)
		cm.Finalizers = nil
		peer.Must(t, c.Update(ctx, cm))
		b.gone("the last finalizer", cm)
		if err := c.Delete(ctx, cm); !apierrors.IsNotFound(err) {
			t.Errorf("a second delete is %v", err)
		}
		b.gone("delete of a deleted object", cm)
	}
	all := []client.Object{b.ConfigMap("x"), b.ConfigMap("y")}
	for _, cm := range all {
		peer.Must(t, c.Create(ctx, cm))
	}
	peer.Must(t, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(b.Namespace)))
	for _, cm := range all {
		b.gone("delete of all", cm)
	}
	foreign := b.ConfigMap("foreign")
	b.Create(foreign)
	if err := c.Create(ctx, b.ConfigMap("foreign")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a create of an existing object is %v", err)
	}
	peer.Must(t, b.Live.Delete(ctx, foreign))
	if err := c.Delete(ctx, foreign); !apierrors.IsNotFound(err) {
		t.Errorf("a delete of a deleted object is %v", err)
	}
	b.gone("404 on delete", foreign)
	t.Logf("%d reads, none of them stale except those above", b.reads)
}

// TestOwnWritesOfSubresources writes the subresources of a deployment.
func TestOwnWritesOfSubresources(t *testing.T) {
	t.Parallel()
	b := startBehind(t)
	c, ctx := b.Client, b.Ctx
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
	peer.Must(t, c.Create(ctx, d))
	b.shows("create", d, d.ResourceVersion)
	d.Status.ObservedGeneration = 1
	peer.Must(t, c.Status().Update(ctx, d))
	b.shows("status", d, d.ResourceVersion)
	peer.Must(t, c.Status().Patch(ctx, d, merge(`{"status":{"replicas":1}}`)))
	b.shows("patch of status", d, d.ResourceVersion)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	peer.Must(t, c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
	var live appsv1.Deployment
	peer.Must(t, b.Live.Get(ctx, client.ObjectKeyFromObject(d), &live))
	b.shows("scale", d, live.ResourceVersion)

	dry := d.DeepCopy()
	dry.ResourceVersion, dry.Labels = "", labels
	peer.Must(t, c.Update(ctx, dry, client.DryRunAll))
	b.shows("dry run", d, live.ResourceVersion)
}
