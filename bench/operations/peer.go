package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-logr/logr"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// peer is a typical operations controller: a reconciler on controller-runtime that records the attempt, calls the
// webhook during the reconciliation, records the result, and requeues to poll. It has fewer features than ours: no
// limits, no expressions, no signatures, no compensation.
type peer struct {
	client.Client
	http *http.Client
}

func runPeer(ctx context.Context, config *rest.Config, namespace string, ready func()) error {
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return err
	}
	p := &peer{m.GetClient(), &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	err = ctrl.NewControllerManagedBy(m).For(&v1alpha1.Operation{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 64}).Complete(p)
	if err != nil {
		return err
	}
	go func() {
		// Without GetInformer, the cache counts as synced before it has any informer.
		if _, err := m.GetCache().GetInformer(ctx, &v1alpha1.Operation{}); err == nil && m.GetCache().WaitForCacheSync(ctx) {
			ready()
		}
	}()
	return m.Start(ctx)
}

// Reconcile implements reconcile.Reconciler.
func (p *peer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var op v1alpha1.Operation
	if err := p.Get(ctx, req.NamespacedName, &op); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if op.Terminal() {
		return ctrl.Result{}, nil
	}
	if !op.PickedUp() {
		now := metav1.NowMicro()
		op.Status = v1alpha1.OperationStatus{
			Phase: v1alpha1.PhaseInProgress, OperationID: op.EffectiveID(),
			OperationType: op.Spec.OperationType, InitializedAt: &now,
		}
		if err := p.Status().Update(ctx, &op); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	for i, id := range op.Spec.WebhookIDs {
		if i < len(op.Status.Webhooks) && op.Status.Webhooks[i].State.Terminal() {
			continue
		}
		var hook v1alpha1.Webhook
		if err := p.Get(ctx, client.ObjectKey{Namespace: op.Namespace, Name: id}, &hook); err != nil {
			return ctrl.Result{}, err
		}
		now := metav1.NowMicro()
		if i >= len(op.Status.Webhooks) {
			op.Status.Webhooks = append(op.Status.Webhooks, v1alpha1.WebhookCallStatus{
				WebhookID: id, State: v1alpha1.PhaseInProgress, AttemptID: op.EffectiveID(), StartedAt: &now,
			})
			if err := p.Status().Update(ctx, &op); err != nil {
				return ctrl.Result{}, err
			}
		}
		entry := &op.Status.Webhooks[i]
		if entry.NextAttemptAt != nil && entry.NextAttemptAt.After(now.Time) {
			return ctrl.Result{RequeueAfter: entry.NextAttemptAt.Sub(now.Time)}, nil
		}
		url := hook.Spec.Request.URL
		if entry.WebhookPollURL != "" {
			url = entry.WebhookPollURL
		}
		resp, err := p.call(ctx, url, op.EffectiveID()+"."+id)
		if err != nil {
			return ctrl.Result{}, err
		}
		entry.LastStatusCode = int32(resp.StatusCode)
		if hook.Spec.Mode == v1alpha1.ModeAsync {
			entry.WebhookPollURL = hook.Spec.Request.URL
			next := metav1.NewMicroTime(now.Add(hook.Spec.Poll.Interval.Duration))
			entry.NextAttemptAt = &next
			if err := p.Status().Update(ctx, &op); err != nil {
				return ctrl.Result{}, err
			}
			return ctrl.Result{RequeueAfter: hook.Spec.Poll.Interval.Duration}, nil
		}
		entry.State, entry.FinishedAt = v1alpha1.PhaseSuccess, &now
	}
	now := metav1.NowMicro()
	op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseSuccess, &now
	return ctrl.Result{}, p.Status().Update(ctx, &op)
}

func (p *peer) call(ctx context.Context, url, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}
