package operations_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

var shop = operations.Resource{Type: "Application", ID: "shop"}

// bench is a namespace of an API server, without an executor: tests end operations themselves.
type bench struct {
	t      *testing.T
	ctx    context.Context
	config *rest.Config
	calls  *call.Client
	*operations.Scheduler
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	config := operationbed.Server(t).Config()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	s, err := operations.NewScheduler(operations.Options{Config: config, Calls: calls, Namespace: "tenant"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &bench{t, ctx, config, calls, s}
}

// finish ends the operation of a resource as an executor would.
func (b *bench) finish(r operations.Resource, phase v1alpha1.Phase) {
	b.t.Helper()
	op, err := b.Get(b.ctx, r)
	if err == nil {
		setEnd(op, phase)
		_, err = call.Do(b.ctx, b.calls, call.Request{
			Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: "Operation",
			Namespace: op.Namespace, Name: op.Name, Subresource: "status", Object: op,
		}, call.Policy{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// setEnd sets the status and the history of an ended Operation.
func setEnd(op *v1alpha1.Operation, phase v1alpha1.Phase) {
	if old := op.Status; old.OperationID != "" && old.OperationID != op.EffectiveID() {
		op.Status = v1alpha1.OperationStatus{History: append([]v1alpha1.FinishedOperation{{
			OperationID: old.OperationID, OperationType: old.OperationType, Phase: old.Phase, FinishedAt: *op.Status.FinishedAt,
		}}, old.History[:min(len(old.History), 9)]...)}
	}
	now := v1alpha1.FinishedOperation{}.FinishedAt
	now.Time = time.Now()
	op.Status.Phase, op.Status.OperationID, op.Status.OperationType, op.Status.FinishedAt = phase, op.EffectiveID(),
		op.Spec.OperationType, &now
}

func TestIdempotency(t *testing.T) {
	b := setup(t)
	request := operations.Request{
		ID: "one", Type: operations.Delete, Resource: shop,
		Object: map[string]any{"b": 1, "a": []int{2}},
	}
	for range 2 {
		if _, err := b.Schedule(b.ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	changed := request
	changed.Object = map[string]any{"b": 2}
	if _, err := b.Schedule(b.ctx, changed); !errors.Is(err, operations.ErrIDReused) {
		t.Errorf("the same id for another request: %v", err)
	}
	b.finish(shop, v1alpha1.PhaseFailed)
	op, err := b.Schedule(b.ctx, request)
	if err != nil || op.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("after its end: %v %v", op, err)
	}
	if _, err := b.Schedule(b.ctx, operations.Request{ID: "two", Type: operations.Delete, Resource: shop}); err != nil {
		t.Fatal(err)
	}
	// Not picked up yet: the old outcome does not belong to the new request.
	op, err = b.Get(b.ctx, shop)
	if err != nil || op.Terminal() || operations.ViewOf(op).Status != operations.InProgress {
		t.Errorf("a request that was not picked up: %+v %v", op.Status, err)
	}
	if _, err := b.Schedule(b.ctx,
		operations.Request{ID: "three", Type: operations.Delete, Resource: shop}); !errors.Is(err,
		operations.ErrInProgress) {
		t.Errorf("another one meanwhile: %v", err)
	}
	for _, when := range []string{"before its successor was picked up", "in the history"} {
		old, err := b.Schedule(b.ctx, request)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if v := operations.ViewOf(old); v.Status != operations.Failed || v.OperationID != "one" || v.FinishedAt == nil ||
			!v.CreatedAt.IsZero() {
			t.Errorf("%s: %+v", when, v)
		}
		changed := request
		changed.Type = operations.Update
		if _, err := b.Schedule(b.ctx, changed); !errors.Is(err, operations.ErrIDReused) {
			t.Errorf("%s, the same id for another request: %v", when, err)
		}
		if v, err := b.Wait(b.ctx, shop, "one", nil); err != nil || v.Status != operations.Failed {
			t.Errorf("%s, waiting: %+v %v", when, v, err)
		}
		b.finish(shop, v1alpha1.PhaseSuccess)
	}
}

func TestInvalidIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	b := setup(t)
	_, err := b.Schedule(b.ctx, operations.Request{
		Type: "Drop", Resource: operations.Resource{Type: "a\xff"}, Webhooks: []string{"x", "x"},
	})
	var invalid *operations.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, operations.ErrInvalid) {
		t.Fatal(err)
	}
	var fields []string
	for _, f := range invalid.Fields {
		fields = append(fields, f.Field)
	}
	if diff := cmp.Diff([]string{"spec.operationType", "spec.resourceID", "spec.resourceType", "spec.webhookIDs[1]"},
		fields); diff != "" {
		t.Errorf("every reason: -want +got:\n%s", diff)
	}
	for op, err := range b.List(b.ctx, operations.Query{}) {
		t.Errorf("written: %v %v", op, err)
	}
}

func TestListOfAllNamespaces(t *testing.T) {
	b := setup(t)
	other, err := operations.NewScheduler(operations.Options{Calls: b.calls, Namespace: "neighbour"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	for _, s := range []*operations.Scheduler{b.Scheduler, other} {
		if _, err := s.Schedule(b.ctx, operations.Request{Type: operations.Create, Resource: shop}); err != nil {
			t.Fatal(err)
		}
	}
	for all, want := range map[bool][]string{false: {"tenant"}, true: {"neighbour", "tenant"}} {
		var got []string
		for op, err := range b.List(b.ctx, operations.Query{AllNamespaces: all}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, op.Namespace)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("all namespaces: %v: -want +got:\n%s", all, diff)
		}
	}
}

func TestWait(t *testing.T) {
	b := setup(t)
	if _, err := b.Wait(b.ctx, shop, "", nil); !errors.Is(err, operations.ErrNotFound) {
		t.Errorf("there is none: %v", err)
	}
	waited := make(chan operations.View, 1)
	var waits sync.WaitGroup
	waits.Go(func() { // before the status is written
		v, err := b.Wait(b.ctx, shop, "one", nil)
		if err != nil {
			t.Error(err)
		}
		waited <- v
	})
	for i, id := range []string{"one", "two", "three"} {
		if _, err := b.Schedule(b.ctx, operations.Request{ID: id, Type: operations.Update, Resource: shop}); err != nil {
			t.Fatal(err)
		}
		b.finish(shop, []v1alpha1.Phase{v1alpha1.PhaseFailed, v1alpha1.PhaseSuccess, v1alpha1.PhaseSuccess}[i])
	}
	waits.Wait()
	if v := <-waited; v.OperationID != "one" || v.Status != operations.Failed {
		t.Errorf("waited: %+v", v)
	}
	if v, err := b.Wait(b.ctx, shop, "two", nil); err != nil || v.OperationID != "two" ||
		v.Status != operations.Succeeded {
		t.Errorf("one of the history: %+v %v", v, err)
	}
	ended, cancel := context.WithCancelCause(b.ctx)
	why := errors.New("enough")
	cancel(why)
	if _, err := b.Wait(ended, shop, "four", nil); !errors.Is(err, why) {
		t.Errorf("cause: %v", err)
	}
}

func TestCancelAndRetry(t *testing.T) {
	b := setup(t)
	if _, err := b.Cancel(b.ctx, shop, ""); !errors.Is(err, operations.ErrNotFound) {
		t.Errorf("cancel of none: %v", err)
	}
	if _, err := b.Schedule(b.ctx, operations.Request{
		ID: "one", Type: operations.Update, Resource: shop, Category: "c",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Retry(b.ctx, shop); !errors.Is(err, operations.ErrInProgress) {
		t.Errorf("retry while it runs: %v", err)
	}
	if _, err := b.Cancel(b.ctx, shop, "other"); !errors.Is(err, operations.ErrNotFound) {
		t.Errorf("cancel of another id: %v", err)
	}
	for range 2 {
		if op, err := b.Cancel(b.ctx, shop, "one"); err != nil || !op.Spec.CancelRequested {
			t.Errorf("cancel: %v %v", op, err)
		}
	}
	b.finish(shop, v1alpha1.PhaseFailed)
	if _, err := b.Cancel(b.ctx, shop, "one"); !errors.Is(err, operations.ErrEnded) {
		t.Errorf("cancel after the end: %v", err)
	}
	// Another caller retries first, and that operation has also ended when the write arrives.
	config := rest.CopyConfig(b.config)
	var faster sync.Once
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				faster.Do(func() {
					if op, err := b.Retry(b.ctx, shop); err != nil || op.Spec.CancelRequested || op.EffectiveID() == "one" ||
						op.Spec.OperationCategory != "c" {
						t.Errorf("retry: %+v %v", op, err)
					}
					b.finish(shop, v1alpha1.PhaseFailed)
				})
			}
			return next.RoundTrip(r)
		})
	})
	slow, err := operations.NewScheduler(operations.Options{Config: config, Namespace: b.Namespace()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	if op, err := slow.Retry(b.ctx, shop); !errors.Is(err, operations.ErrFollowed) {
		t.Errorf("a failure was retried twice: %v %v", op, err)
	}
	op, err := b.Retry(b.ctx, shop)
	if err != nil {
		t.Fatal(err)
	}
	b.finish(shop, v1alpha1.PhaseSuccess)
	if again, err := b.Retry(b.ctx, shop); !errors.Is(err, operations.ErrSucceeded) {
		t.Errorf("retry of a success: %v %v", again, err)
	}
	if v, err := b.Wait(b.ctx, shop, op.EffectiveID(), nil); err != nil || v.Status != operations.Succeeded {
		t.Errorf("after that: %+v %v", v, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWaitForADeletedOperation deletes operations while a caller waits for them, as an executor does without a time to
// live.
func TestWaitForADeletedOperation(t *testing.T) {
	b := setup(t)
	remove := func() {
		t.Helper()
		if _, err := call.Do(b.ctx, b.calls, call.Request{
			Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: "Operation",
			Namespace: b.Namespace(), Name: v1alpha1.OperationName(shop.Type, shop.ID),
		}, call.Policy{}); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		reason string
		ended  bool
	}{
		"Ended":   {"The last known state is its end, which is the result.", true},
		"Running": {"It never ends.", false},
	}
	for name, tc := range tests {
		op, err := b.Schedule(b.ctx, operations.Request{Type: operations.Update, Resource: shop})
		if err != nil {
			t.Fatal(err)
		}
		once := sync.OnceFunc(func() {
			if tc.ended {
				b.finish(shop, v1alpha1.PhaseSuccess)
			}
			remove()
		})
		v, err := b.WaitFor(b.ctx, op, func(operations.View) { once() }) // by then the waiter has seen the operation
		if ended := err == nil && v.Status == operations.Succeeded; ended != tc.ended ||
			!ended && !errors.Is(err, operations.ErrNotFound) {
			t.Errorf("%s: %s: %+v %v", name, tc.reason, v, err)
		}
		if v, err := b.WaitFor(b.ctx, op, nil); !errors.Is(err, operations.ErrNotFound) {
			t.Errorf("%s: after it was deleted: %+v %v", name, v, err)
		}
	}
}

// An ended operation that is being deleted still blocks the next one, and the error says so.
func TestInProgressErrorSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	op := &v1alpha1.Operation{}
	op.Spec.OperationID, op.Spec.OperationType = "1", v1alpha1.OperationCreate
	op.Spec.ResourceType, op.Spec.ResourceID = "app", "shop"
	err := &operations.InProgressError{Running: op}
	if got := err.Error(); got != "operation 1 (Create) of app/shop is in progress" {
		t.Error(got)
	}
	op.Status.OperationID, op.Status.Phase = "1", v1alpha1.PhaseSuccess
	if got := err.Error(); got != "operation 1 (Create) of app/shop is being deleted" {
		t.Error(got)
	}
}
