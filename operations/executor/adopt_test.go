package executor_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestOvertaken changes the status of an operation just before a write of the executor arrives. Another executor does
// so after a pause in which leadership was lost. Whichever write it is, the executor adopts the new status, and its
// flow does not fail.
func TestOvertaken(t *testing.T) {
	end := func(op *v1alpha1.Operation) {
		now := metav1.NowMicro()
		op.Status.OperationID, op.Status.OperationType, op.Status.Phase = op.EffectiveID(), op.Spec.OperationType,
			v1alpha1.PhaseSuccess
		op.Status.InitializedAt, op.Status.FinishedAt, op.Status.ObservedGeneration = &now, &now, op.Generation
		for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionError} {
			status := metav1.ConditionFalse
			if name == v1alpha1.ConditionReady {
				status = metav1.ConditionTrue
			}
			meta.SetStatusCondition(&op.Status.Conditions, metav1.Condition{Type: name, Status: status, Reason: "ByAnother"})
		}
	}
	wipe := func(op *v1alpha1.Operation) { op.Status = v1alpha1.OperationStatus{} }
	forget := func(op *v1alpha1.Operation) { op.Status.Conditions = nil }
	odd := func(op *v1alpha1.Operation) {
		for i := range op.Status.Webhooks {
			op.Status.Webhooks[i].StartedAt = nil
		}
	}
	for name, change := range map[string]func(op *v1alpha1.Operation){
		"Ended": end, "Wiped": wipe, "NoConditions": forget, "NoStart": odd,
	} {
		for write := int32(1); write <= 11; write++ {
			t.Run(fmt.Sprint(name, write), func(t *testing.T) {
				b := setup(t)
				b.Receiver.Answer = answerByName
				for _, id := range []string{"flaky", "bad", "undo", "tell"} {
					b.Webhook(id, nil)
				}
				var writes atomic.Int32
				calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/status") && strings.Contains(r.URL.Path, "/operations/") &&
						writes.Add(1) == write {
						b.changeStatus(change)
					}
					return next.RoundTrip(r)
				})
				log := &syncBuffer{}
				r := b.Prepare(b.Config, func(o *executor.Options) { o.Calls, o.Logger = calls, log.logger() })
				r.Begin()
				op := b.End(b.Schedule(operations.Request{
					Webhooks: []string{"flaky", "bad"}, Compensate: []string{"undo"}, Notify: "tell",
				}))
				if err := r.Flows().Drain(b.Ctx); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(log.String(), "flow failed") || strings.Contains(log.String(), "panic") {
					t.Errorf("it fails after write %d:\n%s", write, log.String())
				}
				if name == "Ended" && writes.Load() >= write && op.Status.Phase != v1alpha1.PhaseSuccess {
					t.Errorf("after write %d: a second outcome: %+v", write, op.Status)
				}
			})
		}
	}
}

// changeStatus changes the status of the usual operation, as another writer would.
func (b *bench) changeStatus(change func(*v1alpha1.Operation)) {
	op, err := b.Scheduler.Get(b.Ctx, shop)
	if err == nil {
		change(op)
		_, err = call.Do(b.Ctx, b.Calls, call.Request{
			Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: op.Namespace,
			Name:        op.Name,
			Subresource: "status", Object: op,
		}, call.Policy{})
	}
	if err != nil {
		b.T.Errorf("cannot change the status: %v", err)
	}
}

// TestUnrecordedAttemptStartsNoTimeout makes the write of an attempt fail for longer than the timeout of its webhook.
// The timeout starts with the recorded attempt, so the webhook is called.
func TestUnrecordedAttemptStartsNoTimeout(t *testing.T) {
	b := setup(t)
	b.Webhook("first", nil)
	const timeout = 3 * time.Second
	b.Webhook("second", func(s *v1alpha1.WebhookSpec) { s.Timeout = metav1.Duration{Duration: timeout} })
	var since atomic.Pointer[time.Time]
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/status") && r.Method == http.MethodPut {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"webhookID":"second"`)) {
				since.CompareAndSwap(nil, new(time.Now()))
				if time.Since(*since.Load()) < timeout+timeout/4 {
					return nil, io.ErrUnexpectedEOF
				}
			}
		}
		return next.RoundTrip(r)
	})
	b.Start(func(o *executor.Options) { o.Calls, o.Policy = calls, call.Policy{Retries: -1} })
	op := b.End(b.Schedule(operations.Request{Webhooks: []string{"first", "second"}}))
	if op.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", op.Status)
	}
	if diff := cmp.Diff(map[string]int{"first": 1, "second": 1}, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}
