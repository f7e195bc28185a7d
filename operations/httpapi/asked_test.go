package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// refusing is an Authorizer that refuses everything, and records the requests.
type refusing struct {
	status int
	asked  []string // "token verb namespace"
}

func (r *refusing) Authorize(_ context.Context, token, verb, namespace string) error {
	r.asked = append(r.asked, token+" "+verb+" "+namespace)
	return &httpapi.Problem{Status: r.status, Title: http.StatusText(r.status)}
}

// TestEveryRequestNeedsItsRight sends each request to a handler whose Authorizer refuses all of them. The scheduler
// has no API server, so a request that gets past the Authorizer fails with another status.
func TestEveryRequestNeedsItsRight(t *testing.T) {
	t.Parallel()
	scheduler, err := operations.NewScheduler(operations.Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer scheduler.Close()
	operations := store.New(store.Options{
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true,
	})
	defer operations.Close()
	for _, tc := range []struct{ method, path, body, verb, namespace string }{
		{"GET", "/operations", "", "list", "shop"},
		{"HEAD", "/operations", "", "list", "shop"},
		{"GET", "/operations?namespace=other", "", "list", "other"},
		{"POST", "/operations", `{"resourceType":"app","resourceID":"1"}`, "create", "shop"},
		{"POST", "/operations?namespace=other", `{}`, "create", "other"},
		{"GET", "/operations/app/1", "", "get", "shop"},
		{"GET", "/operations/app/1/events", "", "get", "shop"},
		{"GET", "/operations/app/1/events?namespace=other", "", "get", "other"},
		{"POST", "/operations/app/1:cancel", "", "update", "shop"},
		{"POST", "/operations/app/1:cancel?namespace=other", "", "update", "other"},
	} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
			a := &refusing{status: status}
			h, err := httpapi.New(httpapi.Options{
				Scheduler: scheduler, Operations: operations, Authorizer: a, Namespaces: []string{"other"},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a stream of events would not end
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, tc.method, tc.path, strings.NewReader(tc.body))
			r.Header.Set("Authorization", "Bearer secret")
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := "secret " + tc.verb + " " + tc.namespace
			if w.Code != status || len(a.asked) == 0 || a.asked[0] != want {
				t.Fatalf("%s %s: %d, want %d; the Authorizer was asked %q, want %q first", tc.method, tc.path, w.Code, status,
					a.asked, want)
			}
		}
	}
}

// TestIdentityAndRights runs an API server that knows only the token of jane, who may list in shop.
func TestIdentityAndRights(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review) // an invalid body has an unknown token
			if review.Spec.Token == "of-jane" {
				review.Status = authenticationv1.TokenReviewStatus{
					Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"},
				}
			}
			answer = review
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			var review authorizationv1.SubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			if at := review.Spec.ResourceAttributes; at != nil {
				review.Status.Allowed = review.Spec.User == "jane" && at.Verb == "list" && at.Namespace == "shop" &&
					at.Group == v1alpha1.GroupVersion.Group && at.Resource == "operations"
			}
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
	calls, err := call.New(call.Options{Config: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	k := httpapi.NewKubernetes(calls)
	for _, tc := range []struct {
		token, verb, namespace string
		want                   int
	}{
		{"", "list", "shop", http.StatusUnauthorized},
		{"forged", "list", "shop", http.StatusUnauthorized},
		{"of-jane", "list", "shop", 0},
		{"of-jane", "create", "shop", http.StatusForbidden},
		{"of-jane", "list", "other", http.StatusForbidden},
		{"of-jane", "list", "", http.StatusForbidden},
	} {
		err := k.Authorize(t.Context(), tc.token, tc.verb, tc.namespace)
		got := 0
		if p, ok := errors.AsType[*httpapi.Problem](err); ok {
			got = p.Status
		}
		if (err != nil) != (tc.want != 0) || got != tc.want {
			t.Errorf("%q may %s in %q: %v, want status %d", tc.token, tc.verb, tc.namespace, err, tc.want)
		}
	}
}
