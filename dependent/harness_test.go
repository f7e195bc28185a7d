package dependent_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type gateway = testbed.Gateway

var web = client.Key{Namespace: "a", Name: "web"}

// bench is a server and one process that maintains the children of gateways, in a bubble.
type bench struct {
	t      *testing.T
	server *apiserver.Server
	host   *testbed.Host
	engine *flow.Engine
	c      *reconcile.Controller
	seen   int // requests until the last call of requests
}

// bubble runs a test in a bubble of synctest.
func bubble(t *testing.T, fn func(b *bench)) {
	t.Helper()
	bubbleOf(t, testbed.Resources(), fn)
}

func bubbleOf(t *testing.T, resources []apiserver.Resource, fn func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, server: testbed.Server(t, apiserver.Options{Resources: resources})}
		defer b.server.Close()
		defer b.stop()
		fn(b)
	})
}

// run starts a process with a graph, with one gateway named web.
func (b *bench) run(g *dependent.Graph[gateway], opts ...reconcile.Option) {
	b.t.Helper()
	b.runWith(g, func(*gateway, *dependent.Report) {}, opts...)
}

// runWith is run with a function for the status, which is called beside the one that writes the conditions.
func (b *bench) runWith(g *dependent.Graph[gateway], status func(*gateway, *dependent.Report),
	opts ...reconcile.Option,
) {
	b.t.Helper()
	if b.object(testbed.Gateways, web.Name) == nil {
		testbed.Put(b.t, b.server, testbed.New("a", "web"))
	}
	b.stop()
	b.host = testbed.NewHost(b.t, b.server.Config(), testbed.Mapper(testbed.Resources()))
	b.engine = newEngine()
	b.c = g.Engine(b.engine).Status(func(gw *gateway, r *dependent.Report) {
		r.Into(&gw.Status.Conditions)
		status(gw, r)
	}).
		Controller(b.host, "gateways", append([]reconcile.Option{reconcile.MaxInterval(-1)}, opts...)...)
	b.host.Start(b.t.Context())
	b.settle()
}

func (b *bench) stop() {
	if b.host == nil {
		return
	}
	if err := b.host.Stop(); err != nil {
		b.t.Errorf("the process failed: %v", err)
	}
	synctest.Wait() // the last callback has returned, and its fiber is about to
	if n := b.engine.Live(); n != 0 {
		b.t.Errorf("%d fibers outlive their controller", n)
	}
	if err := b.engine.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	b.host = nil
}

// settle waits until the process is idle. It does not wait for events due after more than a few seconds.
func (b *bench) settle() { testbed.Settle(3 * time.Second) }

// requests returns the requests of the process since the last call, except lists and watches.
func (b *bench) requests() (all []string) {
	b.t.Helper()
	log := b.server.Log().Requests
	for _, r := range log[b.seen:] {
		if r.Verb != "watch" && r.Verb != "list" && r.Resource != "" {
			what := r.Verb + " " + r.Resource
			if r.Subresource != "" {
				what += "/" + r.Subresource
			}
			all = append(all, what)
		}
	}
	b.seen = len(log)
	return all
}

func (b *bench) want(reason string, want ...string) {
	b.t.Helper()
	if got := b.requests(); !slices.Equal(got, want) {
		b.t.Errorf("%s: got the requests %q, want %q", reason, got, want)
	}
}

func (b *bench) object(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	return b.objectIn(gvr, "a", name)
}

func (b *bench) objectIn(gvr schema.GroupVersionResource, ns, name string) *unstructured.Unstructured {
	u, err := b.server.Object(gvr, ns, name)
	if apierrors.IsNotFound(err) || u == nil {
		return nil
	}
	return u
}

func (b *bench) configMap(name string) *corev1.ConfigMap {
	u := b.object(testbed.ConfigMaps, name)
	if u == nil {
		return nil
	}
	var cm corev1.ConfigMap
	raw, _ := json.Marshal(u)
	if err := json.Unmarshal(raw, &cm); err != nil {
		b.t.Fatal(err)
	}
	return &cm
}

// change changes a ConfigMap as another writer.
func (b *bench) change(name string, fn func(data map[string]string)) {
	b.t.Helper()
	testbed.Change(b.t, b.server, testbed.ConfigMaps, client.Key{Namespace: "a", Name: name},
		func(u *unstructured.Unstructured) {
			data, _, _ := unstructured.NestedStringMap(u.Object, "data")
			if data == nil {
				data = map[string]string{}
			}
			fn(data)
			if err := unstructured.SetNestedStringMap(u.Object, data, "data"); err != nil {
				b.t.Fatal(err)
			}
		})
	b.settle()
}

// spec changes the gateway as another writer.
func (b *bench) spec(fn func(gw *gateway)) {
	b.t.Helper()
	gw := testbed.Stored(b.server, web)
	gw.TypeMeta = testbed.New("a", "web").TypeMeta
	fn(gw)
	testbed.Put(b.t, b.server, gw)
	b.settle()
}

func (b *bench) condition(typ string) metav1.Condition {
	b.t.Helper()
	for _, c := range testbed.Stored(b.server, web).Status.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return metav1.Condition{}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// page returns a desired ConfigMap with the size of the gateway.
func page(_ context.Context, gw *gateway) (*corev1.ConfigMap, error) {
	return configMap(gw.Name+"-page", map[string]string{"size": string(rune('0' + gw.Spec.Size))}), nil
}

func isOpen(cm *corev1.ConfigMap) bool { return cm.Data["open"] == "yes" }

// delete deletes an object as another writer.
func (b *bench) delete(gvr schema.GroupVersionResource, name string) {
	b.t.Helper()
	if err := b.server.Delete(b.t.Context(), gvr, "a", name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
}

func newEngine() *flow.Engine { return flow.NewEngine(flow.EngineOptions{}) }
