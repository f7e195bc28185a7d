package httpapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// serveTLS serves pages with TLS as the controller does, and returns their URL.
func serveTLS(t *testing.T, pages http.Handler, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by Run
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := serve.New(pages, serve.Options{TLS: config}).Run(ctx, listener); err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return "https://" + listener.Addr().String()
}

// asked sends a GET with exactly these headers, and returns the status and the body.
func (a *api) asked(client *http.Client, url string, headers http.Header) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, url, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header = headers
	resp, err := client.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(said)
}

// TestProxy: a header names the user only if the proxy has shown a certificate of the CA with a trusted name. Otherwise
// the header is ignored.
func TestProxy(t *testing.T) {
	a := setup(t, nil)
	a.users.bind("reader", "Alice", ":operators")
	ca, other := servetest.NewAuthority(t, "front"), servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{
		CAFile: ca.File, Names: []string{"front-proxy"}, GroupHeader: "X-Remote-Group",
	})
	if err != nil {
		t.Fatal(err)
	}
	server := ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})
	at := serveTLS(t, proxy.Handler(a.handler), proxy.TLS(&tls.Config{Certificates: []tls.Certificate{*server}}))
	client := x509.ExtKeyUsageClientAuth
	shown := map[string]*http.Client{
		"good":    ca.Client(t, ca.Issue(t, "front-proxy", client, time.Time{})),
		"none":    ca.Client(t, nil),
		"other":   ca.Client(t, other.Issue(t, "front-proxy", client, time.Time{})),
		"expired": ca.Client(t, ca.Issue(t, "front-proxy", client, time.Now().Add(-time.Minute))),
		"name":    ca.Client(t, ca.Issue(t, "somebody", client, time.Time{})),
		"server":  ca.Client(t, ca.Issue(t, "front-proxy", x509.ExtKeyUsageServerAuth, time.Time{})),
	}
	token := func(user string) []string { return []string{"Bearer " + a.tokens[user]} }
	_, unknown := a.asked(shown["none"], at+"/operations", nil)
	for _, tc := range []struct {
		reason, shown string
		headers       http.Header
		want          int
	}{
		{"A user with the right.", "good", http.Header{"X-Remote-User": {"Alice"}}, 200},
		{"Behind the proxy there is no login without a name.", "good", nil, 401},
		{"A user without the right.", "good", http.Header{"X-Remote-User": {"bob"}}, 403},
		{"Names of users are case-sensitive.", "good", http.Header{"X-Remote-User": {"alice"}}, 403},
		{
			"A group with the right.",
			"good",
			http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"staff", "operators"}},
			200,
		},
		{
			"Each header has one group.",
			"good",
			http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"staff,operators"}},
			403,
		},
		{"Names of headers are not case-sensitive.", "good", http.Header{"x-REMOTE-user": {"Alice"}}, 200},
		{"Nor are those of groups.", "good", http.Header{"x-remote-USER": {"bob"}, "X-REMOTE-group": {"operators"}}, 200},
		{"Another name is another header.", "good", http.Header{"X_Remote_User": {"Alice"}}, 401},
		{"An empty user does not count.", "good", http.Header{"X-Remote-User": {""}}, 401},
		{"A blank user does not count.", "good", http.Header{"X-Remote-User": {" \t"}}, 401},
		{"A group without a user does not count.", "good", http.Header{"X-Remote-Group": {"operators"}}, 401},
		{"Two users do not count.", "good", http.Header{"X-Remote-User": {"Alice", "bob"}}, 401},
		{
			"Two users do not count, in any order or case.", "good",
			http.Header{"X-Remote-User": {"bob"}, "x-remote-user": {"Alice"}},
			401,
		},
		{"A list of users is an unknown user.", "good", http.Header{"X-Remote-User": {"Alice, bob"}}, 403},
		{"Invalid text does not count.", "good", http.Header{"X-Remote-User": {"Alice\xff"}}, 401},
		{
			"A user name that is too long does not count.",
			"good",
			http.Header{"X-Remote-User": {strings.Repeat("a", 2000)}},
			401,
		},
		{
			"The header takes precedence over a token.", "good",
			http.Header{"X-Remote-User": {"bob"}, "Authorization": token("reader")},
			403,
		},
		{"Without the header a token counts.", "good", http.Header{"Authorization": token("reader")}, 200},
		{"No certificate.", "none", http.Header{"X-Remote-User": {"Alice"}}, 401},
		{
			"Without a certificate the header does not affect a token.", "none",
			http.Header{"X-Remote-User": {"bob"}, "Authorization": token("reader")},
			200,
		},
		{"... nor adds to it.", "none", http.Header{
			"X-Remote-User": {"Alice"}, "X-Remote-Group": {"system:masters"}, "Authorization": token("nobody"),
		}, 403},
		{"A CA of the same name.", "other", http.Header{"X-Remote-User": {"Alice"}}, 401},
		{"It has expired.", "expired", http.Header{"X-Remote-User": {"Alice"}}, 401},
		{"Its name is not trusted.", "name", http.Header{"X-Remote-User": {"Alice"}}, 401},
		{"It is not a certificate of a client.", "server", http.Header{"X-Remote-User": {"Alice"}}, 401},
	} {
		status, said := a.asked(shown[tc.shown], at+"/operations", tc.headers)
		if status != tc.want {
			t.Errorf("%s %s %v: %d, want %d: %s", tc.reason, tc.shown, tc.headers, status, tc.want, said)
		}
		if status == http.StatusUnauthorized && said != unknown {
			t.Errorf("%s The answer differs from one without the header: %s", tc.reason, said)
		}
	}
}

// TestProxyPlain: without TLS there is no certificate, so the headers are ignored.
func TestProxyPlain(t *testing.T) {
	a := setup(t, nil)
	a.users.bind("reader", "alice")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: servetest.NewAuthority(t, "front").File})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by the server
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy.Handler(a.handler), ReadHeaderTimeout: time.Minute}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) }) // returns when it is closed
	t.Cleanup(func() { _ = server.Close(); running.Wait() })
	if status, said := a.asked(servetest.NewAuthority(t, "any").Client(t, nil),
		"http://"+listener.Addr().String()+"/operations",
		http.Header{"X-Remote-User": {"alice"}}); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, said)
	}
}

// TestProxyUser: pages get the user of the headers, and the headers themselves are removed.
func TestProxyUser(t *testing.T) {
	t.Parallel()
	ca := servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{
		CAFile: ca.File, UserHeader: "x-auth-request-user", GroupHeader: "x-auth-request-groups", GroupSeparator: ",",
		ExtraHeaderPrefix: "x-auth-extra-",
	})
	if err != nil {
		t.Fatal(err)
	}
	var known bool
	var got authenticationv1.UserInfo
	var left http.Header
	pages := proxy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, known = httpapi.Proxied(r.Context())
		left = r.Header
	}))
	server := ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})
	at := serveTLS(t, pages, proxy.TLS(&tls.Config{Certificates: []tls.Certificate{*server}}))
	send := func(client *http.Client) {
		t.Helper()
		(&api{t: t, ctx: t.Context()}).asked(client, at, http.Header{
			"X-Auth-Request-User": {"jane@example.com"}, "X-Auth-Request-Groups": {"staff, operators,,", "night"},
			"X-Auth-Extra-Acme.com%2fProject": {"one", "two"}, "X-Other": {"stays"}, "X-Remote-User": {"root"},
		})
		for _, gone := range []string{"X-Auth-Request-User", "X-Auth-Request-Groups", "X-Auth-Extra-Acme.com%2fproject"} {
			for name := range left {
				if strings.EqualFold(name, gone) {
					t.Errorf("%s comes by: %v", gone, left)
				}
			}
		}
		if left.Get("X-Other") != "stays" || left.Get("X-Remote-User") != "root" {
			t.Errorf("other headers are removed: %v", left)
		}
	}
	send(ca.Client(t, ca.Issue(t, "any", x509.ExtKeyUsageClientAuth, time.Time{})))
	want := authenticationv1.UserInfo{
		Username: "jane@example.com", Groups: []string{"staff", "operators", "night", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"acme.com/project": {"one", "two"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || !known {
		t.Errorf("known %v, -want +got:\n%s", known, diff)
	}
	send(ca.Client(t, nil))
	if known {
		t.Errorf("without a certificate the user is known: %+v", got)
	}
	if proxy, err = httpapi.NewProxy(httpapi.ProxyOptions{CAFile: ca.File}); err != nil {
		t.Fatal(err)
	}
	pages = proxy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got,
			_ = httpapi.Proxied(r.Context())
	}))
	at = serveTLS(t, pages, proxy.TLS(&tls.Config{Certificates: []tls.Certificate{*server}}))
	(&api{t: t, ctx: t.Context()}).asked(ca.Client(t, ca.Issue(t, "any", x509.ExtKeyUsageClientAuth, time.Time{})), at,
		http.Header{
			"X-Remote-User": {"jane"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"all"},
		})
	want = authenticationv1.UserInfo{Username: "jane", Groups: []string{"system:authenticated"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was not asked for counts, -want +got:\n%s", diff)
	}
}

// TestProxyCrossSite: requests of another site's page through a proxy with a signed-in reader change nothing.
func TestProxyCrossSite(t *testing.T) {
	t.Parallel()
	ca := servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	server := ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	at := serveTLS(t, proxy.Handler(served), proxy.TLS(&tls.Config{Certificates: []tls.Certificate{*server}}))
	client := ca.Client(t, ca.Issue(t, "front-proxy", x509.ExtKeyUsageClientAuth, time.Time{}))
	for _, tc := range []struct {
		method  string
		headers http.Header
		want    int
	}{
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		{http.MethodPost, http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"same-origin"}}, http.StatusAccepted},
		{http.MethodPost, http.Header{}, http.StatusAccepted}, // not from a browser
		{http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusAccepted},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, at+"/operations", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = tc.headers
		r.Header.Set("X-Remote-User", "jane")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s %v: %d, want %d", tc.method, tc.headers, resp.StatusCode, tc.want)
		}
	}
}

// TestProxyCA: a new CA in the file replaces the old one, and an invalid file does not. An expired certificate stops
// counting on existing connections, too.
func TestProxyCA(t *testing.T) {
	t.Parallel()
	first, second := servetest.NewAuthority(t, "first"), servetest.NewAuthority(t, "second")
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"Nonsense": []byte("no"), "Empty": nil} {
		write(content)
		if _, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: file}); err == nil ||
			!strings.Contains(err.Error(), "no certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]httpapi.ProxyOptions{"Nothing": {}, "Nowhere": {CAFile: file + ".not"}} {
		if _, err := httpapi.NewProxy(o); err == nil {
			t.Errorf("%s is good enough", name)
		}
	}
	write(first.PEM)
	now := time.Now()
	proxy, err := httpapi.NewProxyAt(httpapi.ProxyOptions{CAFile: file}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	var known bool
	pages := proxy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, known = httpapi.Proxied(r.Context())
	}))
	certs := map[string]*tls.Certificate{}
	for name, ca := range map[string]*servetest.Authority{"first": first, "second": second} {
		certs[name] = ca.Issue(t, "front-proxy", x509.ExtKeyUsageClientAuth, now.Add(10*time.Minute))
	}
	server := first.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})
	at := serveTLS(t, pages, proxy.TLS(&tls.Config{Certificates: []tls.Certificate{*server}}))
	clients := map[string]*http.Client{
		"first":  first.Client(t, certs["first"]),
		"second": first.Client(t, certs["second"]),
	}
	checkTrust := func(reason, authority string, want bool) {
		t.Helper()
		(&api{t: t, ctx: t.Context()}).asked(clients[authority], at, http.Header{"X-Remote-User": {"jane"}})
		if known != want {
			t.Errorf("%s The proxy of the %s CA is trusted: %v", reason, authority, known)
		}
	}
	checkTrust("In the beginning.", "first", true)
	checkTrust("In the beginning.", "second", false)
	write([]byte("no"))
	now = now.Add(time.Minute)
	checkTrust("The file is invalid.", "first", true)
	write(second.PEM)
	checkTrust("It was read a moment ago.", "first", true)
	now = now.Add(time.Minute)
	checkTrust("The file has changed.", "first", false)
	checkTrust("The file has changed.", "second", true)
	now = now.Add(9 * time.Minute)
	checkTrust("It has expired since the connection was made.", "second", false)
}
