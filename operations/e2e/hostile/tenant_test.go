package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// tenant is an attacker with a namespace of its own.
type tenant struct {
	t         *testing.T
	s         *stage
	ctx       context.Context // ends with the attack
	namespace string
	calls     *call.Client
	clients   kubernetes.Interface
	token     string
	rnd       *rand.Rand

	mu      sync.Mutex
	blows   int            // successful requests
	refused map[string]int // failed requests, by reason
	fates   map[string]string
}

// hit counts a request, by its error.
func (a *tenant) hit(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.blows++
	case a.ctx.Err() == nil:
		a.refused[fmt.Sprintf("%T %s", err, apierrors.ReasonForError(err))]++
	}
	return err
}

// dealt returns how many requests have succeeded, and how many have failed by reason.
func (a *tenant) dealt() (blows int, refused map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blows, maps.Clone(a.refused)
}

// idle reports whether no request has succeeded yet.
func (a *tenant) idle() bool {
	blows, _ := a.dealt()
	return blows == 0
}

// webhook creates a Webhook with a URL. Failures are counted.
func (a *tenant) webhook(name, url string, change func(*v1alpha1.WebhookSpec)) {
	_ = a.hit(createWebhook(a.ctx, a.calls, a.namespace, name, url, change)) // hit counts the error
}

// operation creates an Operation about app/id.
func (a *tenant) operation(id string, change func(*v1alpha1.OperationSpec)) {
	_ = a.hit(createOperation(a.ctx, a.calls, a.namespace, id, once, change)) // hit counts the error
}

// call creates an Operation that calls a Webhook.
func (a *tenant) call(id, hook string) {
	a.operation(id, func(spec *v1alpha1.OperationSpec) { spec.WebhookIDs = []string{hook} })
}

// mustEnd demands that an operation has ended for a reason after the attack. An empty reason means success. An
// operation that was never created is not judged.
func (a *tenant) mustEnd(id, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fates[id] = reason
}

// secret creates a Secret that Webhooks may use.
func (a *tenant) secret(name string, data map[string][]byte) {
	_, err := a.clients.CoreV1().Secrets(a.namespace).Create(a.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fairlead.io/webhook-credentials": "true"}},
		Data:       data,
	}, metav1.CreateOptions{})
	_ = a.hit(err) // hit counts the error
}

// each runs do n times, some runs at a time, while the attack lasts.
func (a *tenant) each(n int, do func(i int)) {
	const atATime = 4
	var hands sync.WaitGroup
	defer hands.Wait()
	turns := make(chan int)
	defer close(turns)
	for range min(n, atATime) {
		hands.Go(func() {
			for i := range turns {
				do(i)
			}
		})
	}
	for i := range n {
		select {
		case turns <- i:
		case <-a.ctx.Done():
			return
		}
	}
}

// always repeats do in n goroutines, each at most perSecond times a second, until the attack ends.
func (a *tenant) always(n, perSecond int, do func(hand, i int)) {
	var hands sync.WaitGroup
	defer hands.Wait()
	for hand := range n {
		hands.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for i := 0; a.ctx.Err() == nil; i++ {
				do(hand, i)
				select {
				case <-tick.C:
				case <-a.ctx.Done():
				}
			}
		})
	}
}

// serve answers HTTP requests until the test ends, so that calls left over from the attack have a receiver.
func (a *tenant) serve(answer http.HandlerFunc) (url string) {
	return serve(a.t, func(w http.ResponseWriter, r *http.Request) {
		_ = a.hit(nil)
		answer(w, r)
	}).URL
}

// says answers each request with a status and a body.
func (a *tenant) says(status int, body string) (url string) {
	raw := []byte(body)
	return a.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(raw) // the caller may be gone
	})
}

// hangs sends no answer until the caller gives up, or the attack has ended.
func (a *tenant) hangs() (url string) {
	return a.serve(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-a.ctx.Done():
		}
	})
}

// raw handles each connection.
func (a *tenant) raw(handle func(net.Conn)) (url string) {
	return listen(a.ctx, a.t, func(conn net.Conn) {
		_ = a.hit(nil)
		handle(conn)
	})
}

// patch changes an object by a merge patch.
func (a *tenant) patch(operations bool, name string, change map[string]any) {
	body, err := json.Marshal(change)
	if err != nil {
		a.t.Error(err)
		return
	}
	gvr, kind := v1alpha1.WebhooksResource, v1alpha1.KindWebhook
	if operations {
		gvr, kind = v1alpha1.OperationsResource, v1alpha1.KindOperation
		name = v1alpha1.OperationName("app", name)
	}
	_, err = call.Do(a.ctx, a.calls, call.Request{
		Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: gvr, Kind: kind, Namespace: a.namespace, Name: name,
		Body: body,
	}, once)
	_ = a.hit(err) // hit counts the error
}

// remove deletes an Operation.
func (a *tenant) remove(id string) {
	_, err := call.Do(a.ctx, a.calls, call.Request{
		Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: a.namespace,
		Name: v1alpha1.OperationName("app", id), NotFoundOK: true,
	}, once)
	_ = a.hit(err) // hit counts the error
}

// fate returns how an operation has ended: Success, or the reason of its failure. It is empty while the operation runs.
func (a *tenant) fate(ctx context.Context, id string) string {
	answer, err := call.Do(ctx, a.calls, call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: a.namespace,
		Name: v1alpha1.OperationName("app", id),
	}, call.Policy{})
	op := &v1alpha1.Operation{}
	if err == nil {
		err = answer.Into(op)
	}
	switch c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); {
	case apierrors.IsNotFound(err):
		return neverMade
	case err != nil:
		return err.Error()
	case op.Status.Phase == v1alpha1.PhaseSuccess:
		return string(v1alpha1.PhaseSuccess)
	case op.Status.Phase == v1alpha1.PhaseFailed && c != nil:
		return c.Reason
	}
	return ""
}

// neverMade is the fate of an operation that the attack had no time to create.
const neverMade = "never made"

// judge waits for the demanded ends until the context ends, and returns the missing ones.
func (a *tenant) judge(ctx context.Context) (problems []string) {
	for _, id := range slices.Sorted(maps.Keys(a.fates)) {
		want := a.fates[id]
		if want == "" {
			want = string(v1alpha1.PhaseSuccess)
		}
		got := a.fate(a.s.ctx, id)
		for got == "" && pause(ctx, 50*time.Millisecond) {
			got = a.fate(a.s.ctx, id)
		}
		if got != want && got != neverMade {
			problems = append(problems, fmt.Sprintf("the attacker's operation %s ended as %q instead of %s", id, got, want))
		}
	}
	return problems
}

// leave deletes everything in the namespace, including objects with finalizers, and returns when the Operations are
// gone.
func (a *tenant) leave(ctx context.Context) error {
	objects := dynamic.NewForConfigOrDie(a.s.admin)
	var errs []error
	for _, gvr := range []schema.GroupVersionResource{
		v1alpha1.WebhooksResource, v1alpha1.OperationsResource, corev1.SchemeGroupVersion.WithResource("secrets"),
	} {
		errs = append(errs, objects.Resource(gvr).Namespace(a.namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{}))
	}
	operations := objects.Resource(v1alpha1.OperationsResource).Namespace(a.namespace)
	for ctx.Err() == nil {
		left, err := operations.List(ctx, metav1.ListOptions{Limit: 500})
		if err != nil || len(left.Items) == 0 {
			return errors.Join(append(errs, err)...)
		}
		for _, op := range left.Items {
			if kept := slices.DeleteFunc(op.GetFinalizers(),
				func(f string) bool { return f != v1alpha1.Finalizer }); len(kept) < len(op.GetFinalizers()) {
				body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": kept}})
				if err == nil {
					_, err = operations.Patch(ctx, op.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
				}
				if err != nil && !apierrors.IsNotFound(err) {
					errs = append(errs, err)
				}
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

func createWebhook(
	ctx context.Context, calls *call.Client, namespace, name, url string, change func(*v1alpha1.WebhookSpec),
) error {
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	w.Spec.Request.URL = url
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	_, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: namespace,
		Name: name, Object: w,
	}, once)
	return err
}

// once is the policy of attackers, who do not retry a refused request.
var once = call.Policy{Retries: -1}

func createOperation(
	ctx context.Context, calls *call.Client, namespace, id string, policy call.Policy, change func(
		*v1alpha1.OperationSpec,
	),
) error {
	op := newOperation(namespace, id)
	if change != nil {
		change(&op.Spec)
	}
	return submit(ctx, calls, op, policy)
}

func newOperation(namespace, id string) *v1alpha1.Operation {
	op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperationName("app", id), Namespace: namespace}}
	op.Spec.ResourceReference = v1alpha1.ResourceReference{ResourceType: "app", ResourceID: id}
	op.Spec.OperationType = v1alpha1.OperationUpdate
	return op
}

func submit(ctx context.Context, calls *call.Client, op *v1alpha1.Operation, policy call.Policy) error {
	_, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbCreate, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: op.Namespace,
		Name: op.Name, Object: op,
	}, policy)
	return err
}
