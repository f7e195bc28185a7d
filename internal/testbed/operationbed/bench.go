package operationbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Shop is the default resource.
var Shop = operations.Resource{Type: "Application", ID: "a1"}

// Bench is a namespace of an API server with a scheduler, a receiver of webhook calls, and the executors that a test
// starts.
type Bench struct {
	T         *testing.T
	Ctx       context.Context //nolint:containedctx // it lives as long as the test
	Config    *rest.Config
	Calls     *call.Client
	Namespace string
	Others    []string // other namespaces that executors serve
	Scheduler *operations.Scheduler
	Receiver  *Receiver
	Probe     store.Probe // probe of the executors' stores
}

// New returns a bench on an in-memory server, which the test owns.
func New(t *testing.T) *Bench {
	t.Helper()
	return On(t, Server(t).Config(), "tenant")
}

// On returns a bench in a namespace of a server. The test may add the custom resources to the server later.
func On(t *testing.T, config *rest.Config, namespace string) *Bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	return OnFor(ctx, t, config, namespace)
}

// OnFor is like On with another context.
func OnFor(ctx context.Context, t *testing.T, config *rest.Config, namespace string) *Bench {
	t.Helper()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	b := &Bench{T: t, Ctx: ctx, Config: config, Calls: calls, Namespace: namespace}
	b.Receiver = newReceiver(t, b.Namespace)
	if b.Scheduler, err = operations.NewScheduler(
		operations.Options{Config: config, Calls: calls, Namespace: b.Namespace},
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Scheduler.Close)
	return b
}

// Neighbour returns a bench of another namespace, which the executors of b also serve.
func (b *Bench) Neighbour(namespace string) *Bench {
	b.T.Helper()
	n := *b
	n.Namespace = namespace
	var err error
	if n.Scheduler, err = operations.NewScheduler(
		operations.Options{Config: b.Config, Calls: b.Calls, Namespace: n.Namespace},
	); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(n.Scheduler.Close)
	b.Others = append(b.Others, n.Namespace)
	return &n
}

// Start runs an executor until stop is called or the test ends.
func (b *Bench) Start(change func(*executor.Options)) (stop func()) {
	b.T.Helper()
	return b.StartWith(change, func(*executor.Executor) {})
}

// StartWith is like Start, and calls made with the executor before it runs.
func (b *Bench) StartWith(change func(*executor.Options), made func(*executor.Executor)) (stop func()) {
	b.T.Helper()
	r := b.Prepare(b.Config, change)
	made(r.Executor)
	r.Begin()
	return r.Stop
}

// Replica is an executor with its own stores, which follow the API server before Begin.
type Replica struct {
	*executor.Executor
	Operations  *store.Store
	Begin, Stop func()
}

// Prepare returns an executor that does not run yet. Its stores follow the API server of config.
func (b *Bench) Prepare(config *rest.Config, change func(*executor.Options)) Replica {
	b.T.Helper()
	ctx, cancel := context.WithCancel(b.Ctx)
	var running sync.WaitGroup
	open := func(group, version, resource, kind string) *store.Store {
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		st := store.New(store.Options{
			Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Namespaced: true,
			Probe: b.Probe,
		})
		src, err := source.New(source.Config{
			REST: config, Resource: gvr,
			Namespaces: append([]string{b.Namespace}, b.Others...),
		}, st.Sink)
		if err != nil {
			b.T.Fatal(err)
		}
		running.Go(func() {
			defer st.Close()
			if err := src.Run(ctx); err != nil {
				b.T.Error(err)
			}
		})
		return st
	}
	o := executor.Options{
		Calls:      b.Calls,
		Operations: open("fairlead.io", "v1alpha1", "operations", "Operation"),
		Webhooks:   open("fairlead.io", "v1alpha1", "webhooks", "Webhook"),
		Secrets:    open("", "v1", "secrets", "Secret"), AllowTargets: []string{"127.0.0.1"},
		ServiceAccounts: open("", "v1", "serviceaccounts", "ServiceAccount"),
	}
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&o)
	}
	e, err := executor.New(o)
	if err != nil {
		b.T.Fatal(err)
	}
	r := Replica{Executor: e, Operations: o.Operations, Stop: sync.OnceFunc(func() { cancel(); running.Wait() })}
	r.Begin = func() {
		running.Go(func() {
			if err := e.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				b.T.Errorf("run: %v", err)
			}
		})
	}
	b.T.Cleanup(r.Stop)
	return r
}

// Tapped returns a client of the API server. tap handles its requests.
func (b *Bench) Tapped(tap disturb.Tap) *call.Client {
	b.T.Helper()
	calls, err := call.New(call.Options{Config: disturb.Config(b.Config, tap)})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(calls.Close)
	return calls
}

// Webhook creates a Webhook of the test's receiver. Its request timeout is the maximum, so a slow machine causes no
// retry. A test of timeouts sets a shorter one.
func (b *Bench) Webhook(name string, change func(*v1alpha1.WebhookSpec)) {
	b.T.Helper()
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.Namespace}}
	w.Spec.Request.URL = b.Receiver.URL + "/" + name
	w.Spec.Retry.InitialInterval = metav1.Duration{Duration: webhook.MinInterval}
	w.Spec.RequestTimeout = metav1.Duration{Duration: webhook.MaxRequestTimeout}
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	b.Create(v1alpha1.GroupVersion.WithResource("webhooks"), "Webhook", w)
}

// Create creates an object in the namespace.
func (b *Bench) Create(gvr schema.GroupVersionResource, kind string, obj runtime.Object) {
	b.T.Helper()
	_, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbCreate, Resource: gvr, Kind: kind, Namespace: b.Namespace, Object: obj,
		Name: obj.(metav1.Object).GetName(),
	}, call.Policy{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // an attempt whose response was late has created it
		b.T.Fatal(err)
	}
}

// Run schedules an operation and waits until it is terminal.
func (b *Bench) Run(r operations.Request) operations.View {
	b.T.Helper()
	if r.Resource.ID == "" {
		r.Resource = Shop
	}
	if r.Type == "" {
		r.Type = operations.Delete
	}
	op, err := b.Scheduler.Schedule(b.Ctx, r)
	if err != nil {
		b.T.Fatal(err)
	}
	v, err := b.Scheduler.Wait(b.Ctx, r.Resource, op.EffectiveID(), nil)
	if err != nil {
		b.T.Fatal(err)
	}
	return v
}

// Schedule schedules an operation, by default for Shop.
func (b *Bench) Schedule(r operations.Request) *v1alpha1.Operation {
	b.T.Helper()
	if r.Resource.ID == "" {
		r.Resource = Shop
	}
	if r.Type == "" {
		r.Type = operations.Delete
	}
	op, err := b.Scheduler.Schedule(b.Ctx, r)
	if err != nil {
		b.T.Fatal(err)
	}
	return op
}

// End waits until an operation is terminal and returns the object.
func (b *Bench) End(op *v1alpha1.Operation) *v1alpha1.Operation {
	b.T.Helper()
	r := operations.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	if _, err := b.Scheduler.Wait(b.Ctx, r, op.EffectiveID(), nil); err != nil {
		b.T.Fatal(err)
	}
	got, err := b.Scheduler.Get(b.Ctx, r)
	if err != nil {
		b.T.Fatal(err)
	}
	return got
}

// Reason returns the reason of the current status of an operation.
func (b *Bench) Reason(op *v1alpha1.Operation) string { return operations.ViewOf(op).Reason }

// Get returns the Operation of Shop.
func (b *Bench) Get() *v1alpha1.Operation {
	b.T.Helper()
	op, err := b.Scheduler.Get(b.Ctx, Shop)
	if err != nil {
		b.T.Fatal(err)
	}
	return op
}

// Delete deletes an Operation.
func (b *Bench) Delete(name string) {
	b.T.Helper()
	b.DeleteAny(v1alpha1.OperationsResource, v1alpha1.KindOperation, name)
}

// DeleteWebhook deletes a Webhook.
func (b *Bench) DeleteWebhook(name string) {
	b.T.Helper()
	b.DeleteAny(v1alpha1.WebhooksResource, v1alpha1.KindWebhook, name)
}

// DeleteAny deletes an object of the namespace.
func (b *Bench) DeleteAny(gvr schema.GroupVersionResource, kind, name string) {
	b.T.Helper()
	q := call.Request{Verb: call.VerbDelete, Resource: gvr, Kind: kind, Namespace: b.Namespace, Name: name}
	if _, err := call.Do(b.Ctx, b.Calls, q, call.Policy{}); err != nil {
		b.T.Fatal(err)
	}
}

// Touch changes an operation, if it exists, as another client would. It is safe for concurrent use.
func (b *Bench) Touch(name string) {
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: b.Namespace,
		Name:      name,
		PatchType: types.MergePatchType, Body: fmt.Appendf(nil, `{"metadata":{"labels":{"touched":%q}}}`, uuid.NewString()),
	}, call.Policy{}); err != nil && !apierrors.IsNotFound(err) && b.Ctx.Err() == nil {
		b.T.Errorf("cannot touch %s: %v", name, err)
	}
}

// Edit changes a Webhook by a merge patch. It is safe for concurrent use.
func (b *Bench) Edit(name, patch string) {
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: b.Namespace,
		Name:      name,
		PatchType: types.MergePatchType, Body: []byte(patch),
	}, call.Policy{}); err != nil && b.Ctx.Err() == nil {
		b.T.Errorf("cannot edit %s: %v", name, err)
	}
}

// Hook returns a Webhook.
func (b *Bench) Hook(name string) *v1alpha1.Webhook {
	b.T.Helper()
	answer, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource,
		Kind: v1alpha1.KindWebhook, Namespace: b.Namespace, Name: name,
	}, call.Policy{})
	w := &v1alpha1.Webhook{}
	if err == nil {
		err = answer.Into(w)
	}
	if err != nil {
		b.T.Fatal(err)
	}
	return w
}

// Eventually polls until ok returns true. The failure message is "never " followed by what.
func (b *Bench) Eventually(what string, ok func() bool) {
	b.T.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-b.Ctx.Done():
			b.T.Fatalf("never %s", what)
		}
	}
}

// RawJSON returns text as a JSON value.
func RawJSON(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

// Apply applies a cluster-scoped object and takes over the fields of other managers.
func (b *Bench) Apply(gvr schema.GroupVersionResource, kind string, obj runtime.Object) {
	b.T.Helper()
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbApply, Resource: gvr, Kind: kind, Name: obj.(metav1.Object).GetName(), Object: obj,
		Query: url.Values{"fieldManager": {"fairlead"}, "force": {"true"}},
	}, call.Policy{}); err != nil {
		b.T.Fatal(err)
	}
}

// PutStatus writes a status and returns the stored Operation.
func (b *Bench) PutStatus(op *v1alpha1.Operation) *v1alpha1.Operation {
	b.T.Helper()
	answer, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: op.Namespace,
		Name:        op.Name,
		Subresource: "status", Object: op,
	}, call.Policy{})
	got := &v1alpha1.Operation{}
	if err == nil {
		err = answer.Into(got)
	}
	if err != nil {
		b.T.Fatal(err)
	}
	return got
}

// Do sends a request for the Operation of Shop, without retries.
func (b *Bench) Do(q call.Request) error {
	q.Resource, q.Kind, q.Namespace, q.Name = v1alpha1.OperationsResource, v1alpha1.KindOperation, b.Namespace,
		v1alpha1.OperationName(Shop.Type, Shop.ID)
	_, err := call.Do(b.Ctx, b.Calls, q, call.Policy{Retries: -1})
	return err
}

// Merge changes the metadata of the Operation of Shop by a merge patch.
func (b *Bench) Merge(metadata map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return b.Do(call.Request{Verb: call.VerbPatch, PatchType: types.MergePatchType, Body: body})
}
