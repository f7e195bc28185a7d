package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
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

// webhookPage is the page of one Webhook.
type webhookPage struct {
	store    *cache.Store
	executor *executor.Executor
	served   *pages.Namespaces
	outcomes *webhookOutcomes
	explain  explain
}

func (p *webhookPage) page() pages.Page {
	return pages.Page{
		Name: "webhook", Title: "Webhook", Path: "webhooks/{namespace}/{name}", Allow: p.mayGet, Data: p.data,
		Shows: shows(v1alpha1.KindWebhook),
	}
}

func (p *webhookPage) mayGet(ctx context.Context, rd *pages.Reader, r *http.Request) error {
	k := webhookOf(r)
	if !p.served.Serve(k.Namespace) || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
		return pages.ErrNothing
	}
	a := webhookAccess("get", k.Namespace)
	a.Name = k.Name
	return rd.May(ctx, a)
}

func (p *webhookPage) data(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	k := webhookOf(r)
	w, err := cache.Of[v1alpha1.Webhook](p.store).Get(k)
	if err != nil {
		return nil, pages.ErrNothing
	}
	d := webhookData{
		Try: w.Spec.RequestTimeout.Duration, Timeout: w.Spec.Timeout.Duration, MaxAttempts: w.Spec.Retry.MaxAttempts,
	}
	d.webhookRow = webhookRowOf(k, w, nil)
	for _, s := range p.executor.Targets(k.Namespace, k.Name) {
		d.webhookRow = webhookRowOf(k, w, &s)
	}
	if d.Why, err = p.explain(ctx, rd, why.Object{
		Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindWebhook, Namespace: k.Namespace, Name: k.Name,
	}); err != nil && !errors.Is(err, pages.ErrNothing) {
		return nil, err
	}
	all, err := p.outcomes.of(ctx, rd, k.Namespace)
	if err != nil {
		return nil, err
	}
	if d.Outcomes = all[k]; all != nil && d.Outcomes == nil {
		d.Outcomes = &outcomes{}
	}
	return d, nil
}
