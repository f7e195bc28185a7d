package console

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/why"
)

// TestLinkToHolder: an answer of a replica that does not process an object links only to the replica that does.
func TestLinkToHolder(t *testing.T) {
	t.Parallel()
	render := renderOf(t)
	const page = "/console/why?kind=Operation&amp;name=app-1&amp;namespace=prod"
	for name, tc := range map[string]struct {
		cause why.Cause
		href  string // empty: no link
	}{
		"leader": {
			why.Cause{Type: why.NotLeading, Evidence: map[string]string{"address": "https://10.0.0.7:8443"}},
			"https://10.0.0.7:8443" + page,
		},
		"holder": {
			why.Cause{Type: why.HeldBy, Evidence: map[string]string{"address": "10.0.0.7:8443"}},
			"//10.0.0.7:8443" + page,
		},
		"no address": {why.Cause{Type: why.NotLeading}, ""},
		"script": {why.Cause{
			Type:     why.NotLeading,
			Evidence: map[string]string{"address": "javascript://x/%0aalert(1)"},
		}, ""},
		"user": {why.Cause{Type: why.HeldBy, Evidence: map[string]string{"address": "https://a@example.com"}}, ""},
		"path": {why.Cause{Type: why.HeldBy, Evidence: map[string]string{"address": "https://a/x?y"}}, "https://a" +
			page},
		"another cause":  {why.Cause{Type: why.BackOff, Evidence: map[string]string{"address": "https://a"}}, ""},
		"one further on": {why.Cause{Type: why.HeldBy, Depth: 1, Evidence: map[string]string{"address": "https://a"}}, ""},
	} {
		var shown strings.Builder
		a := why.Answer{Kind: "Operation", Namespace: "prod", Name: "app-1", Stuck: true, Causes: []why.Cause{tc.cause}}
		if err := render.Part(&shown, "why", "answer", a); err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, rest, ok := strings.Cut(shown.String(),
			`<p class="notice">Another replica processes this object. <a href="`); ok {
			got, _, _ = strings.Cut(rest, `"`)
		}
		if got != tc.href {
			t.Errorf("%s: the link is %q, want %q:\n%s", name, got, tc.href, shown.String())
		}
	}
}

// TestObserverBehind: the page of the sources names an observer that is behind.
func TestObserverBehind(t *testing.T) {
	t.Parallel()
	render := renderOf(t)
	for behind, want := range map[time.Duration]bool{0: false, time.Second: false, 45 * time.Second: true} {
		o := inspect.Observer{Name: "mine"}
		if behind > 0 {
			o.BehindSince = time.Now().Add(-behind)
		}
		status := inspect.Runtime{Sources: []inspect.Source{{
			Selector: []string{"maps"}, Running: true, Observers: []inspect.Observer{o},
			Status: []inspect.Scope{{Phase: string(source.Watching), Synced: true}},
		}}}
		data, err := (&sources{status: func() inspect.Runtime { return status }}).data(t.Context(), nil, nil)
		var shown strings.Builder
		if err == nil {
			err = render.Part(&shown, "sources", "content", pages.View{Data: data, At: time.Now()})
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(shown.String(), ", behind <time"); got != want {
			t.Errorf("%v behind, is it shown: %v, want %v:\n%s", behind, got, want, shown.String())
		}
	}
}
