package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation/httpapi"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// webhooksData is the list of Webhooks.
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
	State           *webhook.TargetState // of its calls by this process; nil: there were none
}

// maxWebhooks bounds what one page shows.
const maxWebhooks = 500

func webhookAccess(verb, namespace string) httpapi.Access {
	return httpapi.Access{
		Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "webhooks", Namespace: namespace,
	}
}

func (c *console) mayListWebhooks(ctx context.Context, rd *reader, r *http.Request) error {
	if namespace := r.URL.Query().Get("namespace"); namespace != "" {
		if !c.serves(namespace) {
			return errNothing
		}
		return rd.may(ctx, webhookAccess("list", namespace))
	}
	for _, namespace := range c.served() {
		if err := rd.may(ctx, webhookAccess("list", namespace)); err != nil {
			if refused(err) && !unknown(err) {
				return errWhich
			}
			return err
		}
	}
	return nil
}

func (c *console) webhooks(_ context.Context, _ *reader, r *http.Request) (any, error) {
	d := webhooksData{Namespace: r.URL.Query().Get("namespace")}
	states := map[store.Key]*webhook.TargetState{}
	for _, s := range c.Operations.Executor.Targets(d.Namespace, "") {
		states[store.Key{Namespace: s.Namespace, Name: s.Webhook}] = &s
	}
	view := store.Of[v1alpha1.Webhook](c.Operations.Webhooks)
	all := view.All()
	if d.Namespace != "" {
		all = view.InNamespace(d.Namespace)
	}
	for k, w := range all {
		d.Total++
		row := webhookRow{
			Namespace: k.Namespace, Name: k.Name, Mode: string(w.Spec.Mode), Target: w.Spec.Request.URL,
			Concurrency: w.Spec.Concurrency, Rate: w.Spec.RatePerSecond, Conditions: w.Status.Conditions,
			Created: w.CreationTimestamp.Time, State: states[k],
		}
		row.Failing = slices.ContainsFunc(row.Conditions, func(c metav1.Condition) bool { return c.Status != metav1.ConditionTrue }) ||
			row.State != nil && row.State.Circuit != webhook.Closed
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
