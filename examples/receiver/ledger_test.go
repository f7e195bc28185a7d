package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		fail   int
		calls  []*http.Request
		codes  []int
		want   []Effect
	}{
		"Once": {
			reason: "Two calls with one key have one effect.",
			calls:  []*http.Request{post("/cleanup", "a"), post("/cleanup", "a"), post("/cleanup", "b")},
			codes:  []int{200, 200, 200},
			want: []Effect{
				{Key: "a", Path: "/cleanup", Calls: 2, Effects: 1},
				{Key: "b", Path: "/cleanup", Calls: 1, Effects: 1},
			},
		},
		"FailsFirst": {
			reason: "The first calls of each key are refused when asked for, and have no effect.",
			fail:   2,
			calls:  []*http.Request{post("/cleanup", "a"), post("/cleanup", "a"), post("/cleanup", "a")},
			codes:  []int{503, 503, 200},
			want:   []Effect{{Key: "a", Path: "/cleanup", Calls: 3, Effects: 1}},
		},
		"NoKey": {
			reason: "Without a key nothing can be done once, so nothing is done.",
			calls:  []*http.Request{post("/cleanup", "")},
			codes:  []int{400},
			want:   []Effect{},
		},
		"Job": {
			reason: "A slow call is polled until it is done.",
			calls:  []*http.Request{post("/slow", "a"), get("/jobs/a"), get("/jobs/a"), get("/jobs/b")},
			codes:  []int{202, 200, 200, 404},
			want:   []Effect{{Key: "a", Path: "/slow", Calls: 1, Effects: 1, Polls: 2}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(tc.fail, 1, slog.New(slog.DiscardHandler))
			h := l.handler()
			var codes []int
			for _, r := range tc.calls {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				codes = append(codes, w.Code)
			}
			if diff := cmp.Diff(tc.codes, codes); diff != "" {
				t.Errorf("%s\ncodes: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, l.list(), cmpopts.IgnoreFields(Effect{}, "Body")); diff != "" {
				t.Errorf("%s\neffects: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func post(path, key string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }
