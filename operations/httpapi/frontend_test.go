package httpapi

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestFrontend: each error is answered with a problem and logged at the level of its cause, without callback tokens.
func TestFrontend(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	front := frontend{timeout: time.Minute, log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{
		Level: slog.LevelDebug,
	}))}
	mux := http.NewServeMux()
	mux.Handle("POST /callbacks/{token}", front.serve(func(http.ResponseWriter, *http.Request) error {
		return &Problem{Status: http.StatusConflict, Title: "Used already"}
	}))
	mux.Handle("GET /broken", front.serve(func(http.ResponseWriter, *http.Request) error {
		return errors.New(strings.Repeat("x", 2*maxLogged))
	}))
	mux.Handle("GET /good", front.serve(func(w http.ResponseWriter, _ *http.Request) error {
		writeJSON(w, http.StatusOK, "good")
		return nil
	}))
	handler := front.routes(mux)
	for _, c := range []struct {
		method, path string
		status       int
		body         string // a part
		log          string // parts in this order, divided by *; empty: no line
	}{
		{http.MethodGet, "/good", http.StatusOK, `"good"`, ""},
		{http.MethodGet, "/nowhere", http.StatusNotFound, "see /operations", "DEBUG*path=/nowhere*status=404"},
		{
			http.MethodPut, "/good", http.StatusMethodNotAllowed, "PUT is not possible here; GET, HEAD is",
			"DEBUG*method=PUT*status=405",
		},
		{http.MethodPost, "/callbacks/secret", http.StatusConflict, "Used already", "INFO*path=/callbacks/…*status=409"},
		{http.MethodGet, "/broken", http.StatusBadGateway, "xxx", "INFO*status=502*" + strings.Repeat("x", maxLogged) + "…"},
	} {
		logged.Reset()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		body, _ := io.ReadAll(w.Result().Body)
		if w.Code != c.status || !strings.Contains(string(body), c.body) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.method, c.path, w.Code, body, c.status, c.body)
		}
		if c.status != http.StatusOK && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: the answer is %s", c.method, c.path, w.Header().Get("Content-Type"))
		}
		line := logged.String()
		if strings.Contains(line, "secret") {
			t.Errorf("%s %s: the log contains a token: %s", c.method, c.path, line)
		}
		if c.log == "" && line != "" {
			t.Errorf("%s %s: a successful answer is logged: %s", c.method, c.path, line)
		}
		rest := line
		for part := range strings.SplitSeq(c.log, "*") {
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("%s %s: the log lacks %q: %s", c.method, c.path, part, line)
				break
			}
			rest = after
		}
	}
}
