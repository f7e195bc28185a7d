package console_test

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

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/operation/httpapi"
)

// debugRule is the right to paths.
func debugRule(verb string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: paths}
}

// TestGuardDebug: with the option the debug pages of a program answer only who may get their path, whoever has added them.
func TestGuardDebug(t *testing.T) {
	t.Parallel()
	ca := servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *console.Options) {
		o.GuardDebug, o.Proxy = true, proxy
		o.Runtime.Handle("/debug/before", http.HandlerFunc(own))
	})
	w.rt.Handle("/debug/after", http.HandlerFunc(own))
	w.rt.Handle("/{any...}", http.HandlerFunc(own))
	w.server.Close()
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		pages := w.rt.Handler()
		if strings.HasPrefix(r.URL.Path, "/console/") {
			pages = w.pages
		}
		pages.ServeHTTP(rw, r)
	}))
	w.user("debugger", true, debugRule("get", "/debug/*"))
	w.user("flows", true, debugRule("get", "/debug/before"))
	w.user("poster", true, debugRule("post", "/debug/*"))
	w.user("lister", false, rule(group, "operations", "list"))
	w.user("stranger", false)
	w.tokens["forged"] = "abc.def.ghi"
	w.eventually("ready", func() bool { return w.get("", "/readyz").status == http.StatusOK })
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
		got := w.send(nil, tc.user, tc.method, tc.path, nil, program...)
		if got.status != tc.want || strings.Contains(got.body, "own page") && tc.want != http.StatusOK {
			t.Errorf("%s %s as %q: %d, want %d: %s", tc.method, tc.path, tc.user, got.status, tc.want, got.body)
		}
		if tc.want != http.StatusOK && tc.method != http.MethodHead && got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s as %q is refused as %s", tc.path, tc.user, got.header.Get("Content-Type"))
		}
	}
	// A browser: the login page, and then where it wanted to go.
	if got := w.get("", "/debug/flows?limit=3"); got.status != http.StatusSeeOther ||
		got.header.Get("Location") != "/console/login?next="+url.QueryEscape("/debug/flows?limit=3") {
		t.Errorf("a person without a session is answered %d %v", got.status, got.header)
	}
	person := w.browser()
	if got := w.send(person, "", http.MethodPost, "/console/login", url.Values{
		"token": {w.tokens["debugger"]}, "next": {"/debug/flows?limit=3"},
	}); got.header.Get("Location") != "/debug/flows?limit=3" {
		t.Errorf("after the login it goes on at %v: %s", got.header, got.body)
	}
	if got := w.send(person, "", http.MethodGet, "/debug/before", nil); got.status != http.StatusOK || !strings.Contains(got.body, "own page") {
		t.Errorf("with a session: %d %s", got.status, got.body)
	}
	if got := w.send(person, "", http.MethodPost, "/debug/before", nil); got.status != http.StatusForbidden {
		t.Errorf("a session is good enough to change something: %d %s", got.status, got.body)
	}
	if got := w.send(w.login("stranger"), "", http.MethodGet, "/debug/before", nil); got.status != http.StatusNotFound {
		t.Errorf("a person who may not: %d %s", got.status, got.body)
	}
	named(t, w, ca, proxy)
}

// named looks at the debug pages as one whom a proxy names, by the server that a program would use.
func named(t *testing.T, w *world, ca *servetest.Authority, proxy *httpapi.Proxy) {
	t.Helper()
	server := httptest.NewUnstartedServer(w.rt.Handler())
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
		{behind, "system:serviceaccount:" + w.namespace + ":debugger", http.MethodGet, http.StatusOK},
		{behind, "system:serviceaccount:" + w.namespace + ":poster", http.MethodPost, http.StatusForbidden},
		{behind, "jane", http.MethodGet, http.StatusForbidden},
		{ca.Client(t, nil), "system:serviceaccount:" + w.namespace + ":debugger", http.MethodGet, http.StatusUnauthorized},
	} {
		r, err := http.NewRequestWithContext(w.ctx, tc.method, server.URL+"/debug/before", nil)
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

// TestUnguarded: without the option the debug pages stay as they are, and where nobody logs in they are for this machine.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for reason, tc := range map[string]struct {
		o    console.Options
		host string
		want int
	}{
		"as it was":                {console.Options{}, "attacker.example", http.StatusOK},
		"for this machine":         {console.Options{GuardDebug: true, InsecureNoAuth: true}, "localhost", http.StatusOK},
		"under the name of others": {console.Options{GuardDebug: true, InsecureNoAuth: true}, "attacker.example", http.StatusForbidden},
		"for nobody without token": {console.Options{GuardDebug: true}, "localhost", http.StatusUnauthorized},
	} {
		rt := fairlead.New(server.Config(), fairlead.WithConsole(tc.o))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/sources", nil)
		r.Host = tc.host
		rec := httptest.NewRecorder()
		if rt.Handler().ServeHTTP(rec, r); rec.Code != tc.want {
			t.Errorf("%s: %d, want %d: %s", reason, rec.Code, tc.want, rec.Body)
		}
	}
	rt := fairlead.New(server.Config())
	rt.GuardDebug(nil)
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot guard the debug pages") {
		t.Errorf("a guard that is nil: %v", err)
	}
}
