package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/install"
)

type bench struct{ *operationbed.Bench }

// smallStore starts a control plane that stores objects of up to 100 KiB, so that they are full soon.
func smallStore(t *testing.T) *rest.Config {
	t.Helper()
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{EtcdFlags: []string{"--max-request-bytes=102400"}})
	calls, err := call.New(call.Options{Config: c.Config()})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if err := install.CRDs(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	return c.Config()
}

// full fills the usual operation up to the size limit of the server. put adds about n bytes.
func (b *bench) full(put func(n int) error) {
	b.T.Helper()
	least, most := 0, 128<<10
	for most-least > 1 {
		n := (least + most) / 2
		switch err := put(n); {
		case err == nil:
			least = n
		case errors.Is(err, call.ErrTooLarge):
			most = n
		default:
			b.T.Fatal(err)
		}
	}
	if err := put(least); err != nil {
		b.T.Fatal(err)
	}
}

// fullOfAnnotations fills an object up to the last byte, without managed fields for the annotations.
func (b *bench) fullOfAnnotations() {
	b.T.Helper()
	b.full(func(n int) error {
		return b.Merge(map[string]any{
			"annotations": map[string]any{"example.com/a": strings.Repeat("x", n)}, "managedFields": []any{map[string]any{}},
		})
	})
}

// fullOfLabels fills an object with many small members.
func (b *bench) fullOfLabels() {
	b.T.Helper()
	b.full(func(n int) error {
		labels := map[string]any{}
		for i := range n / 80 {
			labels[fmt.Sprintf("app.example.com/%07d", i)] = strings.Repeat("v", 48)
		}
		for key := range b.Get().Labels {
			if _, stays := labels[key]; !stays {
				labels[key] = nil
			}
		}
		return b.Merge(map[string]any{"labels": labels, "managedFields": []any{map[string]any{}}})
	})
}

// TestTooLarge runs operations that other writers have filled up to the size limit. Each ends once, and no unrecorded
// call is made.
func TestTooLarge(t *testing.T) {
	config := smallStore(t)
	big := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	many := func(n int) string { // small members, each of which has an entry in the managed fields
		var s strings.Builder
		for i := range n / 16 {
			fmt.Fprintf(&s, `,"k%07d":1`, i)
		}
		return `{"a":"` + strings.Repeat("x", n%16) + `"` + s.String() + "}"
	}
	make1 := func(b *bench, resource string) error {
		op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: v1alpha1.OperationName(operationbed.Shop.Type, operationbed.Shop.ID),
		}}
		op.Spec = v1alpha1.OperationSpec{
			OperationID: "one", OperationType: v1alpha1.OperationDelete,
			ResourceReference: v1alpha1.ResourceReference{
				ResourceType: operationbed.Shop.Type, ResourceID: operationbed.Shop.ID,
			},
			WebhookIDs: []string{"good"}, NotifyWebhookID: "tell", CompensateWebhookIDs: []string{"undo"},
			RequestObject: &v1alpha1.RequestObject{Resource: operationbed.RawJSON(resource)},
		}
		return b.Do(call.Request{Verb: call.VerbCreate, Object: op})
	}
	created := func(resource func(int) string) func(b *bench) {
		return func(b *bench) {
			b.full(func(n int) error {
				if err := b.Do(call.Request{Verb: call.VerbDelete, NotFoundOK: true}); err != nil {
					return err
				}
				return make1(b, resource(n))
			})
		}
	}
	annotated := func(size int) func(b *bench) {
		return func(b *bench) {
			if err := make1(b, big(size)); err != nil {
				b.T.Fatal(err)
			}
			b.fullOfAnnotations()
		}
	}
	for name, tc := range map[string]struct {
		reason string
		fill   func(b *bench)
	}{
		"RequestObject": {reason: "by the request itself", fill: created(big)},
		"Unowned": {
			reason: "by the request and by annotations, without managed fields that could give way",
			fill:   annotated(60_000),
		},
		"Annotations":   {reason: "by annotations alone", fill: annotated(1)},
		"ManagedFields": {reason: "by the managed fields that the server adds", fill: created(many)},
		"Labels": {reason: "by labels", fill: func(b *bench) {
			if err := make1(b, "1"); err != nil {
				b.T.Fatal(err)
			}
			b.fullOfLabels()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{operationbed.On(t, config, clustertest.Namespace(t, config))}
			for _, id := range []string{"good", "undo", "tell"} {
				b.Webhook(id, nil)
			}
			tc.fill(b)
			recorder := &operationbed.Warnings{}
			b.Start(func(o *executor.Options) { o.Recorder = recorder })
			op := b.End(b.Get())
			if b.Reason(op) != v1alpha1.ReasonTooLarge || op.Status.FinishedAt == nil {
				t.Errorf("%s: it became %+v", tc.reason, op.Status)
			}
			for call, n := range b.Receiver.Counts("one") {
				if e := op.Status.Notification; call != "tell.notify" || n != 1 || e == nil || e.State != v1alpha1.PhaseSuccess {
					t.Errorf("%s: %s was called %d times", tc.reason, call, n)
				}
			}
			b.Eventually("reported", func() bool { return len(recorder.Told()) > 0 })
			if reported := recorder.Told(); len(reported) != 1 || !strings.HasPrefix(reported[0], v1alpha1.ReasonTooLarge) {
				t.Errorf("%s: reported was %q", tc.reason, reported)
			}
		})
	}
}

// TestOutgrown fills an operation while its call is under way. The call then succeeds, fails, or asks for a retry. If
// no further call is needed, its result decides the outcome.
func TestOutgrown(t *testing.T) {
	config := smallStore(t)
	for name, tc := range map[string]struct {
		reason  string
		request operations.Request
		code    int
		want    string // reason, empty for success
		calls   map[string]int
	}{
		"Succeeds": {
			reason:  "A success counts, although its record hardly fits.",
			request: operations.Request{Webhooks: []string{"work"}},
			code:    http.StatusOK,
			calls:   map[string]int{"work": 1},
		},
		"Fails": {
			reason: "So does a failure.", request: operations.Request{Webhooks: []string{"work"}}, code: http.StatusBadRequest,
			want: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"work": 1},
		},
		"Retries": {
			reason: "Another try cannot be recorded.", request: operations.Request{Webhooks: []string{"work"}},
			code: http.StatusServiceUnavailable,
			want: v1alpha1.ReasonTooLarge, calls: map[string]int{"work": 1},
		},
		"Next": {
			reason: "Nor can the next call, nor what should follow.", code: http.StatusOK,
			request: operations.Request{Webhooks: []string{"work", "next"}, Compensate: []string{"undo"}, Notify: "tell"},
			want:    v1alpha1.ReasonTooLarge, calls: map[string]int{"work": 1},
		},
		"Notify": {
			reason:  "A notification that cannot be recorded changes no outcome.",
			request: operations.Request{Webhooks: []string{"work"}, Notify: "tell"}, code: http.StatusOK,
			calls: map[string]int{"work": 1},
		},
		"Parallel": {
			reason: "Both calls return.", code: http.StatusBadRequest,
			request: operations.Request{Webhooks: []string{"work", "hang"}, Execution: operations.Parallel},
			want:    v1alpha1.ReasonWebhookFailed, calls: map[string]int{"work": 1, "hang": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{operationbed.On(t, config, clustertest.Namespace(t, config))}
			asked, answer := make(chan string, 4), make(chan struct{})
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
				asked <- path
				if path == "/hang" {
					<-r.Context().Done()
				}
				if path == "/work" {
					operationbed.Pause(r, answer)
					w.WriteHeader(tc.code)
					_, _ = w.Write([]byte(strings.Repeat("no ", 2000)))
				}
			}
			for _, id := range []string{"work", "next", "hang", "undo", "tell"} {
				b.Webhook(id, nil)
			}
			b.Start(nil)
			op := b.Schedule(tc.request)
			for range tc.calls {
				b.Received(asked)
			}
			b.fullOfAnnotations()
			close(answer)
			got := b.End(op)
			if b.Reason(got) != tc.want {
				t.Errorf("%s It became %+v", tc.reason, got.Status)
			}
			if diff := cmp.Diff(tc.calls, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("%s Calls, -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOutgrownCallback makes a receiver report to a full operation with a compensation, and so with a finalizer. The
// report counts, the operation ends, and it can be deleted.
func TestOutgrownCallback(t *testing.T) {
	config := smallStore(t)
	b := &bench{operationbed.On(t, config, clustertest.Namespace(t, config))}
	b.Webhook("back", operationbed.CallbackHook)
	tokens := make(chan string, 1)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		tokens <- operationbed.Token(operationbed.CallbackIn(r))
		w.WriteHeader(http.StatusAccepted)
	}
	var e *executor.Executor
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(made *executor.Executor) { e = made })
	op := b.Schedule(operations.Request{Webhooks: []string{"back"}, Compensate: []string{"back"}})
	tok := b.Received(tokens)
	b.Eventually("waiting", func() bool { return b.Get().Status.Webhooks[0].LastStatusCode == http.StatusAccepted })
	b.fullOfAnnotations()
	if err := e.Taker().Take(b.Ctx, tok, false, strings.Repeat("no ", 1000)); err != nil {
		t.Fatal(err)
	}
	if got := b.End(op); b.Reason(got) != v1alpha1.ReasonWebhookFailed {
		t.Errorf("it became %+v", got.Status)
	}
	b.Delete(op.Name)
	b.Eventually("gone",
		func() bool {
			_, err := b.Scheduler.Get(b.Ctx, operationbed.Shop)
			return errors.Is(err, operations.ErrNotFound)
		})
}

// TestFullIsCanceled cancels waiting operations that are full up to the last byte. They are compensated as far as that
// can be recorded, and end as canceled.
func TestFullIsCanceled(t *testing.T) {
	config := smallStore(t)
	for name, fill := range map[string]func(*bench){
		"Annotations": (*bench).fullOfAnnotations,
		"Labels":      (*bench).fullOfLabels,
		"Object": func(b *bench) { // which leaves no room for the cancellation
			b.fullOfAnnotations()
			if err := b.Merge(map[string]any{"annotations": map[string]any{"example.com/a": nil}}); err != nil {
				b.T.Fatal(err)
			}
			b.full(func(n int) error {
				return b.Merge(map[string]any{"annotations": map[string]any{
					v1alpha1.GroupVersion.Group + "/a": strings.Repeat("x", n),
				}})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{operationbed.On(t, config, clustertest.Namespace(t, config))}
			op := b.Schedule(operations.Request{Webhooks: []string{"missing"}, Object: strings.Repeat("x", 40<<10)})
			stop := b.Start(nil)
			b.Eventually("waiting", func() bool { return operations.ViewOf(b.Get()).Waiting != "" })
			stop() // so that no other write makes room
			fill(b)
			if _, err := b.Scheduler.Cancel(b.Ctx, operationbed.Shop, op.EffectiveID()); err != nil {
				t.Fatal(err)
			}
			b.Start(nil)
			if got := b.End(op); b.Reason(got) != v1alpha1.ReasonCanceled {
				t.Errorf("it became %+v", got.Status)
			}
		})
	}
}
