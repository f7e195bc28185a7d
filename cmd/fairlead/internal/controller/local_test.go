package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	handler, err := localOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"https://fairlead.example:8443")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason, method, host, site string
		want                       int
	}{
		"Program": {"A program sends no Sec-Fetch-Site.", "POST", "127.0.0.1:8081", "", 200},
		"Name":    {"The name of this machine.", "POST", "localhost:8081", "", 200},
		"IPv6":    {"The other loopback.", "GET", "[::1]:8081", "", 200},
		"Public":  {"The host of callbacks.", "POST", "fairlead.example:8443", "", 200},
		"OwnPage": {"A page of this server.", "POST", "localhost:8081", "same-origin", 200},
		"OtherPage": {
			"A page of another site must not schedule anything.", "POST", "localhost:8081", "cross-site",
			403,
		},
		"OtherPort": {
			"Neither may a page of another server of this machine.", "POST", "localhost:8081", "same-site",
			403,
		},
		"Rebound": {
			"A foreign name that now resolves to loopback.", "GET", "evil.example:8081",
			"same-origin", 403,
		},
		"ReboundWrite": {"Also for writes.", "POST", "evil.example", "same-origin", 403},
		"Lookalike":    {"A name that begins like an address.", "GET", "127.0.0.1.evil.example", "", 403},
	}
	for name, tc := range tests {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/operations", nil)
		r.Host = tc.host
		if tc.site != "" {
			r.Header.Set("Sec-Fetch-Site", tc.site)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tc.want || w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %s %d %s", name, tc.reason, w.Code, w.Body)
		}
	}
}
