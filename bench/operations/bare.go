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

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
)

// bare writes what an operation with one synchronous webhook needs, and does nothing else: the creation, the record of
// the attempt, and the end, each as soon as the one before has been answered. No watch tells it anything and no webhook
// is called, so it is a bound for whoever does that too.
func (b *bench) bare(s *station, calls *call.Client, namespace string, n int) error {
	one := func(id string) error {
		op, err := s.create(id, "", "sync")
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		op.Status = v1alpha1.OperationStatus{
			Phase: v1alpha1.PhaseInProgress, OperationID: op.EffectiveID(), OperationType: op.Spec.OperationType, InitializedAt: &now,
			ObservedGeneration: op.Generation,
			Webhooks: []v1alpha1.WebhookCallStatus{{
				WebhookID: "sync", State: v1alpha1.PhaseInProgress, AttemptID: op.EffectiveID(), StartedAt: &now,
			}},
		}
		conditions(op, metav1.ConditionFalse, v1alpha1.ReasonInProgress)
		if err := writeStatus(s.ctx, calls, namespace, op); err != nil {
			return err
		}
		op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseSuccess, &now
		entry := &op.Status.Webhooks[0]
		entry.State, entry.FinishedAt, entry.LastStatusCode = v1alpha1.PhaseSuccess, &now, 200
		conditions(op, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
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

func conditions(op *v1alpha1.Operation, ready metav1.ConditionStatus, reason string) {
	for name, status := range map[string]metav1.ConditionStatus{v1alpha1.ConditionReady: ready, v1alpha1.ConditionError: metav1.ConditionFalse} {
		meta.SetStatusCondition(&op.Status.Conditions, metav1.Condition{Type: name, Status: status, Reason: reason, ObservedGeneration: op.Generation})
	}
}

// writeStatus writes the status of an operation and takes the version of what was written.
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
