package profile

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(ctx context.Context, p *Pages, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
	return w
}

func TestPages(t *testing.T) {
	for _, tc := range []struct {
		reason, method, path string
		code                 int
		want                 string
	}{
		{"the list", "GET", Root, 200, Root + "goroutine\n"},
		{"stacks as text", "GET", Root + "goroutine?debug=2", 200, "TestPages"},
		{"for go tool pprof", "GET", Root + "heap?gc=1", 200, "\x1f\x8b"},
		{"the arguments of the process are not served", "GET", Root + "cmdline", 404, ""},
		{"no such profile", "GET", Root + "none", 404, ""},
		{"GET only", "POST", Root + "heap", 405, ""},
		{"a duration beyond the bound", "GET", Root + "profile?seconds=3600", 400, "1 to 60"},
		{"not a number", "GET", Root + "heap?debug=x", 400, "0 to 2"},
	} {
		w := ask(t.Context(), &Pages{}, tc.method, tc.path)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %.200q", tc.reason, w.Code, w.Body.String())
		}
	}
}

// TestTimed: a recording ends when its reader disconnects.
func TestTimed(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for _, name := range []string{"profile", "trace"} {
		if w := ask(ctx, &Pages{}, "GET", Root+name+"?seconds=60"); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
		}
	}
}

// TestBusy: one profile is made at a time, including those that the program makes itself.
func TestBusy(t *testing.T) {
	p := &Pages{}
	p.busy.Lock()
	if w := ask(t.Context(), p, "GET", Root+"heap"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("beside another profile: %d", w.Code)
	}
	p.busy.Unlock()
	var elsewhere strings.Builder
	if err := pprof.StartCPUProfile(&elsewhere); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	for range 2 { // the second request finds no lock left by the first
		if w := ask(t.Context(), p, "GET", Root+"profile"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("beside a profile of the program: %d", w.Code)
		}
	}
}
