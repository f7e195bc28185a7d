package executor

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestTokensForOthersOnly: a token that the API server itself may accept is not sent. The server accepts it, refuses
// it, or gives no answer.
func TestTokensForOthersOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason   string
		review   string // the API server's review of the token; empty: none
		want     string
		invalid  bool
		requests int64 // for two tries
	}{
		"Foreign": {"The token is no good in the cluster, and is kept.", `{"authenticated":false}`, "t-o-k", false, 1},
		"Own": {
			"A receiver could act as the account, so no try is made with it, nor kept.", `{"authenticated":true}`, "",
			true, 2,
		},
		"Unknown": {"A token of unknown use is not sent.", "", "", false, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case strings.HasSuffix(r.URL.Path, "/namespaces/shop/serviceaccounts/caller/token"):
					requests.Add(1)
					_, _ = fmt.Fprintf(w,
						`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"t-o-k","expirationTimestamp":%q}}`,
						time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
				case tc.review == "":
					w.WriteHeader(http.StatusForbidden)
				default:
					_, _ = fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":%s}`, tc.review)
				}
			}))
			t.Cleanup(server.Close)
			calls, err := call.New(call.Options{Config: &rest.Config{Host: server.URL}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(calls.Close)
			s := &secrets{
				releases: &releases{any: true}, calls: calls, now: time.Now,
				policy: func(string) call.Policy { return call.Policy{} }, spend: func(string, fair.Price) {},
				tokens: make(map[string]map[tokenKey]token),
			}
			for range 2 {
				got, err := s.ServiceAccountToken(t.Context(),
					webhook.TokenRequest{Namespace: "shop", ServiceAccountName: "caller", Audience: "crm"})
				if got != tc.want || (err != nil) != (tc.want == "") || errors.Is(err, webhook.ErrInvalid) != tc.invalid {
					t.Errorf("%s: got %q, %v", tc.reason, got, err)
				}
			}
			if got := requests.Load(); got != tc.requests {
				t.Errorf("%s: %d requests for tokens, want %d", tc.reason, got, tc.requests)
			}
		})
	}
}
