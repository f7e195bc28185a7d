package console

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func sourceOf(kind schema.GroupVersionKind, st inspect.Scope) inspect.Source {
	return inspect.Source{Kind: kind, Running: true, Status: []inspect.Scope{st}}
}

var (
	webhookKind = v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook)
	opKind      = v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation)
)

// TestOneDecision: the card of the overview says that the program is healthy exactly where no banner says otherwise.
func TestOneDecision(t *testing.T) {
	t.Parallel()
	pages, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		status inspect.Scope
		// what the page says
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
			"other pages are as good as ever",
			inspect.Scope{
				Phase: string(source.Degraded), Reason: string(source.ReasonNotFound), Refused: true, Staleness: time.Hour, Silence: time.Second,
			},
			"limited", false,
		},
		"not served, and then silence": {
			"the last answer is old",
			inspect.Scope{
				Phase: string(source.Degraded), Reason: string(source.ReasonDisconnected), Refused: true, Staleness: time.Hour, Silence: 3 * time.Minute,
			},
			"not healthy", true,
		},
	} {
		c := &console{shown: newShared(), rates: newRates(nil)}
		later := time.Now().Add(time.Hour)
		c.shown.entries["status"] = &cached{at: later, value: inspect.Runtime{Sources: []inspect.Source{sourceOf(webhookKind, tc.status)}}}
		c.shown.entries["fibers"] = &cached{at: later, value: fiberCounts{}}
		data, err := c.overview(t.Context(), nil, nil)
		var text strings.Builder
		if err == nil {
			err = pages["overview"].ExecuteTemplate(&text, "main", page{Data: data, Health: c.health()})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "</i> "+tc.card+"</p>") ||
			strings.Contains(text.String(), "has not confirmed what is shown") != tc.banner {
			t.Errorf("%s: %s: want %q, banner %v:\n%s", name, tc.reason, tc.card, tc.banner, text.String())
		}
	}
}

// TestConditionsOnTheirPages: a resource that the API server refuses is told on the pages that show it, and on no others.
func TestConditionsOnTheirPages(t *testing.T) {
	t.Parallel()
	refused := inspect.Scope{
		Phase: string(source.Degraded), Reason: string(source.ReasonNotFound), Refused: true, Staleness: time.Hour, Silence: time.Second,
	}
	elsewhere := refused
	elsewhere.Reason, elsewhere.Namespace = string(source.ReasonForbidden), "other"
	c := &console{Options: Options{Operations: &Operations{}}, shown: newShared()}
	c.shown.entries["status"] = &cached{at: time.Now().Add(time.Hour), value: inspect.Runtime{Sources: []inspect.Source{
		sourceOf(webhookKind, refused), sourceOf(opKind, elsewhere),
	}}}
	webhooks := "The API server does not serve Webhook.fairlead.io."
	operations := "This program may not list or watch Operation.fairlead.io in namespace other."
	got := map[string][]string{}
	for _, v := range c.views() {
		for _, at := range []string{"", "?namespace=prod"} {
			for _, text := range c.health().of(c, v, httptest.NewRequestWithContext(t.Context(), "GET", "/"+at, nil)) {
				got[v.name+at] = append(got[v.name+at], strings.TrimSuffix(text, " What is shown of it is as it was before."))
			}
		}
	}
	want := map[string][]string{
		"webhooks": {webhooks}, "webhooks?namespace=prod": {webhooks}, "operations": {operations},
		"sources": {webhooks, operations}, "sources?namespace=prod": {webhooks},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
