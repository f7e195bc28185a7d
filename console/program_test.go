package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestProgram: a program without operations has a console by one option, and declares the rights that it needs.
func TestProgram(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rt := fairlead.New(server.Config(), fairlead.WithConsole(console.Options{}))
	var needs []string
	for _, r := range rt.Rights() {
		needs = append(needs, r.Kind.Kind+" "+strings.Join(r.Verbs, ","))
	}
	if got := strings.Join(needs, "; "); !strings.Contains(got, "TokenReview create") ||
		!strings.Contains(got, "SubjectAccessReview create") {
		t.Errorf("it needs the rights %s", got)
	}
	open := fairlead.New(server.Config(), fairlead.WithConsole(console.Options{InsecureNoAuth: true}))
	for path, want := range map[string]int{
		"/console/": http.StatusSeeOther, "/console/overview": http.StatusOK, "/console/flows": http.StatusOK,
		"/console/sources": http.StatusOK, "/console/controllers": http.StatusOK, "/console/why": http.StatusOK,
		"/console/operations": http.StatusNotFound, "/console/shards": http.StatusNotFound, "/metrics": http.StatusOK,
		"/api/why?kind=Gizmo&name=x": http.StatusNotFound,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = "localhost"
		rec := httptest.NewRecorder()
		if open.Handler().ServeHTTP(rec, r); rec.Code != want {
			t.Errorf("%s: %d, want %d: %s", path, rec.Code, want, rec.Body)
		}
	}
	for want, o := range map[string]console.Options{
		"less than 32 bytes":     {SessionKey: []byte("short")},
		"excludes an Authorizer": {InsecureNoAuth: true, Authorizer: anyReader},
		"excludes a Proxy":       {InsecureNoAuth: true, Proxy: &console.Proxy{}},
	} {
		bad := fairlead.New(server.Config(), fairlead.WithConsole(o))
		if err := bad.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := fairlead.New(nil, fairlead.WithConsole(console.Options{})).Run(t.Context()); err == nil {
		t.Errorf("without a cluster: %v", err)
	}
}
