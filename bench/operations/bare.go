package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// bare makes only the writes of an operation with one synchronous webhook: the creation, and the status at the end
// when the creation has been answered. It has no watch and calls no webhook, so its result is a bound for any
// controller.
func (b *bench) bare(s *station, calls *call.Client, namespace string, n int) error {
	one := func(id string) error {
		op, err := s.create(id, "", "sync")
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		op.Status = v1alpha1.OperationStatus{
			Phase: v1alpha1.PhaseSuccess, OperationID: op.EffectiveID(), OperationType: op.Spec.OperationType,
			InitializedAt: &now,
			FinishedAt:    &now, ObservedGeneration: op.Generation,
			Webhooks: []v1alpha1.WebhookCallStatus{{
				WebhookID: "sync", State: v1alpha1.PhaseSuccess, AttemptID: op.EffectiveID(), StartedAt: &now, FinishedAt: &now,
				LastStatusCode: 200,
			}},
		}
		for name, status := range map[string]metav1.ConditionStatus{
			v1alpha1.ConditionReady: metav1.ConditionTrue, v1alpha1.ConditionError: metav1.ConditionFalse,
		} {
			meta.SetStatusCondition(&op.Status.Conditions, metav1.Condition{
				Type: name, Status: status, Reason: v1alpha1.ReasonSucceeded, ObservedGeneration: op.Generation,
			})
		}
		return writeStatus(s.ctx, calls, namespace, op)
	}
	var idle []time.Duration
	for i := range 60 {
		began := time.Now()
		if err := one(fmt.Sprint("idle", i)); err != nil {
			return err
		}
		idle = append(idle, time.Since(began))
	}
	slices.Sort(idle)
	b.add(rowLatency, "bare", float64(idle[len(idle)/2])/1e6)

	var next atomic.Int64
	var writers sync.WaitGroup
	errs := make(chan error, schedulers)
	began := time.Now()
	for range schedulers {
		writers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := one(fmt.Sprint("load", i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	writers.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	b.add(rowThroughput, "bare", float64(n)/time.Since(began).Seconds())
	return nil
}

// writeStatus writes the status of an operation and sets its resource version from the response.
func writeStatus(ctx context.Context, calls *call.Client, namespace string, op *v1alpha1.Operation) error {
	answer, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: "Operation",
		Namespace: namespace, Name: op.Name, Subresource: "status", Object: op,
	}, call.Policy{})
	if err != nil {
		return err
	}
	*op = v1alpha1.Operation{}
	return answer.Into(op)
}
