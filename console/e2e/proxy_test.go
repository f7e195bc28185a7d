package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestProxy: a user whom a proxy with a valid certificate names has their rights without a login. The same header
// without the certificate is ignored.
func TestProxy(t *testing.T) {
	t.Parallel()
	ca, other := servetest.NewAuthority(t, "front"), servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{
		CAFile: ca.File, Names: []string{"front-proxy"},
		GroupHeader: "X-Remote-Group",
	})
	if err != nil {
		t.Fatal(err)
	}
	w := serve(t, func(o *console.Options) { o.Proxy = proxy })
	w.Webhook("job")
	op := w.Schedule("one", "job")
	role := metav1.ObjectMeta{Name: "watchers"}
	if _, err := w.Clients.RbacV1().Roles(w.Namespace).Create(w.Ctx, &rbacv1.Role{
		ObjectMeta: role, Rules: []rbacv1.PolicyRule{consolebed.Rule(consolebed.Group, "operations", "get", "list",
			"update")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Clients.RbacV1().RoleBindings(w.Namespace).Create(w.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "watchers"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(w.Pages)
	server.TLS = proxy.TLS(&tls.Config{
		Certificates: []tls.Certificate{*ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})},
	})
	server.StartTLS()
	t.Cleanup(server.Close)
	w.Server.Close()
	w.Server = server
	client := x509.ExtKeyUsageClientAuth
	behind := ca.Client(t, ca.Issue(t, "front-proxy", client, time.Time{}))
	jane := []string{"X-Remote-User", "jane <i>", "X-Remote-Group", "watchers"}
	list := "/console/operations?namespace=" + w.Namespace
	w.Eventually("the row", func() bool {
		return strings.Contains(w.Send(behind, "", http.MethodGet, list, nil, jane...).Body, "App/one")
	})
	page := w.Send(behind, "", http.MethodGet, w.Path(op), nil, jane...)
	for text, want := range map[string]bool{"jane &lt;i&gt;": true, "/cancel": true, "Log out": false, "<i>": false} {
		if strings.Contains(page.Body, text) != want {
			t.Errorf("the page has %q: %v\n%s", text, !want, page.Body)
		}
	}
	for name, browser := range map[string]*http.Client{
		"NoCertificate": ca.Client(t, nil),
		"OtherCA":       ca.Client(t, other.Issue(t, "front-proxy", client, time.Time{})),
		"OtherName":     ca.Client(t, ca.Issue(t, "somebody", client, time.Time{})),
		"Expired":       ca.Client(t, ca.Issue(t, "front-proxy", client, time.Now().Add(-time.Minute))),
	} {
		got := w.Send(browser, "", http.MethodGet, list, nil, jane...)
		if got.Status != http.StatusSeeOther || !strings.HasPrefix(got.Header.Get("Location"), "/console/login?next=") {
			t.Errorf("%s: %d %v", name, got.Status, got.Header)
		}
		if got := w.Send(browser, "", http.MethodGet, "/api/why?kind=Operation&name="+op.Name+"&namespace="+w.Namespace, nil,
			jane...); got.Status != http.StatusUnauthorized {
			t.Errorf("%s: why is answered %d %s", name, got.Status, got.Body)
		}
	}
	csrf, found := consolebed.FormToken(page.Body)
	if !found {
		t.Fatalf("the page has no form: %s", page.Body)
	}
	for _, tc := range []struct {
		reason, method, path string
		form                 url.Values
		headers              []string
		want                 int
		location             string
	}{
		{"A login is not needed.", http.MethodGet, "/console/login", nil, jane, http.StatusSeeOther, "/console/"},
		{
			"... nor possible with a token.", http.MethodPost, "/console/login",
			url.Values{"token": {"x"}},
			jane, http.StatusSeeOther,
			"/console/",
		},
		{
			"The API gives the cause.",
			http.MethodGet, "/api/why?kind=Operation&name=" + op.Name + "&namespace=" + w.Namespace, nil, jane,
			http.StatusOK, "",
		},
		{
			"A forbidden page looks like a missing one.",
			http.MethodGet, "/console/sources", nil, jane[:2], http.StatusNotFound, "",
		},
		{"A user without a group sees nothing.", http.MethodGet, w.Path(op), nil, jane[:2], http.StatusNotFound, ""},
		{"A request without a user leads to the login.", http.MethodGet, w.Path(op), nil, nil, http.StatusSeeOther, ""},
		{
			"A form needs its token.", http.MethodPost, w.Path(op) + "/cancel",
			url.Values{"id": {op.EffectiveID()}},
			jane,
			http.StatusForbidden, "",
		},
		{
			"... which belongs to this user.", http.MethodPost, w.Path(op) + "/cancel",
			url.Values{"id": {op.EffectiveID()}, "csrf": {csrf}},
			[]string{"X-Remote-User", "joe", "X-Remote-Group", "watchers"},
			http.StatusForbidden, "",
		},
		{
			"Another site cannot send it.", http.MethodPost, w.Path(op) + "/cancel",
			url.Values{"id": {op.EffectiveID()}, "csrf": {csrf}},
			append([]string{"Sec-Fetch-Site", "cross-site"}, jane...), http.StatusForbidden, "",
		},
	} {
		got := w.Send(behind, "", tc.method, tc.path, tc.form, tc.headers...)
		if got.Status != tc.want || tc.location != "" && got.Header.Get("Location") != tc.location {
			t.Errorf("%s %s: %d %v, want %d: %s", tc.reason, tc.path, got.Status, got.Header, tc.want, got.Body)
		}
	}
	if now, err := w.Scheduler.Get(w.Ctx, operations.Resource{Type: "App", ID: "one"}); err != nil ||
		now.Spec.CancelRequested {
		t.Fatalf("a refused request has canceled it: %+v %v", now, err)
	}
	if got := w.Send(behind, "", http.MethodPost, w.Path(op)+"/cancel",
		url.Values{"id": {op.EffectiveID()}, "csrf": {csrf}}, jane...); got.Status != http.StatusSeeOther {
		t.Errorf("the answer to the cancellation is %d: %s", got.Status, got.Body)
	}
}
