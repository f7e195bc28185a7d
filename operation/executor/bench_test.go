package executor_test

import (
	"context"
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

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/operation/install"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

var shop = operation.Resource{Type: "Application", ID: "a1"}

// bench is what a test of the executor works with: a namespace of its own on the real control plane.
type bench struct {
	t         *testing.T
	ctx       context.Context
	config    *rest.Config
	calls     *call.Client
	namespace string
	others    []string // namespaces that executors serve too
	scheduler *operation.Scheduler
	receiver  *receiver
	probe     store.Probe // of the stores
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := setupOn(t, env.Config(t), env.Namespace(t))
	if err := install.CRDs(b.ctx, b.calls); err != nil {
		t.Fatal(err)
	}
	return b
}

// setupOn is setup for a control plane that the test may break. It installs nothing.
func setupOn(t *testing.T, config *rest.Config, namespace string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return benchOn(ctx, t, config, namespace)
}

// benchOn is setupOn for as long as ctx.
func benchOn(ctx context.Context, t *testing.T, config *rest.Config, namespace string) *bench {
	t.Helper()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	b := &bench{t: t, ctx: ctx, config: config, calls: calls, namespace: namespace}
	b.receiver = newReceiver(t, b.namespace)
	if b.scheduler, err = operation.NewScheduler(
		operation.Options{Config: config, Calls: calls, Namespace: b.namespace},
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.scheduler.Close)
	return b
}

// start runs an executor until stop is called or the test ends.
func (b *bench) start(change func(*executor.Options)) (stop func()) {
	b.t.Helper()
	return b.startWith(change, func(*executor.Executor) {})
}

// startWith is start that tells of the executor before it runs.
func (b *bench) startWith(change func(*executor.Options), made func(*executor.Executor)) (stop func()) {
	b.t.Helper()
	r := b.prepare(b.config, change)
	made(r.Executor)
	r.run()
	return r.stop
}

// replica is an executor with stores of its own, which follow the API server before it runs.
type replica struct {
	*executor.Executor
	operations *store.Store
	run, stop  func()
}

// prepare makes an executor that does not run yet. Its stores follow the API server by a configuration of their own.
func (b *bench) prepare(config *rest.Config, change func(*executor.Options)) replica {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	open := func(group, version, resource, kind string) *store.Store {
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		st := store.New(store.Options{
			Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Namespaced: true,
			Probe: b.probe,
		})
		src, err := source.New(source.Config{
			REST: config, Resource: gvr,
			Namespaces: append([]string{b.namespace}, b.others...),
		}, st.Sink)
		if err != nil {
			b.t.Fatal(err)
		}
		running.Go(func() {
			defer st.Close()
			if err := src.Run(ctx); err != nil {
				b.t.Error(err)
			}
		})
		return st
	}
	o := executor.Options{
		Calls:      b.calls,
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
		b.t.Fatal(err)
	}
	r := replica{Executor: e, operations: o.Operations, stop: sync.OnceFunc(func() { cancel(); running.Wait() })}
	r.run = func() {
		running.Go(func() {
			if err := e.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				b.t.Errorf("run: %v", err)
			}
		})
	}
	b.t.Cleanup(r.stop)
	return r
}

// tapped returns a client of the API server whose requests pass through tap.
func (b *bench) tapped(tap disturb.Tap) *call.Client {
	b.t.Helper()
	calls, err := call.New(call.Options{Config: disturb.Config(b.config, tap)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(calls.Close)
	return calls
}

// webhook makes a Webhook of the test's receiver.
func (b *bench) webhook(name string, change func(*v1alpha1.WebhookSpec)) {
	b.t.Helper()
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace}}
	w.Spec.Request.URL = b.receiver.URL + "/" + name
	w.Spec.Retry.InitialInterval = metav1.Duration{Duration: webhook.MinInterval}
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	b.create(v1alpha1.GroupVersion.WithResource("webhooks"), "Webhook", w)
}

func (b *bench) create(gvr schema.GroupVersionResource, kind string, obj runtime.Object) {
	b.t.Helper()
	_, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbCreate, Resource: gvr, Kind: kind, Namespace: b.namespace, Object: obj,
		Name: obj.(metav1.Object).GetName(),
	}, call.Policy{})
	if err != nil {
		b.t.Fatal(err)
	}
}

// schedule schedules an operation and waits for its end.
func (b *bench) run(r operation.Request) operation.View {
	b.t.Helper()
	if r.Resource.ID == "" {
		r.Resource = operation.Resource{Type: "Application", ID: "a1"}
	}
	if r.Type == "" {
		r.Type = operation.Delete
	}
	op, err := b.scheduler.Schedule(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	v, err := b.scheduler.Wait(b.ctx, r.Resource, op.EffectiveID(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// schedule schedules an operation of the usual resource.
func (b *bench) schedule(r operation.Request) *v1alpha1.Operation {
	b.t.Helper()
	if r.Resource.ID == "" {
		r.Resource = shop
	}
	if r.Type == "" {
		r.Type = operation.Delete
	}
	op, err := b.scheduler.Schedule(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

// end waits for the end of an operation and returns the object.
func (b *bench) end(op *v1alpha1.Operation) *v1alpha1.Operation {
	b.t.Helper()
	r := operation.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	if _, err := b.scheduler.Wait(b.ctx, r, op.EffectiveID(), nil); err != nil {
		b.t.Fatal(err)
	}
	got, err := b.scheduler.Get(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) reason(op *v1alpha1.Operation) string { return operation.ViewOf(op).Reason }

func (b *bench) get() *v1alpha1.Operation {
	b.t.Helper()
	op, err := b.scheduler.Get(b.ctx, shop)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

func (b *bench) delete(name string) {
	b.t.Helper()
	b.deleteAny(v1alpha1.OperationsResource, v1alpha1.KindOperation, name)
}

func (b *bench) deleteWebhook(name string) {
	b.t.Helper()
	b.deleteAny(v1alpha1.WebhooksResource, v1alpha1.KindWebhook, name)
}

func (b *bench) deleteAny(gvr schema.GroupVersionResource, kind, name string) {
	b.t.Helper()
	q := call.Request{Verb: call.VerbDelete, Resource: gvr, Kind: kind, Namespace: b.namespace, Name: name}
	if _, err := call.Do(b.ctx, b.calls, q, call.Policy{}); err != nil {
		b.t.Fatal(err)
	}
}

// touch changes an operation, if it exists, as somebody else would. It may be called by any goroutine.
func (b *bench) touch(name string) {
	if _, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: b.namespace,
		Name:      name,
		PatchType: types.MergePatchType, Body: fmt.Appendf(nil, `{"metadata":{"labels":{"touched":%q}}}`, uuid.NewString()),
	}, call.Policy{}); err != nil && !apierrors.IsNotFound(err) && b.ctx.Err() == nil {
		b.t.Errorf("cannot touch %s: %v", name, err)
	}
}

// edit changes a Webhook by a merge patch. It may be called by any goroutine.
func (b *bench) edit(name, patch string) {
	if _, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbPatch, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: b.namespace,
		Name:      name,
		PatchType: types.MergePatchType, Body: []byte(patch),
	}, call.Policy{}); err != nil && b.ctx.Err() == nil {
		b.t.Errorf("cannot edit %s: %v", name, err)
	}
}

func (b *bench) hook(name string) *v1alpha1.Webhook {
	b.t.Helper()
	answer, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource,
		Kind: v1alpha1.KindWebhook, Namespace: b.namespace, Name: name,
	}, call.Policy{})
	w := &v1alpha1.Webhook{}
	if err == nil {
		err = answer.Into(w)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// eventually looks until something is as wanted.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("never %s", what)
		}
	}
}

func rawJSON(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

// apply takes over all of a cluster's object.
func (b *bench) apply(gvr schema.GroupVersionResource, kind string, obj runtime.Object) {
	b.t.Helper()
	if _, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbApply, Resource: gvr, Kind: kind, Name: obj.(metav1.Object).GetName(), Object: obj,
		Query: url.Values{"fieldManager": {"fairlead"}, "force": {"true"}},
	}, call.Policy{}); err != nil {
		b.t.Fatal(err)
	}
}

// putStatus writes a status and returns what has become of it.
func (b *bench) putStatus(op *v1alpha1.Operation) *v1alpha1.Operation {
	b.t.Helper()
	answer, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: op.Namespace,
		Name:        op.Name,
		Subresource: "status", Object: op,
	}, call.Policy{})
	got := &v1alpha1.Operation{}
	if err == nil {
		err = answer.Into(got)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}
