package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

type (
	configMap = corev1.ConfigMap
	fn        = reconcile.Func[configMap]
)

// world is a namespace of the control plane, with a stuck program and another client.
type world struct {
	*testing.T
	ns   string
	cfg  *rest.Config
	kube kubernetes.Interface // of the other client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := env.Config(t)
	return at(t, cfg, env.Namespace(t))
}

func at(t *testing.T, cfg *rest.Config, ns string) *world {
	t.Helper()
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, ns: ns, cfg: cfg, kube: kube}
}

// patience bounds each wait. On a machine that is busy with other tests a wait may take minutes.
const patience = testlimit.Wait

// run runs a program until the test ends.
func (w *world) run(rt *fairlead.Runtime) *fairlead.Runtime {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Logf("the program ended with %v", err)
		}
	})
	return rt
}

// program runs one controller of the ConfigMaps of the namespace.
func (w *world) program(r reconcile.Reconciler[configMap], opts ...reconcile.Option) *fairlead.Runtime {
	w.Helper()
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", r, append([]reconcile.Option{here(w), reconcile.WithoutEvents()}, opts...)...)
	return w.run(rt)
}

// here restricts a controller to the namespace of the test.
func here(w *world, more ...cache.Option) reconcile.Option {
	return reconcile.Primary(reconcile.From(append(more, cache.Namespaces(w.ns))...))
}

// put creates a ConfigMap.
func (w *world) put(name string, change ...func(*configMap)) *configMap {
	w.Helper()
	m := &configMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, fn := range change {
		fn(m)
	}
	out, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(), m, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// user returns the configuration of a user who has these permissions in the namespace and may read its ConfigMaps.
func (w *world) user(rules ...rbacv1.PolicyRule) *rest.Config {
	w.Helper()
	name := "user-of-" + w.ns
	rules = append(rules, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"},
	})
	rbac := w.kube.RbacV1()
	_, err := rbac.Roles(w.ns).Create(w.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Rules: rules},
		metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.RoleBindings(w.ns).Create(w.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "user"}, RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "Role",
				Name: "user",
			},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	cfg := rest.CopyConfig(w.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name}
	return cfg
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// expect waits until the first cause about a ConfigMap has a type and some evidence, given as parts of its values.
func (w *world) expect(rt *fairlead.Runtime, name string, first why.Type, evidence map[string]string) why.Answer {
	w.Helper()
	return w.expectOf(rt, why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: name}, first, evidence)
}

func (w *world) expectOf(rt *fairlead.Runtime, of why.Object, first why.Type, evidence map[string]string) why.Answer {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last why.Answer
	for {
		a, err := rt.Why(ctx, of)
		if err == nil {
			last = a
		}
		if err == nil && len(a.Causes) > 0 && a.Causes[0].Type == first && missing(a.Causes[0], evidence) == "" {
			w.Logf("%s: %s", first, a.Causes[0].Message)
			if fine := first == why.Ended || a.Causes[0].Progress; a.Stuck == fine {
				w.Errorf("stuck is %v: %+v", a.Stuck, a)
			}
			return a
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text := fmt.Sprint(err)
			for _, c := range last.Causes {
				text += fmt.Sprintf("\n  %s: %s %v", c.Type, c.Message, c.Evidence)
			}
			w.Fatalf("want first %s with %v, got: %s", first, evidence, text)
		}
	}
}

// has waits until one of the causes has a type.
func (w *world) has(rt *fairlead.Runtime, name string, want why.Type) why.Cause {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := rt.Why(ctx, why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: name})
		for _, c := range a.Causes {
			if c.Type == want {
				return c
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("want %s, got %+v, %v", want, a, err)
		}
	}
}

// missing returns the name of evidence that the cause lacks.
func missing(c why.Cause, evidence map[string]string) string {
	for name, part := range maps.All(evidence) {
		if got, ok := c.Evidence[name]; !ok || !strings.Contains(got, part) {
			return name
		}
	}
	return ""
}

// secret returns the object that programs write.
func secret(ns, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// does runs a program that calls a function for each object.
func does(
	do func(ctx context.Context, c *client.Client, m *configMap) error, opts ...reconcile.Option,
) func(*world) *fairlead.Runtime {
	return func(w *world) *fairlead.Runtime {
		var rt *fairlead.Runtime
		ready := make(chan struct{})
		rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
			<-ready
			return reconcile.Retry(do(ctx, rt.Client(), m))
		}), opts...)
		close(ready)
		return rt
	}
}

// fails returns a function that returns an error.
func fails(err error) func(context.Context, *client.Client, *configMap) error {
	return func(context.Context, *client.Client, *configMap) error { return err }
}

// status returns a failure response of an API server.
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
