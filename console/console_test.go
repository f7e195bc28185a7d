package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/console"
)

func noAuth(o *console.Options) { o.InsecureNoAuth = true }

// TestPages: each page shows what there is, names nothing of another host, and lets a browser load nothing else.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.webhook("job")
	op := w.schedule("polls", "job")
	w.eventually("a call", func() bool { return strings.Contains(w.get("", w.path(op)).body, "In Progress") })
	for path, want := range map[string]string{
		"/console/overview": "healthy", "/console/operations": "App/polls", "/console/operations?q=C-POLLS": "App/polls",
		"/console/operations?namespace=" + w.namespace + "&status=IN_PROGRESS&type=Update&category=tests&resource=App&age=1h": "App/polls",
		"/console/operations?q=nothing-like-it":             "No operation is like that",
		"/console/operations?from=100000":                   "App/polls",
		"/console/webhooks":                                 "/job",
		"/console/webhooks?namespace=" + w.namespace:        "Closed",
		"/console/sources":                                  "operations.fairlead.io",
		"/console/controllers":                              "no controllers",
		"/console/flows":                                    "operation/advance",
		"/console/flows/operation":                          w.namespace + "/" + op.Name,
		"/console/flows/operation?step=operation%2Fadvance": op.Name,
		w.path(op):     "App/polls",
		"/console/why": "Ask",
		"/console/why?kind=op&namespace=" + w.namespace + "&name=" + op.Name:             "Parked",
		"/console/why?kind=Operation&namespace=" + w.namespace + "&name=App%2Fpolls":     "Parked",
		"/console/why?kind=Operation&namespace=" + w.namespace + "&name=App%2Fnot-there": "There is no such object",
		"/console/why?kind=Nonsense&name=x":                                              "There is no such object",
	} {
		got := w.get("", path)
		if got.status != http.StatusOK || !strings.Contains(got.body, want) || !strings.HasSuffix(strings.TrimSpace(got.body), "</html>") {
			t.Errorf("%s: %d, want %q in\n%s", path, got.status, want, got.body)
		}
		if strings.Contains(got.body, "<script>") || strings.Contains(got.body, " style=") || strings.Contains(got.body, "//cdn") {
			t.Errorf("%s has what the policy forbids", path)
		}
		if csp := got.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
			strings.Contains(csp, "unsafe") || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, got.header)
		}
	}
	page := w.get("", "/console/overview").body
	for _, name := range []string{"console.js", "style.css", "icon.svg"} {
		_, rest, _ := strings.Cut(page, "/console/static/"+name)
		version, _, _ := strings.Cut(rest, "\"")
		kept := w.get("", "/console/static/"+name+version).header.Get("Cache-Control")
		old := w.get("", "/console/static/"+name+"?v=0123456789abcdef").header.Get("Cache-Control")
		if !strings.HasPrefix(version, "?v=") || !strings.Contains(kept, "immutable") || old != "no-store" {
			t.Errorf("%s%s is kept as %q, and one of another version as %q", name, version, kept, old)
		}
	}
	for path, want := range map[string]int{
		"/console/": http.StatusSeeOther, "/console/nothing": http.StatusNotFound,
		"/console/operations/" + w.namespace + "/nothing": http.StatusNotFound, "/console/operations/A_B/x": http.StatusNotFound,
		"/console/flows/nothing": http.StatusNotFound, "/console/fibers/0": http.StatusNotFound, "/console/fibers/x": http.StatusNotFound,
		"/console/static/console.js": http.StatusOK, "/console/static/": http.StatusOK, "/api/why": http.StatusBadRequest,
		"/api/nothing": http.StatusNotFound,
	} {
		if got := w.get("", path); got.status != want {
			t.Errorf("%s: %d, want %d: %s", path, got.status, want, got.body)
		}
	}
}

// TestHostile: what others call their objects, and what they answer, stays text.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	const markup = `<script>alert(1)</script><img src=x onerror=alert(2)>"'`
	const turned = "abc\u202egnp.exe"
	op := w.schedule(markup+turned, "no-such-webhook")
	w.eventually("a row", func() bool {
		return strings.Contains(w.get("", "/console/operations?namespace="+w.namespace).body, "alert(1)")
	})
	for _, path := range []string{
		w.path(op), "/console/operations?q=" + url.QueryEscape(markup), "/console/why?kind=Operation&name=" + url.QueryEscape(markup),
		"/console/operations?category=" + url.QueryEscape(markup), "/console/flows/" + url.PathEscape(markup),
		"/console/login?next=" + url.QueryEscape("/console/"+markup),
	} {
		got := w.get("", path)
		if strings.Contains(got.body, "<script>alert") || strings.Contains(got.body, "<img src=x") || strings.Contains(got.body, "\u202e") {
			t.Errorf("%s shows what others have written as it is:\n%s", path, got.body)
		}
	}
}

// TestLocalOnly: where nobody logs in, pages of other names and other sites get nothing.
func TestLocalOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	op := w.schedule("one", "no-such-webhook")
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
		r := httptest.NewRequestWithContext(w.ctx, tc.method, w.path(op)+map[string]string{http.MethodPost: "/cancel"}[tc.method], nil)
		r.Host = tc.host
		for i := 0; i < len(tc.headers); i += 2 {
			r.Header.Set(tc.headers[i], tc.headers[i+1])
		}
		rec := httptest.NewRecorder()
		w.pages.ServeHTTP(rec, r)
		if rec.Code != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, rec.Code, tc.want, rec.Body)
		}
	}
}

// TestMistakes: options that cannot work are refused.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]console.Options{
		"there is no runtime": {},
	} {
		if _, err := console.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := (console.Options{}).Open(nil); err == nil {
		t.Error("no runtime is good enough")
	}
}
