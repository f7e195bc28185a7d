package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
)

// certify creates the certificate of a version in a directory, and returns it.
func certify(t *testing.T, dir, version string) []byte {
	t.Helper()
	cert, key := servetest.Certificate(t, version, time.Time{}, time.Time{})
	servetest.Mount(t, dir, version, cert, key)
	return cert
}

// tokenFor creates a service account that may list operations. It returns its token for an audience; empty: the API
// server.
func (s *site) tokenFor(name, audience string) string {
	s.t.Helper()
	clients := kubernetes.NewForConfigOrDie(s.config)
	_, err := clients.CoreV1().ServiceAccounts(s.namespace).Create(s.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = clients.RbacV1().Roles(s.namespace).Create(s.ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"fairlead.io"}, Resources: []string{"operations"}, Verbs: []string{"list"}},
			},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = clients.RbacV1().RoleBindings(s.namespace).Create(s.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: name}},
		}, metav1.CreateOptions{})
	}
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	var token *authenticationv1.TokenRequest
	if err == nil {
		token, err = clients.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.ctx, name, request,
			metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.authorized(true, s.namespace, name, "list", "fairlead.io", "operations")
	return token.Status.Token
}

// TestServed runs a controller as deploy/ does: with TLS, an audience of its own, and metrics at another address.
func TestServed(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	mine, apiServers := s.tokenFor("mine", "fairlead"), s.tokenFor("theirs", "")
	dir := t.TempDir()
	first := certify(t, dir, "first")
	p := s.controller(s.kubeconfig, "--audience", "fairlead", "--metrics-listen", "127.0.0.1:0",
		"--tls-cert-file", filepath.Join(dir, "..data", "tls.crt"), "--tls-key-file", filepath.Join(dir, "..data",
			"tls.key"))
	address := <-p.address
	trusting := func(cert []byte) *http.Client {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cert)
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
			DisableKeepAlives: true,
		}
		return &http.Client{Transport: transport}
	}
	ask := func(client *http.Client, url, token string) (int, string, error) {
		req, err := http.NewRequestWithContext(s.ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body) // a partial body is enough
		return resp.StatusCode, string(said), nil
	}
	api := "https://" + address
	for _, tc := range []struct {
		path, token string
		want        int
	}{
		{"/operations", mine, 200},
		{"/operations", apiServers, 401},
		{"/operations", "", 401},
		{"/metrics", mine, 404},
		{"/debug/flows", mine, 404},
		{"/healthz", "", 200},
		{"/openapi.json", "", 200},
	} {
		if code, said, err := ask(trusting(first), api+tc.path, tc.token); code != tc.want || err != nil {
			t.Errorf("%s: %d %s %v", tc.path, code, said, err)
		}
	}
	if code, _, err := ask(http.DefaultClient, "http://"+address+"/operations", mine); code == 200 {
		t.Errorf("plain HTTP is served: %v", err)
	}

	second := certify(t, dir, "second")
	s.eventually("the new certificate", func() bool {
		_, _, err := ask(trusting(second), api+"/healthz", "")
		return err == nil
	})
	if err := os.WriteFile(filepath.Join(dir, "second", "tls.key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	var pages string
	s.eventually("the address of the pages", func() bool {
		pages = p.says(`metricsAddress=(\S+)`)
		return pages != ""
	})
	s.eventually("an error about the key", func() bool {
		code, said, err := ask(http.DefaultClient, "http://"+pages+"/metrics", "")
		return code == 200 && err == nil && reloadFailed.MatchString(said)
	})
	if _, _, err := ask(trusting(second), api+"/healthz", ""); err != nil {
		t.Errorf("with an unusable key: %v", err)
	}
	_, metrics, _ := ask(http.DefaultClient, "http://"+pages+"/metrics", "")
	for _, name := range []string{
		`fairlead_http_connections{state="active"}`, `fairlead_http_in_flight{limit="requests"}`,
		`fairlead_http_reviews_total{result="allowed",review="tokenreviews"}`,
		`fairlead_http_reviews_total{result="refused",review="tokenreviews"}`,
		`fairlead_http_certificate_expiry_timestamp_seconds`,
	} {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	if !reloaded.MatchString(metrics) {
		t.Error("the metrics count no reload of the certificate")
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/debug/flows": 401, "/debug/pprof/heap": 401, "/operations": 404,
	} {
		if code, said, err := ask(http.DefaultClient, "http://"+pages+path, ""); code != want || err != nil {
			t.Errorf("%s on the other address: %d %s %v", path, code, said, err)
		}
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, second, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := fairlead(t, "flows", "--url", api+"/debug/flows", "--certificate-authority", authority,
		"--token",
		mine); code != exitFailure || !strings.Contains(errs, "404") {
		t.Errorf("flows by TLS: %d %s", code, errs)
	}
	if code, _, errs := fairlead(t, "flows", "--url", "http://"+pages+"/debug/flows", "--token", mine); code != exitOK {
		t.Errorf("flows: %d %s", code, errs)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(s.ctx, t); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
}

// The controller counts each content of the two files that it has seen. It reads them one after the other, so it may
// see some that a writer has not finished.
var (
	reloaded     = regexp.MustCompile(`(?m)^fairlead_http_certificate_reloads_total\{result="success"\} [1-9]`)
	reloadFailed = regexp.MustCompile(`(?m)^fairlead_http_certificate_reloads_total\{result="failure"\} [1-9]`)
)

// says returns the match of an expression in the log.
func (p *process) says(expression string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := regexp.MustCompile(expression).FindStringSubmatch(p.log.String()); m != nil {
		return m[1]
	}
	return ""
}
