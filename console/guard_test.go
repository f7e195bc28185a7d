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

// TestUnguarded: without the option the debug pages are open. Without authentication they answer this machine only.
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
		"as it was":        {console.Options{}, "attacker.example", http.StatusOK},
		"for this machine": {console.Options{GuardDebug: true, InsecureNoAuth: true}, "localhost", http.StatusOK},
		"under the name of others": {
			console.Options{GuardDebug: true, InsecureNoAuth: true},
			"attacker.example",
			http.StatusForbidden,
		},
		"without a token": {console.Options{GuardDebug: true}, "localhost", http.StatusUnauthorized},
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
		t.Errorf("a nil guard: %v", err)
	}
}
