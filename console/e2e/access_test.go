package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/why"
)

// TestRights: readers see only objects for which they have the right. A missing object gives the same answer as a
// forbidden one.
func TestRights(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	op := w.Schedule("one", "no-such-webhook")
	w.User("admin", true, consolebed.Rule(consolebed.Group, "operations", "get", "list", "update"),
		consolebed.Rule(consolebed.Group, "webhooks", "get", "list"))
	w.User("reader", false, consolebed.Rule(consolebed.Group, "operations", "get", "list"))
	w.User("getter", false, consolebed.Rule(consolebed.Group, "operations", "get"))
	w.User("stranger", false)
	w.Tokens["forged"] = "abc.def.ghi"
	w.Eventually("why", func() bool {
		_,
			a := w.Why("admin", "Operation", op.Name)
		return a.Types() == "[WebhookMissing]"
	})
	list, here := "/console/operations", "/console/operations?namespace="+w.Namespace
	nothing := strings.Replace(w.Path(op), op.Name, "nothing", 1)
	for _, tc := range []struct {
		user, path string
		want       int
	}{
		{"", list, http.StatusSeeOther},
		{"forged", list, http.StatusSeeOther},
		{"forged", "/console/why", http.StatusSeeOther},
		{"stranger", list, http.StatusForbidden}, // it may have the right in one namespace
		{"stranger", here, http.StatusNotFound},
		{"stranger", w.Path(op), http.StatusNotFound},
		{"stranger", nothing, http.StatusNotFound},
		{"stranger", "/console/overview", http.StatusNotFound},
		{"getter", "/console/sources", http.StatusNotFound},
		{"reader", "/console/sources", http.StatusOK},
		{"admin", "/console/operations?namespace=kube-system", http.StatusNotFound}, // not a served namespace
		{"reader", here, http.StatusOK},
		{"reader", list, http.StatusOK}, // everything that is served
		{"getter", list, http.StatusForbidden},
		{"reader", "/console/webhooks?namespace=" + w.Namespace, http.StatusNotFound},
		{"reader", w.Path(op), http.StatusOK},
		{"getter", here, http.StatusNotFound},
		{"getter", w.Path(op), http.StatusOK},
		{"admin", list, http.StatusOK},
		{"admin", "/console/overview", http.StatusOK},
		{"admin", "/console/webhooks", http.StatusOK},
	} {
		if got := w.Get(tc.user, tc.path); got.Status != tc.want {
			t.Errorf("%s as %q: %d, want %d\n%s", tc.path, tc.user, got.Status, tc.want, got.Body)
		}
		if tc.want == http.StatusOK || tc.path == "/console/why" {
			continue
		}
		if got := w.Get(tc.user, "/console/live"+strings.TrimPrefix(tc.path,
			"/console")); strings.Contains(got.Body, op.Name) {
			t.Errorf("the stream of %s has %q in it: %s", tc.path, tc.user, got.Body)
		}
	}
	there, nowhere := w.Get("stranger", w.Path(op)), w.Get("stranger", nothing)
	if there.Body != strings.ReplaceAll(nowhere.Body, "nothing", op.Name) &&
		maskTimes(there.Body) != maskTimes(nowhere.Body) {
		t.Errorf("existing and missing objects have different answers:\n%s\n%s", there.Body, nowhere.Body)
	}
	for user, want := range map[string]string{
		"getter": "[WebhookMissing Hidden]", "stranger": "", "forged": "",
	} {
		status, got := w.Why(user, "Operation", op.Name)
		if want == "" {
			if status != map[string]int{"stranger": 404, "forged": 401}[user] || len(got.Causes) > 0 {
				t.Errorf("why as %s: %d %+v", user, status, got)
			}
			continue
		}
		if status != http.StatusOK || len(got.Causes) != 1 || got.Causes[0].Type != "Hidden" ||
			strings.Contains(got.Causes[0].Message, "no-such-webhook") {
			t.Errorf("why as %s: %d %+v", user, status, got)
		}
	}
	if got := w.Get("getter", w.Path(op)); !strings.Contains(got.Body, "Hidden") {
		t.Errorf("a cause about a Webhook that may not be seen is not hidden on the page:\n%s", got.Body)
	}
}

// TestLogin: a session has the rights of its token, and ends with it.
func TestLogin(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.User("admin", true, consolebed.Rule(consolebed.Group, "operations", "get", "list", "update"))
	w.Tokens["forged"] = "abc.def.ghi"
	for token, want := range map[string]string{
		"": "Enter a token", "forged": "not valid in this cluster", strings.Repeat("x", 5000): "too long",
	} {
		if name, ok := w.Tokens[token]; ok {
			token = name
		}
		got := w.Send(nil, "", http.MethodPost, "/console/login", url.Values{"token": {token}})
		if got.Status != http.StatusUnauthorized || !strings.Contains(got.Body, want) || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%.20s: %d %s", token, got.Status, got.Body)
		}
	}
	browser := w.Login("admin")
	if got := w.Send(browser, "", http.MethodGet, "/console/operations", nil); got.Status != http.StatusOK {
		t.Errorf("after the login the answer is %d", got.Status)
	}
	at, err := url.Parse(w.Server.URL)
	if err != nil {
		t.Fatal(err)
	}
	kept := browser.Jar.Cookies(at)
	if len(kept) != 1 || strings.Contains(kept[0].Value, w.Tokens["admin"][:20]) {
		t.Errorf("the cookie shows the token: %v", kept)
	}
	changed := "A" + kept[0].Value[1:]
	if changed == kept[0].Value { // the cookie is random
		changed = "B" + kept[0].Value[1:]
	}
	for name, value := range map[string]string{"Changed": changed, "Junk": "junk", "Empty": ""} {
		r := httptest.NewRequestWithContext(w.Ctx, http.MethodGet, "/console/operations", nil)
		r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
		r.Header.Set("Accept", "text/html")
		r.AddCookie(&http.Cookie{Name: kept[0].Name, Value: value}) //nolint:gosec // a request's has a name and a value
		rec := httptest.NewRecorder()
		w.Pages.ServeHTTP(rec, r)
		if rec.Code != http.StatusSeeOther {
			t.Errorf("%s: a foreign cookie: %d", name, rec.Code)
		}
	}
	if got := w.Send(browser, "", http.MethodPost, "/console/logout", url.Values{}); got.Status != http.StatusForbidden {
		t.Errorf("a form without a session logs out: %d", got.Status)
	}
	form := url.Values{"csrf": {w.CSRF(browser, "/console/operations")}}
	if got := w.Send(browser, "", http.MethodPost, "/console/logout", form); got.Status != http.StatusSeeOther {
		t.Errorf("the answer to the logout is %d", got.Status)
	}
	if got := w.Send(browser, "", http.MethodGet, "/console/operations", nil); got.Status != http.StatusSeeOther {
		t.Errorf("after the logout the answer is %d", got.Status)
	}
	for next, want := range map[string]string{
		"https://attacker.example/": "/console/", "//attacker.example/console/": "/console/",
		"/\\attacker.example": "/console/", "/console/operations?q=1": "/console/operations?q=1",
		"javascript:alert(1)": "/console/", "/operations": "/console/",
	} {
		got := w.Send(nil, "", http.MethodPost, "/console/login", url.Values{"token": {w.Tokens["admin"]}, "next": {next}})
		if got.Header.Get("Location") != want {
			t.Errorf("after the login with %q the next page is %q", next, got.Header.Get("Location"))
		}
	}
}

// TestPlainHTTP: a login over plain HTTP is refused, and cookies are sent over TLS only.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	w := serve(t, func(o *console.Options) { o.SessionKey = []byte(strings.Repeat("k", 32)) })
	token := w.User("admin", true, consolebed.Rule(consolebed.Group, "operations", "list"))
	login := func(change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(w.Ctx, http.MethodPost, "/console/login",
			strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host, r.RemoteAddr = "localhost:8081", "127.0.0.1:7"
		change(r)
		rec := httptest.NewRecorder()
		w.Pages.ServeHTTP(rec, r)
		return rec
	}
	for name, change := range map[string]func(*http.Request){
		"Address": func(r *http.Request) { r.RemoteAddr = "192.0.2.7:7" },
		"Host":    func(r *http.Request) { r.Host = "console.example.com" },
	} {
		if rec := login(change); rec.Code != http.StatusForbidden || rec.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", name, rec.Code, rec.Header())
		}
	}
	if rec := login(func(*http.Request) {}); strings.Contains(rec.Header().Get("Set-Cookie"), "Secure") ||
		!strings.Contains(rec.Header().Get("Set-Cookie"), "HttpOnly") ||
		!strings.Contains(rec.Header().Get("Set-Cookie"), "SameSite=Strict") {
		t.Errorf("on loopback: %v", rec.Header())
	}
	secure := httptest.NewRequest(http.MethodGet, "https://console.example.com/", nil)
	if rec := login(func(r *http.Request) {
		r.Host, r.RemoteAddr, r.TLS = "console.example.com", "192.0.2.7:7", secure.TLS
	}); rec.Code != http.StatusSeeOther || !strings.Contains(rec.Header().Get("Set-Cookie"), "Secure") {
		t.Errorf("by TLS: %d %v", rec.Code, rec.Header())
	}
}

// TestHiddenChain: causes behind one that a reader may not see are hidden, too, whatever their objects.
func TestHiddenChain(t *testing.T) {
	t.Parallel()
	explain := explainer(func(_ context.Context, of why.Object) []why.Cause {
		if of.Name != "front" {
			return nil
		}
		middle := why.Object{Kind: "Secret", Namespace: of.Namespace, Name: "middle"}
		end := why.Object{Kind: "ConfigMap", Namespace: of.Namespace, Name: "end"}
		return []why.Cause{
			{Type: why.Parked, Message: "it waits for middle", About: &middle},
			{Type: why.BackOff, Message: "middle cannot write end", About: &end, Depth: 1},
		}
	})
	w := serve(t, func(o *console.Options) { o.Runtime.Explain(explain) })
	w.User("one", false, consolebed.Rule("", "configmaps", "get"))
	w.User("both", false, consolebed.Rule("", "configmaps", "get"), consolebed.Rule("", "secrets", "get"))
	front := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "front"}}
	if _, err := w.Clients.CoreV1().ConfigMaps(w.Namespace).Create(w.Ctx, front, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for user, sees := range map[string]bool{"one": false, "both": true} {
		status, got := w.Why(user, "ConfigMap", "front")
		text := fmt.Sprintf("%+v", got)
		if status != http.StatusOK || strings.Contains(text, "cannot write end") != sees ||
			strings.Contains(text, "Hidden") == sees {
			t.Errorf("%s: %d %s", user, status, text)
		}
	}
}

type explainer func(context.Context, why.Object) []why.Cause

func (e explainer) Why(ctx context.Context, of why.Object) []why.Cause { return e(ctx, of) }

// TestRightsOfWebhook: the page of a Webhook needs the right to get it, and shows operations only with the right to
// list them.
func TestRightsOfWebhook(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.Webhook("job")
	w.Schedule("polls", "job")
	w.User("all", false, consolebed.Rule(consolebed.Group, "operations", "get", "list"),
		consolebed.Rule(consolebed.Group, "webhooks", "get"))
	w.User("hooks", false, consolebed.Rule(consolebed.Group, "webhooks", "get"))
	w.User("operations", false, consolebed.Rule(consolebed.Group, "operations", "get", "list"))
	path := "/console/webhooks/" + w.Namespace + "/job"
	w.Eventually("shown", func() bool { return strings.Contains(w.Get("all", path).Body, "Operations that call it") })
	if got := w.Get("hooks", path); got.Status != http.StatusOK || strings.Contains(got.Body, "Operations that call it") {
		t.Errorf("Without the right to list operations: %d\n%s", got.Status, got.Body)
	}
	if got := w.Get("operations", path); got.Status != http.StatusNotFound {
		t.Errorf("Without the right to get Webhooks: %d", got.Status)
	}
}
