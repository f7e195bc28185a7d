package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestPages: each page has its contents, and loads nothing from other hosts.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.Webhook("job")
	op := w.Schedule("polls", "job")
	w.Eventually("a call", func() bool { return strings.Contains(w.Get("", w.Path(op)).Body, "In Progress") })
	for path, want := range map[string]string{
		"/console/overview": "healthy", "/console/operations": "App/polls", "/console/operations?q=C-POLLS": "App/polls",
		"/console/operations?namespace=" + w.Namespace +
			"&status=IN_PROGRESS&type=Update&category=tests&resource=App&age=1h": "App/polls",
		"/console/operations?q=nothing-like-it":             "No operation matches",
		"/console/operations?from=100000":                   "App/polls",
		"/console/webhooks":                                 "/job",
		"/console/webhooks?namespace=" + w.Namespace:        "Closed",
		"/console/sources":                                  "operations.fairlead.io",
		"/console/controllers":                              "no controllers",
		"/console/flows":                                    "operation/advance",
		"/console/flows/operation":                          w.Namespace + "/" + op.Name,
		"/console/flows/operation?step=operation%2Fadvance": op.Name,
		w.Path(op):     "App/polls",
		"/console/why": "Ask",
		"/console/why?kind=op&namespace=" + w.Namespace + "&name=" + op.Name:             "Parked",
		"/console/why?kind=Operation&namespace=" + w.Namespace + "&name=App%2Fpolls":     "Parked",
		"/console/why?kind=Operation&namespace=" + w.Namespace + "&name=App%2Fnot-there": "There is no such object",
		"/console/why?kind=Nonsense&name=x":                                              "There is no such object",
	} {
		got := w.Get("", path)
		if got.Status != http.StatusOK || !strings.Contains(got.Body, want) ||
			!strings.HasSuffix(strings.TrimSpace(got.Body), "</html>") {
			t.Errorf("%s: %d, want %q in\n%s", path, got.Status, want, got.Body)
		}
		if strings.Contains(got.Body, "<script>") || strings.Contains(got.Body, " style=") ||
			strings.Contains(got.Body, "//cdn") {
			t.Errorf("%s has what the policy forbids", path)
		}
		if csp := got.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
			strings.Contains(csp, "unsafe") || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, got.Header)
		}
	}
	page := w.Get("", "/console/overview").Body
	for _, name := range []string{"console.js", "style.css", "icon.svg"} {
		_, rest, _ := strings.Cut(page, "/console/static/"+name)
		version, _, _ := strings.Cut(rest, "\"")
		kept := w.Get("", "/console/static/"+name+version).Header.Get("Cache-Control")
		old := w.Get("", "/console/static/"+name+"?v=0123456789abcdef").Header.Get("Cache-Control")
		if !strings.HasPrefix(version, "?v=") || !strings.Contains(kept, "immutable") || old != "no-store" {
			t.Errorf("%s%s is kept as %q, and one of another version as %q", name, version, kept, old)
		}
	}
	for path, want := range map[string]int{
		"/console/": http.StatusSeeOther, "/console/nothing": http.StatusNotFound,
		"/console/operations/" + w.Namespace + "/nothing": http.StatusNotFound,
		"/console/operations/A_B/x":                       http.StatusNotFound,
		"/console/flows/nothing":                          http.StatusNotFound, "/console/fibers/0": http.StatusNotFound,
		"/console/fibers/x":          http.StatusNotFound,
		"/console/static/console.js": http.StatusOK, "/console/static/": http.StatusOK, "/api/why": http.StatusBadRequest,
		"/api/nothing": http.StatusNotFound,
	} {
		if got := w.Get("", path); got.Status != want {
			t.Errorf("%s: %d, want %d: %s", path, got.Status, want, got.Body)
		}
	}
}

// TestHostile: names of objects and answers of receivers are escaped.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	const markup = `<script>alert(1)</script><img src=x onerror=alert(2)>"'`
	const turned = "abc\u202egnp.exe"
	op := w.Schedule(markup+turned, "no-such-webhook")
	w.Eventually("a row", func() bool {
		return strings.Contains(w.Get("", "/console/operations?namespace="+w.Namespace).Body, "alert(1)")
	})
	for _, path := range []string{
		w.Path(op), "/console/operations?q=" + url.QueryEscape(markup), "/console/why?kind=Operation&name=" +
			url.QueryEscape(markup),
		"/console/operations?category=" + url.QueryEscape(markup), "/console/flows/" + url.PathEscape(markup),
		"/console/login?next=" + url.QueryEscape("/console/"+markup),
	} {
		got := w.Get("", path)
		if strings.Contains(got.Body, "<script>alert") || strings.Contains(got.Body, "<img src=x") ||
			strings.Contains(got.Body, "\u202e") {
			t.Errorf("%s shows what others have written as it is:\n%s", path, got.Body)
		}
	}
}

// TestLocalOnly: without authentication, requests with other hosts and of other sites are refused.
func TestLocalOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	op := w.Schedule("one", "no-such-webhook")
	for name, tc := range map[string]struct {
		method  string
		headers []string
		host    string
		want    int
	}{
		"Local":       {http.MethodGet, nil, "localhost:8081", http.StatusOK},
		"IPv6":        {http.MethodGet, nil, "[::1]:8081", http.StatusOK},
		"Rebinding":   {http.MethodGet, nil, "attacker.example", http.StatusForbidden},
		"OtherSite":   {http.MethodPost, []string{"Sec-Fetch-Site", "cross-site"}, "localhost", http.StatusForbidden},
		"OtherOrigin": {http.MethodPost, []string{"Origin", "http://attacker.example"}, "localhost", http.StatusForbidden},
		"NoForm":      {http.MethodPost, nil, "localhost", http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(w.Ctx, tc.method,
			w.Path(op)+map[string]string{http.MethodPost: "/cancel"}[tc.method], nil)
		r.Host = tc.host
		for i := 0; i < len(tc.headers); i += 2 {
			r.Header.Set(tc.headers[i], tc.headers[i+1])
		}
		rec := httptest.NewRecorder()
		w.Pages.ServeHTTP(rec, r)
		if rec.Code != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, rec.Code, tc.want, rec.Body)
		}
	}
}
