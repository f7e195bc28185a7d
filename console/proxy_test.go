package console_test

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
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/httpapi"
)

// TestProxy: who is named by a proxy that has shown its certificate sees and does what that user may, without a login;
// the same header without it is nothing.
func TestProxy(t *testing.T) {
	t.Parallel()
	ca, other := servetest.NewAuthority(t, "front"), servetest.NewAuthority(t, "front")
	proxy, err := httpapi.NewProxy(httpapi.ProxyOptions{CAFile: ca.File, Names: []string{"front-proxy"}, GroupHeader: "X-Remote-Group"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *console.Options) { o.Proxy = proxy })
	w.webhook("job")
	op := w.schedule("one", "job")
	role := metav1.ObjectMeta{Name: "watchers"}
	if _, err := w.clients.RbacV1().Roles(w.namespace).Create(w.ctx, &rbacv1.Role{
		ObjectMeta: role, Rules: []rbacv1.PolicyRule{rule(group, "operations", "get", "list", "update")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.clients.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "watchers"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(w.pages)
	server.TLS = proxy.TLS(&tls.Config{
		Certificates: []tls.Certificate{*ca.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{})},
	})
	server.StartTLS()
	t.Cleanup(server.Close)
	w.server.Close()
	w.server = server
	client := x509.ExtKeyUsageClientAuth
	behind := ca.Client(t, ca.Issue(t, "front-proxy", client, time.Time{}))
	jane := []string{"X-Remote-User", "jane <i>", "X-Remote-Group", "watchers"}
	list := "/console/operations?namespace=" + w.namespace
	w.eventually("the row", func() bool {
		return strings.Contains(w.send(behind, "", http.MethodGet, list, nil, jane...).body, "App/one")
	})
	page := w.send(behind, "", http.MethodGet, w.path(op), nil, jane...)
	for text, want := range map[string]bool{"jane &lt;i&gt;": true, "/cancel": true, "Log out": false, "<i>": false} {
		if strings.Contains(page.body, text) != want {
			t.Errorf("the page has %q: %v\n%s", text, !want, page.body)
		}
	}
	for name, browser := range map[string]*http.Client{
		"NoCertificate": ca.Client(t, nil),
		"OtherCA":       ca.Client(t, other.Issue(t, "front-proxy", client, time.Time{})),
		"OtherName":     ca.Client(t, ca.Issue(t, "somebody", client, time.Time{})),
		"Expired":       ca.Client(t, ca.Issue(t, "front-proxy", client, time.Now().Add(-time.Minute))),
	} {
		got := w.send(browser, "", http.MethodGet, list, nil, jane...)
		if got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "/console/login?next=") {
			t.Errorf("%s: %d %v", name, got.status, got.header)
		}
		if got := w.send(browser, "", http.MethodGet, "/api/why?kind=Operation&name="+op.Name+"&namespace="+w.namespace, nil,
			jane...); got.status != http.StatusUnauthorized {
			t.Errorf("%s: why is answered %d %s", name, got.status, got.body)
		}
	}
	for _, tc := range []struct {
		reason, method, path string
		form                 url.Values
		headers              []string
		want                 int
		location             string
	}{
		{"There is nothing to log in for.", http.MethodGet, "/console/login", nil, jane, http.StatusSeeOther, "/console/overview"},
		{"... nor with a token.", http.MethodPost, "/console/login", url.Values{"token": {"x"}}, jane, http.StatusSeeOther, "/console/overview"},
		{"Why is told.", http.MethodGet, "/api/why?kind=Operation&name=" + op.Name + "&namespace=" + w.namespace, nil, jane, http.StatusOK, ""},
		{"What she may not is not there.", http.MethodGet, "/console/sources", nil, jane[:2], http.StatusNotFound, ""},
		{"Who is in no group sees nothing.", http.MethodGet, w.path(op), nil, jane[:2], http.StatusNotFound, ""},
		{"Who is not named has to log in.", http.MethodGet, w.path(op), nil, nil, http.StatusSeeOther, ""},
		{"A form needs its token.", http.MethodPost, w.path(op) + "/cancel", url.Values{"id": {op.EffectiveID()}}, jane, http.StatusForbidden, ""},
		{
			"... which is not that of somebody else.", http.MethodPost, w.path(op) + "/cancel",
			url.Values{"id": {op.EffectiveID()}, "csrf": csrfField.FindStringSubmatch(page.body)[1:]},
			[]string{"X-Remote-User", "joe", "X-Remote-Group", "watchers"},
			http.StatusForbidden, "",
		},
		{
			"Another site may not send it.", http.MethodPost, w.path(op) + "/cancel",
			url.Values{"id": {op.EffectiveID()}, "csrf": csrfField.FindStringSubmatch(page.body)[1:]},
			append([]string{"Sec-Fetch-Site", "cross-site"}, jane...), http.StatusForbidden, "",
		},
	} {
		got := w.send(behind, "", tc.method, tc.path, tc.form, tc.headers...)
		if got.status != tc.want || tc.location != "" && got.header.Get("Location") != tc.location {
			t.Errorf("%s %s: %d %v, want %d: %s", tc.reason, tc.path, got.status, got.header, tc.want, got.body)
		}
	}
	if now, err := w.scheduler.Get(w.ctx, operation.Resource{Type: "App", ID: "one"}); err != nil || now.Spec.CancelRequested {
		t.Fatalf("it was cancelled by what was refused: %+v %v", now, err)
	}
	if got := w.send(behind, "", http.MethodPost, w.path(op)+"/cancel",
		url.Values{"id": {op.EffectiveID()}, "csrf": csrfField.FindStringSubmatch(page.body)[1:]}, jane...); got.status != http.StatusSeeOther {
		t.Errorf("the cancellation is answered %d: %s", got.status, got.body)
	}
}
