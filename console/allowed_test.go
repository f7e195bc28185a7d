package console_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
)

// TestPagesNeedTheirRight runs an API server that knows jane and bob. Only jane may get a page below /debug/.
func TestPagesNeedTheirRight(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review) // an unreadable review has no user
			if name, ok := strings.CutPrefix(review.Spec.Token, "of-"); ok {
				review.Status = authenticationv1.TokenReviewStatus{
					Authenticated: true, User: authenticationv1.UserInfo{Username: name},
				}
			}
			answer = review
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			var review authorizationv1.SubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			at := review.Spec.NonResourceAttributes
			review.Status.Allowed = at != nil && review.Spec.User == "jane" && at.Verb == "get" &&
				at.Path == "/debug/sources"
			answer = review
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	pages := fairlead.New(&rest.Config{Host: server.URL},
		fairlead.WithConsole(console.Options{GuardDebug: true})).Handler()
	for _, tc := range []struct {
		token, method, path string
		want                int
	}{
		{"", http.MethodGet, "/debug/sources", http.StatusUnauthorized},
		{"forged", http.MethodGet, "/debug/sources", http.StatusUnauthorized},
		{"of-bob", http.MethodGet, "/debug/sources", http.StatusForbidden},
		{"of-jane", http.MethodGet, "/debug/sources", http.StatusOK},
		{"of-jane", http.MethodPost, "/debug/sources", http.StatusForbidden},
		{"of-jane", http.MethodGet, "/debug/controllers", http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, nil)
		if tc.token != "" {
			r.Header.Set("Authorization", "Bearer "+tc.token)
		}
		w := httptest.NewRecorder()
		if pages.ServeHTTP(w, r); w.Code != tc.want {
			t.Errorf("%s %s with the token %q: %d, want %d: %s", tc.method, tc.path, tc.token, w.Code, tc.want, w.Body)
		}
	}
}
