package console_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/console"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

var menuEntry = regexp.MustCompile(`<li><a href="([^"]+)"[^>]*>[^<]*</a></li>`)

// exact are readers without general rights to paths.
type exact struct{ readers }

func (all exact) May(_ context.Context, token string, a httpapi.Access) error {
	if may := all.readers[token]; may != nil && may(a) {
		return nil
	}
	return &httpapi.Problem{Status: http.StatusForbidden}
}

// TestLanding: the start page and all entries of the menu are pages that the reader may see.
func TestLanding(t *testing.T) {
	t.Parallel()
	list := func(resource string, namespaces ...string) func(httpapi.Access) bool {
		return func(a httpapi.Access) bool {
			return a.Path == "" && a.Verb == "list" && a.Resource == resource && slices.Contains(namespaces, a.Namespace)
		}
	}
	operations, both := list("operations", "prod"), list("webhooks", "prod")
	rights := exact{readers{
		"operator": func(httpapi.Access) bool { return true },
		"tenant":   operations,
		"team":     func(a httpapi.Access) bool { return operations(a) || both(a) },
		"two":      list("operations", "prod", "test"),
		"sources":  func(a httpapi.Access) bool { return a.Path == "/debug/sources" },
		"nobody":   func(httpapi.Access) bool { return false },
	}}
	for name, served := range map[string][]string{"some": {"other", "prod", "test"}, "all": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *console.Options) {
				o.Authorizer = rights
				change(o, func(s *operationsconsole.Section) { s.Namespaces = served })
			})
			w.Webhook("job")
			w.Schedule("one", "no-such-webhook") // in prod
			w.Eventually("the objects", func() bool {
				w.Tokens["operator"] = "operator"
				return strings.Contains(w.Get("operator", "/console/operations?namespace=prod").Body, "App/one") &&
					strings.Contains(w.Get("operator", "/console/webhooks?namespace=prod").Body, "/job")
			})
			all := []string{"overview", "operations", "webhooks", "sources", "controllers", "flows", "why"}
			two := "operations"
			if served == nil { // test has no objects, so it is unknown
				two = "operations?namespace=prod"
			}
			for reader, want := range map[string][]string{
				"operator": all,
				"tenant":   {"operations?namespace=prod", "why"},
				"team":     {"operations?namespace=prod", "webhooks?namespace=prod", "why"},
				"two":      {two, "why"},
				"sources":  {"sources", "why"},
				"nobody":   {"why"},
			} {
				w.Tokens[reader] = reader
				start := w.Get(reader, "/console/")
				if at := start.Header.Get("Location"); start.Status != http.StatusSeeOther || at != "/console/"+want[0] {
					t.Errorf("%s begins at %q, want %q", reader, at, want[0])
				}
				page := w.Get(reader, start.Header.Get("Location"))
				if page.Status == http.StatusNotFound {
					t.Errorf("%s starts at a page that answers %d", reader, page.Status)
				}
				_, menu, _ := strings.Cut(page.Body, `<nav aria-label="Pages">`)
				menu, _, _ = strings.Cut(menu, "</nav>")
				var got []string
				for _, entry := range menuEntry.FindAllStringSubmatch(menu, -1) {
					got = append(got, strings.TrimPrefix(entry[1], "/console/"))
					if answer := w.Get(reader, entry[1]); answer.Status == http.StatusNotFound {
						t.Errorf("%s: the menu leads to %s, which is answered %d", reader, entry[1], answer.Status)
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: menu: %s", reader, d)
				}
			}
			choice := w.Get("two", "/console/operations")
			if choice.Status != http.StatusForbidden ||
				!strings.Contains(choice.Body, `href="/console/operations?namespace=prod"`) ||
				strings.Contains(choice.Body, "namespace=other") {
				t.Errorf("a reader with some namespaces is not led to them: %d %s", choice.Status, choice.Body)
			}
		})
	}
}

// TestCommand: the command on a page has the URL of this console.
func TestCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.Webhook("job")
	op := w.Schedule("one", "job")
	for path, want := range map[string]string{
		w.Path(op):                   "fairlead why Operation/" + op.Name + " -n prod --url " + w.Server.URL,
		"/console/webhooks/prod/job": "fairlead why Webhook/job -n prod --url " + w.Server.URL,
	} {
		w.Eventually("the page of "+path, func() bool { return w.Get("", path).Status == http.StatusOK })
		if page := w.Get("", path).Body; !strings.Contains(page, `data-copy="`+want+`"`) ||
			!strings.Contains(page, "<code>"+want+"</code>") {
			t.Errorf("%s does not offer %q:\n%s", path, want, page)
		}
	}
}
