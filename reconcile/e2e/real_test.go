package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/reconcile"
)

type gateway = testbed.Gateway

// bench is a namespace of a real control plane, with a runtime of one controller and a user's client.
type bench struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	rt        *fairlead.Runtime
	user      *client.Client

	mu    sync.Mutex
	calls int
}

func setup(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	cfg := env.Config(t)
	env.InstallCRDs(t, clustertest.CRDObjects(schemaless("Gateway")))
	b := &bench{t: t, ctx: ctx, namespace: env.Namespace(t)}
	b.rt = fairlead.New(cfg, fairlead.WithScheme(testbed.Scheme()), fairlead.WithSource(cache.Namespaces(b.namespace)))
	var err error
	if b.user, err = client.New(client.Options{Config: cfg, Scheme: testbed.Scheme(), FieldOwner: "user"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.user.Close)
	return b
}

// schemaless returns a definition in the testbed's group that preserves all fields.
func schemaless(kind string) *apiextensionsv1.CustomResourceDefinition {
	singular, keep := strings.ToLower(kind), true
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List",
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + "." + testbed.GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: testbed.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
}

// await polls a condition, as a client of the API would.
func await(ctx context.Context, t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the condition does not become true")
		}
	}
}

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// start runs the controller.
func (b *bench) start(
	fn func(ctx context.Context, n int, g *gateway) (reconcile.Result, error), opts ...reconcile.Option,
) {
	r := reconcile.Func[gateway](func(ctx context.Context, g *gateway) (reconcile.Result, error) {
		b.mu.Lock()
		b.calls++
		n := b.calls
		b.mu.Unlock()
		return fn(ctx, n, g)
	})
	reconcile.New[gateway](b.rt, "gateways", r, opts...)
	b.run()
}

func (b *bench) run() {
	ctx, stop := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- b.rt.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.t.Errorf("the runtime failed: %v", err)
		}
	})
}

func (b *bench) create(name string, finalizers ...string) *gateway {
	b.t.Helper()
	g := testbed.New(b.namespace, name)
	g.Finalizers = finalizers
	if err := b.user.Create(b.ctx, g); err != nil {
		b.t.Fatal(err)
	}
	return g
}

func (b *bench) get(name string) *gateway {
	g := &gateway{}
	if err := b.user.Get(b.ctx, client.Key{Namespace: b.namespace, Name: name}, g); err != nil {
		return nil
	}
	return g
}

// quiet waits until no reconciliation has started for a while, and returns their number.
func (b *bench) quiet() int {
	b.t.Helper()
	last, since := b.count(), time.Now()
	await(b.ctx, b.t, func() bool {
		if n := b.count(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 700*time.Millisecond
	})
	return last
}

// A counter in the status strictly increases, whatever other clients write meanwhile.
func TestCounterUnderConflicts(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	var problems []string
	problem := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	b.start(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
		before := g.Status.Count
		if err := client.Modify(b.ctx, b.user, g.DeepCopyObject().(*gateway),
			func(g *gateway) error { g.Spec.Size++; return nil }); err != nil {
			return reconcile.Retry(err)
		}
		if err := client.ModifyStatus(ctx, b.rt.Client(), g, func(g *gateway) error {
			if g.Status.Count != before {
				problem("the count was %d and is %d", before, g.Status.Count)
			}
			g.Status.Count++
			return nil
		}); err != nil {
			return reconcile.Retry(err)
		}
		if back, err := client.Get[gateway](ctx, b.rt.Client(), client.KeyOf(g)); err != nil ||
			back.Status.Count != before+1 {
			problem("after %d the next read shows %v, %v", before, back, err)
		}
		if n < 15 {
			return reconcile.After(time.Millisecond), nil
		}
		return reconcile.Done, nil
	})
	b.create("web")
	await(b.ctx, t, func() bool { return b.count() >= 20 })
	mu.Lock() // the controller continues
	defer mu.Unlock()
	if len(problems) > 0 {
		t.Error(problems)
	}
}

// N own writes of the object, and of an object that it owns, lead to exactly one reconciliation. Reads in the same pass
// return them.
func TestOwnWrites(t *testing.T) {
	t.Run("objects", func(t *testing.T) {
		ownWrites(t, func(c *client.Client, g *gateway, cm *corev1.ConfigMap) (client.Applicable, error) {
			return cm, reconcile.Own(c, g, cm)
		})
	})
	t.Run("configurations", func(t *testing.T) {
		ownWrites(t, func(c *client.Client, g *gateway, cm *corev1.ConfigMap) (client.Applicable, error) {
			owner, err := reconcile.OwnerReference(c, g)
			return corev1ac.ConfigMap(cm.Name, cm.Namespace).WithData(cm.Data).WithOwnerReferences(owner), err
		})
	})
}

func ownWrites(t *testing.T, owned func(*client.Client, *gateway, *corev1.ConfigMap) (client.Applicable, error)) {
	b := setup(t)
	var problems []string
	b.start(func(ctx context.Context, _ int, g *gateway) (reconcile.Result, error) {
		c := b.rt.Client()
		for i := range 5 {
			if err := client.ModifyStatus(ctx, c, g, func(g *gateway) error { g.Status.Count++; return nil }); err != nil {
				return reconcile.Retry(err)
			}
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
				Data:       map[string]string{"n": fmt.Sprint(i)},
			}
			what, err := owned(c, g, cm)
			if err != nil {
				return reconcile.Retry(err)
			}
			if err := c.Apply(ctx, what); err != nil {
				return reconcile.Retry(err)
			}
			var live corev1.ConfigMap
			if err := c.Live().Get(ctx, client.KeyOf(cm), &live); err != nil {
				return reconcile.Retry(err)
			}
			back, err := client.Get[corev1.ConfigMap](ctx, c, client.KeyOf(cm))
			if err != nil || back.ResourceVersion != live.ResourceVersion || back.Data["n"] != fmt.Sprint(i) {
				problems = append(problems, fmt.Sprintf("get shows %v, %v", back, err))
			}
			listed := 0
			for o, err := range client.List[corev1.ConfigMap](ctx, c, client.InNamespace(g.Namespace)) {
				if err == nil && o.Name == cm.Name && o.ResourceVersion == live.ResourceVersion {
					listed++
				}
			}
			if listed != 1 {
				problems = append(problems, "a list does not show it")
			}
		}
		return reconcile.Done, nil
	}, reconcile.Owns[corev1.ConfigMap]())
	g := b.create("web")
	await(b.ctx, t, func() bool { return b.count() > 0 })
	if n := b.quiet(); n != 1 || len(problems) > 0 {
		t.Errorf("%d reconciliations; %v", n, problems)
	}
	if err := client.Modify(b.ctx, b.user, g,
		func(g *gateway) error { g.Labels = map[string]string{"l": "x"}; return nil }); err != nil {
		t.Fatal(err)
	}
	await(b.ctx, t, func() bool { return b.count() > 1 })
	if n := b.quiet(); n != 2 {
		t.Errorf("%d reconciliations after a foreign label", n)
	}
}

// A change of the spec during a patch without effect is not lost.
func TestSpecChangeDuringANoOpPatch(t *testing.T) {
	b := setup(t)
	var seen sync.Map
	b.start(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
		seen.Store(g.Generation, true)
		var wg sync.WaitGroup
		if n <= 10 {
			own := g.DeepCopyObject().(*gateway)
			wg.Go(func() {
				if err := client.Modify(b.ctx, b.user, own, func(g *gateway) error { g.Spec.Size++; return nil }); err != nil {
					b.t.Error(err)
				}
			})
		}
		defer wg.Wait()
		for range 3 {
			if err := b.rt.Client().Status().Patch(ctx, g,
				client.RawPatch(types.MergePatchType, []byte(`{"status":{"seen":7}}`)), client.Always()); err != nil {
				return reconcile.Retry(err)
			}
		}
		return reconcile.Done, nil
	})
	b.create("web")
	await(b.ctx, t, func() bool { return b.count() > 10 }) // the spec does not change any more
	last := b.get("web").Generation
	await(b.ctx, t, func() bool { _, ok := seen.Load(last); return ok })
}

// cleaner allocates in Reconcile and releases in Cleanup.
type cleaner struct {
	b        *bench
	mu       sync.Mutex
	live     map[string]bool
	created  int
	released int
	during   func(g *gateway)
}

func (c *cleaner) Reconcile(ctx context.Context, g *gateway) (reconcile.Result, error) {
	ip, err := alloc.Once(ctx, c.b.rt.Client(), g, "ip", func(_ context.Context, key string) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.created++
		c.live[key] = true
		return "ip-" + key, nil
	})
	if err != nil {
		return reconcile.Retry(err)
	}
	if c.during != nil {
		c.during(g)
	}
	return reconcile.Done, client.ModifyStatus(ctx, c.b.rt.Client(), g,
		func(g *gateway) error { g.Status.Note = map[string]string{"ip": ip}; return nil })
}

func (c *cleaner) Cleanup(ctx context.Context, g *gateway) (reconcile.Result, error) {
	return reconcile.Done, alloc.Release(ctx, c.b.rt.Client(), g, "ip", func(_ context.Context, key, _ string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.released++
		delete(c.live, key)
		return nil
	})
}

// The deletion begins during a patch of the status, and two controllers remove their finalizers concurrently.
func TestDeletionDuringAStatusPatch(t *testing.T) {
	b := setup(t)
	one := &cleaner{b: b, live: map[string]bool{}}
	one.during = func(g *gateway) {
		if err := b.user.Delete(b.ctx, g); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	reconcile.New[gateway](b.rt, "one", one, reconcile.Finalizer("test.fairlead.io/one"))
	reconcile.New[gateway](b.rt, "two", other{}, reconcile.Finalizer("test.fairlead.io/two"))
	b.run()
	for i := range 5 {
		b.create(fmt.Sprint("web-", i))
	}
	for i := range 5 {
		await(b.ctx, t, func() bool { return b.get(fmt.Sprint("web-", i)) == nil })
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.live) != 0 || one.created < 5 || one.released < 5 {
		t.Errorf("%d created, %d released, left %v", one.created, one.released, one.live)
	}
}

type other struct{}

func (other) Reconcile(context.Context, *gateway) (reconcile.Result, error) {
	return reconcile.Done, nil
}

func (other) Cleanup(context.Context, *gateway) (reconcile.Result, error) { return reconcile.Done, nil }
