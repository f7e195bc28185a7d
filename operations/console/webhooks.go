package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// webhooksData is the data of the list of Webhooks.
type webhooksData struct {
	Namespace string
	Rows      []webhookRow
	Total     int
}

type webhookRow struct {
	Namespace, Name string
	Mode            string
	Target          string
	Concurrency     int32
	Rate            int32
	Conditions      []metav1.Condition
	Failing         bool
	Created         time.Time
	State           *webhook.TargetState // of its calls by this process; nil: none
	Outcomes        *outcomes            // of its operations; nil: none, or the reader may not list them
}

// Path returns the page of the Webhook.
func (r webhookRow) Path() string {
	return "/console/webhooks/" + url.PathEscape(r.Namespace) + "/" + url.PathEscape(r.Name)
}

// Operations returns the list of the operations that call the Webhook, in a state or in all if it is empty.
func (r webhookRow) Operations(status string) string {
	q := url.Values{"namespace": {r.Namespace}, "webhook": {r.Name}}
	if status != "" {
		q.Set("status", status)
	}
	return "/console/operations?" + q.Encode()
}

// maxWebhooks bounds the Webhooks on one page.
const maxWebhooks = 500

func webhookAccess(verb, namespace string) access.Access {
	return access.Access{
		Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "webhooks", Namespace: namespace,
	}
}

func listWebhooks(namespace string) access.Access { return webhookAccess("list", namespace) }

// webhooksPage is the list of Webhooks.
type webhooksPage struct {
	store    *cache.Store
	executor *executor.Executor
	served   *pages.Namespaces
	outcomes *webhookOutcomes
}

func (p *webhooksPage) page() pages.Page {
	return pages.Page{
		Name: "webhooks", Title: "Webhooks", Menu: true, Data: p.data, Shows: shows(v1alpha1.KindWebhook),
		Scope: &pages.Scope{Namespaces: p.served, Access: listWebhooks},
	}
}

func (p *webhooksPage) data(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	d := webhooksData{Namespace: r.URL.Query().Get("namespace")}
	states := map[cache.Key]*webhook.TargetState{}
	for _, s := range p.executor.Targets(d.Namespace, "") {
		states[cache.Key{Namespace: s.Namespace, Name: s.Webhook}] = &s
	}
	ended, err := p.outcomes.of(ctx, rd, d.Namespace)
	if err != nil {
		return nil, err
	}
	view := cache.Of[v1alpha1.Webhook](p.store)
	all := view.All()
	if d.Namespace != "" {
		all = view.InNamespace(d.Namespace)
	}
	for k, w := range all {
		d.Total++
		row := webhookRowOf(k, w, states[k])
		row.Outcomes = ended[k]
		d.Rows = append(d.Rows, row)
	}
	slices.SortFunc(d.Rows, func(a, b webhookRow) int {
		if a.Failing != b.Failing {
			if a.Failing {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	d.Rows = d.Rows[:min(len(d.Rows), maxWebhooks)]
	return d, nil
}

func webhookRowOf(k cache.Key, w *v1alpha1.Webhook, state *webhook.TargetState) webhookRow {
	row := webhookRow{
		Namespace: k.Namespace, Name: k.Name, Mode: string(w.Spec.Mode), Target: w.Spec.Request.URL,
		Concurrency: w.Spec.Concurrency, Rate: w.Spec.RatePerSecond, Conditions: w.Status.Conditions,
		Created: w.CreationTimestamp.Time, State: state,
	}
	row.Failing = slices.ContainsFunc(row.Conditions,
		func(c metav1.Condition) bool { return c.Status != metav1.ConditionTrue }) ||
		row.State != nil && row.State.Circuit != webhook.Closed
	return row
}

// webhookOutcomes counts the outcomes of operations by Webhook.
type webhookOutcomes struct {
	index *index
	lists *pages.Scope
}

// of returns the outcomes of a namespace, or of all if it is empty. It returns nil if the reader may not list the
// operations.
func (o *webhookOutcomes) of(ctx context.Context, rd *pages.Reader, namespace string) (map[cache.Key]*outcomes, error) {
	if err := o.lists.May(ctx, rd, namespace); pages.Refused(err) && !pages.Unknown(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := o.index.wait(ctx); err != nil {
		return nil, err
	}
	return o.index.outcomes(namespace), nil
}
