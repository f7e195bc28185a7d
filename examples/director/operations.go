package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

const resourceType = "Application"

// Unregistrations is the selector of the operations of this director.
var Unregistrations = observe.Selector("unregistrations")

// webhookName is the name of the Webhook of an application.
func webhookName(applicationID string) string { return "application-" + applicationID }

// deliverer schedules the committed entries of the outbox. It may be called more than once for an entry, so all its
// steps are idempotent.
type deliverer struct {
	apps      *applications
	client    *client.Client
	scheduler *operations.Scheduler
	namespace string
}

func (d *deliverer) deliver(ctx context.Context, e outbox.Entry) error {
	var request operations.Request
	if err := json.Unmarshal(e.Payload, &request); err != nil {
		return outbox.Reject(err)
	}
	if len(request.Webhooks) > 0 {
		app, err := d.apps.get(ctx, request.Resource.ID)
		if err == nil && app.Webhook != nil {
			err = d.ensureWebhook(ctx, app)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.scheduler.Schedule(ctx, request)
	switch {
	case errors.Is(err, operations.ErrInProgress):
		return outbox.RetryAfter(time.Second, err)
	case errors.Is(err, operations.ErrInvalid), errors.Is(err, operations.ErrIDReused):
		return errors.Join(outbox.Reject(err), d.apps.ended(ctx, request.Resource.ID, request.ID, err.Error()))
	}
	return err
}

// ensureWebhook creates the Webhook of an application.
func (d *deliverer) ensureWebhook(ctx context.Context, app Application) error {
	body := `{"application": {{json .Resource}}, "operation": "{{.Operation.operationID}}"}`
	hook := &v1alpha1.Webhook{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Webhook"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: webhookName(app.ID)},
		Spec: v1alpha1.WebhookSpec{
			Mode:    v1alpha1.WebhookMode(app.Webhook.Mode),
			Request: v1alpha1.WebhookRequest{URL: app.Webhook.URL, Body: &body},
			Poll:    v1alpha1.WebhookPoll{Interval: metav1.Duration{Duration: time.Second}},
		},
	}
	if err := d.client.Apply(ctx, hook); err != nil {
		return fmt.Errorf("cannot make webhook of application %s: %w", app.ID, err)
	}
	return nil
}

// watcher applies the outcomes of operations to the rows.
type watcher struct {
	apps   *applications
	client *client.Client
}

func (w *watcher) changed(ctx context.Context, e observe.Event[v1alpha1.Operation]) error {
	op := e.Object()
	if op == nil || e.Type == observe.Deleted || op.Spec.ResourceType != resourceType || !op.Terminal() {
		return nil
	}
	v := operations.ViewOf(op)
	if err := w.apps.ended(ctx, v.ResourceID, v.OperationID, v.Error); err != nil {
		return err
	}
	if v.Status != operations.Succeeded {
		return nil
	}
	hook := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: op.Namespace, Name: webhookName(v.ResourceID)}}
	return w.client.Delete(ctx, hook, client.IgnoreNotFound())
}
