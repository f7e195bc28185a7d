package console

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/executor"
)

func sourceOf(kind schema.GroupVersionKind, st inspect.Scope) inspect.Source {
	return inspect.Source{Kind: kind, Running: true, Status: []inspect.Scope{st}}
}

var (
	webhookKind = v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook)
	opKind      = v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation)
)

// TestOneDecision: the overview shows the program as healthy exactly if no page has a banner.
func TestOneDecision(t *testing.T) {
	t.Parallel()
	render := renderOf(t)
	for name, tc := range map[string]struct {
		reason string
		status inspect.Scope
		// texts of the page
		card   string
		banner bool
	}{
		"quiet": {
			"a quiet watch is confirmed every minute",
			inspect.Scope{Phase: string(source.Watching), Staleness: time.Minute, Silence: time.Minute},
			"healthy", false,
		},
		"late": {
			"/healthz fails from five minutes on, and the page is old before",
			inspect.Scope{Phase: string(source.Watching), Staleness: 3 * time.Minute, Silence: 3 * time.Minute},
			"not healthy", true,
		},
		"degraded": {
			"the server refuses to answer",
			inspect.Scope{Phase: string(source.Degraded), Staleness: time.Second, Silence: time.Second},
			"not healthy", true,
		},
		"not served": {
			"other pages are not affected",
			inspect.Scope{
				Phase: string(source.Degraded), Reason: string(source.ReasonNotFound), Refused: true, Staleness: time.Hour,
				Silence: time.Second,
			},
			"limited", false,
		},
		"not served, and then silence": {
			"the last answer is old",
			inspect.Scope{
				Phase: string(source.Degraded), Reason: string(source.ReasonDisconnected), Refused: true, Staleness: time.Hour,
				Silence: 3 * time.Minute,
			},
			"not healthy", true,
		},
	} {
		status := inspect.Runtime{Sources: []inspect.Source{sourceOf(webhookKind, tc.status)}}
		page := &overview{
			status: func() inspect.Runtime { return status }, fibers: func() int { return 0 }, rates: newRates(nil),
		}
		data, err := page.data(t.Context(), nil, nil)
		var text strings.Builder
		if err == nil {
			err = render.Part(&text, "overview", "main", pages.View{Data: data, Health: healthOf(status, nil)})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "</i> "+tc.card+"</p>") ||
			strings.Contains(text.String(), "has not confirmed this state") != tc.banner {
			t.Errorf("%s: %s: want %q, banner %v:\n%s", name, tc.reason, tc.card, tc.banner, text.String())
		}
	}
}

// TestConditionsOnTheirPages: the pages that show a refused resource, and no others, have a notice.
func TestConditionsOnTheirPages(t *testing.T) {
	t.Parallel()
	refused := inspect.Scope{
		Phase: string(source.Degraded), Reason: string(source.ReasonNotFound), Refused: true, Staleness: time.Hour,
		Silence: time.Second,
	}
	forbidden := refused
	forbidden.Reason, forbidden.Namespace = string(source.ReasonForbidden), "other"
	status := func() inspect.Runtime {
		return inspect.Runtime{Sources: []inspect.Source{
			sourceOf(webhookKind, refused), sourceOf(opKind, forbidden),
		}}
	}
	section, err := operationsconsole.Section{
		Operations: store.New(store.Options{}), Webhooks: store.New(store.Options{}), Scheduler: &operations.Scheduler{},
		Executor: &executor.Executor{},
	}.Open(pages.Host{})
	if err != nil {
		t.Fatal(err)
	}
	all := append(section.Pages, (&overview{}).page(), (&sources{}).page(), (&controllers{status: status}).page(),
		(&shards{}).page(), (&whyPage{}).page())
	all = append(all, (&flows{}).pages()...)
	webhooks := "The API server does not serve Webhook.fairlead.io."
	listed := "This program may not list or watch Operation.fairlead.io in namespace other."
	got := map[string][]string{}
	for _, p := range all {
		for _, namespace := range []string{"", "prod"} {
			for _, text := range healthOf(status(), nil).Refused(&p, namespace) {
				if p.Menu {
					at := p.Name + map[string]string{"prod": "?namespace=prod"}[namespace]
					got[at] = append(got[at], strings.TrimSuffix(text, " The page shows the last known state."))
				}
			}
		}
	}
	want := map[string][]string{
		"webhooks": {webhooks}, "webhooks?namespace=prod": {webhooks}, "operations": {listed},
		"sources": {webhooks, listed}, "sources?namespace=prod": {webhooks},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
