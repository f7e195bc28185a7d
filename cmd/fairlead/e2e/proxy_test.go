package e2e_test

import (
	"crypto/x509"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
)

// TestRequestHeader: a controller trusts the user header of a proxy whose certificate is of the given CA. That holds
// for its API, its console and its debug pages. It trusts no other client.
func TestRequestHeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.tokenFor("mine", "fairlead")
	clients := kubernetes.NewForConfigOrDie(s.config)
	if _, err := clients.RbacV1().RoleBindings(s.namespace).Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operators"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "mine"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "operators"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.review(true, "list operations", authorizationv1.SubjectAccessReviewSpec{
		User: "jane@example.com", Groups: []string{"operators"},
		ResourceAttributes: reviewed(s.namespace, "list", "fairlead.io", "operations"),
	})
	dir := t.TempDir()
	cert := certify(t, dir, "server")
	ca := servetest.NewAuthority(t, "front")
	p := s.controller(s.kubeconfig, "--audience", "fairlead", "--requestheader-ca-file", ca.File,
		"--requestheader-allowed-name", "oauth2-proxy", "--requestheader-user", "X-Auth-Request-User",
		"--requestheader-group", "X-Auth-Request-Groups", "--requestheader-group-separator", ",",
		"--tls-cert-file", filepath.Join(dir, "..data", "tls.crt"), "--tls-key-file", filepath.Join(dir, "..data",
			"tls.key"))
	api := "https://" + <-p.address
	use := x509.ExtKeyUsageClientAuth
	behind := map[string]*http.Client{
		"proxy":    ca.Client(t, ca.Issue(t, "oauth2-proxy", use, time.Time{})),
		"somebody": ca.Client(t, ca.Issue(t, "somebody", use, time.Time{})),
		"nobody":   ca.Client(t, nil),
	}
	for _, c := range behind {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cert)
		c.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots
	}
	for _, tc := range []struct {
		caller, path, groups string
		want                 int
	}{
		{"proxy", "/operations", "staff,operators", 200},
		{"proxy", "/operations", "staff", 403},
		{"proxy", "/debug/flows", "operators", 200},
		{"proxy", "/debug/sources", "staff", 403},
		{"proxy", "/debug/pprof/goroutine?debug=2", "operators", 200},
		{"proxy", "/debug/pprof/goroutine?debug=2", "staff", 403},
		{"proxy", "/console/operations", "operators", 200},
		{"proxy", "/console/login", "operators", 303},
		{"somebody", "/operations", "operators", 401},
		{"nobody", "/operations", "operators", 401},
		{"nobody", "/console/login", "operators", 200},
		{"nobody", "/debug/flows", "operators", 401},
		{"nobody", "/debug/pprof/", "operators", 401},
	} {
		req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, api+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Auth-Request-User", "jane@example.com")
		req.Header.Set("X-Auth-Request-Groups", tc.groups)
		resp, err := behind[tc.caller].Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body) // a partial body is enough
		resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s of %s for %s: %d, want %d: %s", tc.path, tc.caller, tc.groups, resp.StatusCode, tc.want, said)
		}
	}
}
