package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// debugRule returns a rule for paths.
func debugRule(verb string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: paths}
}

// TestGuardDebug: with the option, debug pages of a program require the right to get their path, whoever registered
// them.
func TestGuardDebug(t *testing.T) {
	t.Parallel()
	ca := servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	w := serve(t, func(o *console.Options) {
		o.GuardDebug, o.Proxy = true, proxy
		o.Runtime.Handle("/debug/before", http.HandlerFunc(own))
	})
	w.Runtime.Handle("/debug/after", http.HandlerFunc(own))
	w.Runtime.Handle("/{any...}", http.HandlerFunc(own))
	w.Server.Close()
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		pages := w.Runtime.Handler()
		if strings.HasPrefix(r.URL.Path, "/console/") {
			pages = w.Pages
		}
		pages.ServeHTTP(rw, r)
	}))
	w.User("debugger", true, debugRule("get", "/debug/*"))
	w.User("flows", true, debugRule("get", "/debug/before"))
	w.User("poster", true, debugRule("post", "/debug/*"))
	w.User("lister", false, consolebed.Rule(consolebed.Group, "operations", "list"))
	w.User("stranger", false)
	w.Tokens["forged"] = "abc.def.ghi"
	w.Eventually("ready", func() bool { return w.Get("", "/readyz").Status == http.StatusOK })
	program := []string{"Accept", "application/json"}
	for _, tc := range []struct {
		user, method, path string
		want               int
	}{
		{"", http.MethodGet, "/debug/", http.StatusUnauthorized},
		{"", http.MethodGet, "/debug", http.StatusUnauthorized},
		{"", http.MethodGet, "/debug/sources", http.StatusUnauthorized},
		{"", http.MethodGet, "/debug/after", http.StatusUnauthorized},
		{"", http.MethodGet, "/debug/nothing", http.StatusUnauthorized},
		{"", http.MethodGet, "//debug/before", http.StatusUnauthorized},
		{"", http.MethodGet, "/x/../debug/before", http.StatusUnauthorized},
		{"", http.MethodGet, "/%64ebug/before", http.StatusUnauthorized},
		{"", http.MethodGet, "/debug%2fbefore", http.StatusUnauthorized},
		{"", http.MethodHead, "/debug/before", http.StatusUnauthorized},
		{"", http.MethodPost, "/debug/before", http.StatusUnauthorized},
		{"forged", http.MethodGet, "/debug/sources", http.StatusUnauthorized},
		{"stranger", http.MethodGet, "/debug/", http.StatusForbidden},
		{"stranger", http.MethodGet, "/debug/before", http.StatusForbidden},
		{"debugger", http.MethodGet, "/debug/", http.StatusOK},
		{"debugger", http.MethodGet, "/debug/sources?format=json", http.StatusOK},
		{"debugger", http.MethodGet, "/debug/before", http.StatusOK},
		{"debugger", http.MethodHead, "/debug/before", http.StatusOK},
		{"debugger", http.MethodGet, "/debug/after", http.StatusOK},
		{"debugger", http.MethodPost, "/debug/before", http.StatusForbidden},
		{"poster", http.MethodPost, "/debug/before", http.StatusOK},
		{"poster", http.MethodGet, "/debug/before", http.StatusForbidden},
		{"flows", http.MethodGet, "/debug/before", http.StatusOK},
		{"flows", http.MethodGet, "/debug/after", http.StatusForbidden},
		{"lister", http.MethodGet, "/debug/controllers", http.StatusOK},
		{"lister", http.MethodPost, "/debug/before", http.StatusForbidden},
		{"", http.MethodGet, "/metrics", http.StatusOK},
		{"", http.MethodGet, "/healthz", http.StatusOK},
		{"", http.MethodGet, "/elsewhere", http.StatusOK},
	} {
		got := w.Send(nil, tc.user, tc.method, tc.path, nil, program...)
		if got.Status != tc.want || strings.Contains(got.Body, "own page") && tc.want != http.StatusOK {
			t.Errorf("%s %s as %q: %d, want %d: %s", tc.method, tc.path, tc.user, got.Status, tc.want, got.Body)
		}
		if tc.want != http.StatusOK && tc.method != http.MethodHead &&
			got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s as %q is refused as %s", tc.path, tc.user, got.Header.Get("Content-Type"))
		}
	}
	// A browser gets the login page, and then the requested page.
	if got := w.Get("", "/debug/flows?limit=3"); got.Status != http.StatusSeeOther ||
		got.Header.Get("Location") != "/console/login?next="+url.QueryEscape("/debug/flows?limit=3") {
		t.Errorf("a browser without a session gets %d %v", got.Status, got.Header)
	}
	person := w.Browser()
	if got := w.Send(person, "", http.MethodPost, "/console/login", url.Values{
		"token": {w.Tokens["debugger"]}, "next": {"/debug/flows?limit=3"},
	}); got.Header.Get("Location") != "/debug/flows?limit=3" {
		t.Errorf("after the login the next page is %v: %s", got.Header, got.Body)
	}
	if got := w.Send(person, "", http.MethodGet, "/debug/before", nil); got.Status != http.StatusOK ||
		!strings.Contains(got.Body, "own page") {
		t.Errorf("with a session: %d %s", got.Status, got.Body)
	}
	if got := w.Send(person, "", http.MethodPost, "/debug/before", nil); got.Status != http.StatusForbidden {
		t.Errorf("a session without a form token can change objects: %d %s", got.Status, got.Body)
	}
	if got := w.Send(w.Login("stranger"), "", http.MethodGet, "/debug/before", nil); got.Status != http.StatusNotFound {
		t.Errorf("a user without the right: %d %s", got.Status, got.Body)
	}
	named(t, w, ca, proxy)
}

// named requests the debug pages as a user whom a proxy names, through the server of a program.
func named(t *testing.T, w *consolebed.World, ca *servetest.Authority, proxy *httpapi.Proxy) {
	t.Helper()
	server := httptest.NewUnstartedServer(w.Runtime.Handler())
	server.TLS = proxy.TLS(&tls.Config{
		Certificates: []tls.Certificate{*ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})},
	})
	server.StartTLS()
	defer server.Close()
	behind := ca.Client(t, ca.Issue(t, "front", x509.ExtKeyUsageClientAuth, time.Time{}))
	for _, tc := range []struct {
		client       *http.Client
		user, method string
		want         int
	}{
		{behind, "system:serviceaccount:" + w.Namespace + ":debugger", http.MethodGet, http.StatusOK},
		{behind, "system:serviceaccount:" + w.Namespace + ":poster", http.MethodPost, http.StatusForbidden},
		{behind, "jane", http.MethodGet, http.StatusForbidden},
		{ca.Client(t, nil), "system:serviceaccount:" + w.Namespace + ":debugger", http.MethodGet, http.StatusUnauthorized},
	} {
		r, err := http.NewRequestWithContext(w.Ctx, tc.method, server.URL+"/debug/before", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Remote-User", tc.user)
		resp, err := tc.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s as %s by a proxy: %d, want %d", tc.method, tc.user, resp.StatusCode, tc.want)
		}
	}
}

func own(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own page") }
