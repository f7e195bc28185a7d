package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// webhookData is the data of one Webhook.
type webhookData struct {
	webhookRow
	Why          why.Answer
	Try, Timeout time.Duration
	MaxAttempts  int32
}

// webhookOf returns the Webhook in the path.
func webhookOf(r *http.Request) cache.Key {
	return cache.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// mayGetWebhook checks the right to see one Webhook.
func (c *console) mayGetWebhook(ctx context.Context, rd *reader, r *http.Request) error {
	k := webhookOf(r)
	if !c.serves(k.Namespace) || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
		return errNothing
	}
	a := webhookAccess("get", k.Namespace)
	a.Name = k.Name
	return rd.may(ctx, a)
}

func (c *console) webhook(ctx context.Context, rd *reader, r *http.Request) (any, error) {
	k := webhookOf(r)
	w, err := cache.Of[v1alpha1.Webhook](c.Operations.Webhooks).Get(k)
	if err != nil {
		return nil, errNothing
	}
	d := webhookData{
		Try: w.Spec.RequestTimeout.Duration, Timeout: w.Spec.Timeout.Duration, MaxAttempts: w.Spec.Retry.MaxAttempts,
	}
	d.webhookRow = webhookRowOf(k, w, nil)
	for _, s := range c.Operations.Executor.Targets(k.Namespace, k.Name) {
		d.webhookRow = webhookRowOf(k, w, &s)
	}
	if d.Why, err = c.explain(ctx, rd, why.Object{
		Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindWebhook, Namespace: k.Namespace, Name: k.Name,
	}); err != nil && !errors.Is(err, errNothing) {
		return nil, err
	}
	all, err := c.outcomes(ctx, rd, k.Namespace)
	if err != nil {
		return nil, err
	}
	if d.Outcomes = all[k]; all != nil && d.Outcomes == nil {
		d.Outcomes = &outcomes{}
	}
	return d, nil
}
