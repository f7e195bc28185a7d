package pages

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead-io/fairlead/internal/access"
)

// only permits one access to the token "reader", and none to other tokens.
type only access.Access

func (only) Caller(token string) string { return token }

func (o only) May(_ context.Context, token string, a access.Access) error {
	if token == "reader" && a == access.Access(o) {
		return nil
	}
	return &access.Problem{Status: http.StatusForbidden, Title: "Forbidden"}
}

// siteOf returns a site whose page and action do not check rights.
func siteOf(t *testing.T, who Authorizer, open bool, page Page, do func()) http.Handler {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	sessions, err := NewSessions(SessionOptions{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	render, err := NewRender(log)
	if err == nil {
		err = render.Add(fstest.MapFS{
			"things.html": {Data: []byte(`{{define "content"}}{{.Data}} {{shout "x"}} {{.CSRF}}{{end}}`)},
		}, template.FuncMap{"shout": strings.ToUpper})
	}
	if err != nil {
		t.Fatal(err)
	}
	s := NewSite(SiteOptions{
		Readers: NewReaders(who, sessions, open, nil), Render: render, Live: NewLive(), Log: log,
		Health: func() *Health { return &Health{} },
	})
	page.Name, page.Title = "things", "Things"
	page.Data = func(context.Context, *Reader, *http.Request) (any, error) { return "secret", nil }
	s.AddPage(page)
	s.AddPage(Page{Name: "why", Title: "Why?", Menu: true, Allow: Anybody})
	s.AddAction(Action{
		Path: "things", Page: page,
		Do: func(_ context.Context, _ *Reader, _ *http.Request, a *Answer) error {
			do()
			a.Redirect("/console/things")
			return nil
		},
	})
	return s.Handler()
}

// TestEveryPageIsGuarded: pages and actions are served only to readers with their right, even if their code checks
// nothing.
func TestEveryPageIsGuarded(t *testing.T) {
	t.Parallel()
	list := func(namespace string) access.Access {
		return access.Access{Verb: "list", Resource: "things", Namespace: namespace}
	}
	whole := access.Access{Verb: "get", Path: "/debug/things"}
	for name, tc := range map[string]struct {
		page  Page
		right access.Access
		path  string
		other int // the status for a reader without the right
	}{
		"whole program": {Page{}, whole, "", http.StatusNotFound},
		"scope": {
			Page{Scope: &Scope{&Namespaces{Served: []string{"a"}}, list}},
			list("a"), "?namespace=a",
			http.StatusNotFound,
		},
		"no namespace": {Page{Scope: &Scope{&Namespaces{Served: []string{"a"}}, list}}, list("a"), "", http.StatusForbidden},
		"allow": {Page{Allow: func(ctx context.Context, rd *Reader, _ *http.Request) error {
			return rd.May(ctx, whole)
		}}, whole, "", http.StatusNotFound},
	} {
		done := 0
		h := siteOf(t, only(tc.right), false, tc.page, func() { done++ })
		ask := func(token, method, path string, form url.Values) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
				t.Errorf("%s: %s %s has the policy %q", name, method, path, csp)
			}
			return w
		}
		for token, want := range map[string]int{"reader": http.StatusOK, "stranger": tc.other, "": http.StatusUnauthorized} {
			w := ask(token, http.MethodGet, "/console/things"+tc.path, nil)
			if w.Code != want || strings.Contains(w.Body.String(), "secret") != (want == http.StatusOK) {
				t.Errorf("%s: the page for %q: %d, want %d: %s", name, token, w.Code, want, w.Body)
			}
			if token != "reader" { // the stream of an admitted reader does not end
				if w := ask(token, http.MethodGet, "/console/live/things"+tc.path,
					nil); strings.Contains(w.Body.String(), "secret") {
					t.Errorf("%s: the stream for %q: %s", name, token, w.Body)
				}
			}
			if w := ask(token, http.MethodPost, "/console/things"+tc.path, nil); w.Code == http.StatusSeeOther || done > 0 {
				t.Errorf("%s: the action for %q without a form: %d %s", name, token, w.Code, w.Body)
			}
		}
		if w := ask("stranger", http.MethodGet, "/console/nothing", nil); w.Code != http.StatusNotFound {
			t.Errorf("%s: a missing page: %d", name, w.Code)
		}
	}
}

// TestActionNeedsRight: the token of a form does not replace the right.
func TestActionNeedsRight(t *testing.T) {
	t.Parallel()
	for right, want := range map[error]int{
		nil: http.StatusSeeOther, ErrNothing: http.StatusNotFound, errors.New("no answer"): http.StatusServiceUnavailable,
		&Message{Status: http.StatusConflict, Title: "Taken"}: http.StatusConflict,
	} {
		done, allowed := 0, error(nil)
		h := siteOf(t, access.Anonymous{}, true, Page{
			Allow: func(context.Context, *Reader, *http.Request) error { return allowed },
		}, func() { done++ })
		ask := func(method string, form url.Values) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, "/console/things", strings.NewReader(form.Encode()))
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		_, csrf, _ := strings.Cut(ask(http.MethodGet, nil).Body.String(), "secret X ")
		csrf, _, _ = strings.Cut(csrf, "\n")
		allowed = right
		w := ask(http.MethodPost, url.Values{"csrf": {csrf}})
		if w.Code != want || (done > 0) != (right == nil) {
			t.Errorf("%v: %d, want %d, done %d: %s", right, w.Code, want, done, w.Body)
		}
	}
}
