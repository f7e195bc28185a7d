package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestThrottled makes an API server refuse the requests of the HTTP API as its priority and fairness does: without a
// Status.
func TestThrottled(t *testing.T) {
	a := setupWith(t, func(a *api, o *httpapi.Options) {
		anonymous(o)
		config := rest.CopyConfig(a.config)
		config.Wrap(func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
					Body: io.NopCloser(strings.NewReader("Too many requests, please try again later.\n")), Request: r,
				}, nil
			})
		})
		// Almost no retries, which have tests of their own.
		calls, err := call.New(call.Options{Config: config, Budget: &call.Budget{PerSecond: 1e-9, Ratio: -1, Burst: 1e-9}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(calls.Close)
		scheduler, err := operations.NewScheduler(
			operations.Options{Config: config, Calls: calls, Namespace: o.Scheduler.Namespace()},
		)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(scheduler.Close)
		o.Scheduler = scheduler
	})
	for _, request := range [][3]string{
		{"POST", "/operations", deletion},
		{"POST", "/operations/app/1:cancel", ""},
		{"GET", "/operations/app/1", ""},
	} {
		got := a.do("", request[0], request[1], request[2])
		if diff := cmp.Diff([]any{http.StatusServiceUnavailable, "1"},
			[]any{got.status, got.header.Get("Retry-After")}); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s%s", request[0], request[1], diff, got.body)
		}
	}
}

// authorizer fails with an error.
type authorizer struct{ err error }

func (a authorizer) Authorize(context.Context, string, string, string) error { return a.err }

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		err    error
		status int
		after  string
	}{
		"Told": {
			"The Retry-After of the API server is passed on.", apierrors.NewTooManyRequests("busy", 7),
			http.StatusServiceUnavailable, "7",
		},
		"NotTold": {
			"Without one it is a second.", apierrors.NewTooManyRequests("busy", 0),
			http.StatusServiceUnavailable, "1",
		},
		"Endless": {
			"It is bounded.", apierrors.NewTooManyRequests("busy", 1<<30),
			http.StatusServiceUnavailable, "300",
		},
		"OutOfTime": {"A timeout meanwhile is not the cause.", fmt.Errorf("%w; %w",
			apierrors.NewTooManyRequests("busy", 60), context.DeadlineExceeded), http.StatusServiceUnavailable, "60"},
		"Conflict": {
			"Other retries do not help against too many writers.",
			apierrors.NewConflict(v1alpha1.OperationsResource.GroupResource(), "app-1", nil), http.StatusServiceUnavailable,
			"1",
		},
		"Down": {
			"A failing API server is unavailable for a while.",
			apierrors.NewServiceUnavailable("shutting down"), http.StatusServiceUnavailable, "1",
		},
		"Busy": {
			"So is one that sends Retry-After.",
			apierrors.NewServerTimeout(v1alpha1.OperationsResource.GroupResource(), "create", 3), http.StatusServiceUnavailable,
			"3",
		},
		"Slow": {
			"A slow one is a gateway timeout.", apierrors.NewTimeoutError("etcd", 0),
			http.StatusGatewayTimeout, "",
		},
		"Exists": {
			"A name that is created and deleted is a race like a conflict.",
			apierrors.NewAlreadyExists(v1alpha1.OperationsResource.GroupResource(), "app-1"), http.StatusServiceUnavailable,
			"1",
		},
		"NoRight": {
			"The missing right is named.",
			apierrors.NewForbidden(v1alpha1.OperationsResource.GroupResource(), "app-1", nil), http.StatusForbidden, "",
		},
		"NotKnown": {
			"An unknown token of the server is not an error of the caller.",
			apierrors.NewUnauthorized("who"), http.StatusBadGateway, "",
		},
		"ServerError": {
			"Other errors stay what they are.", apierrors.NewInternalError(fmt.Errorf("no")),
			http.StatusBadGateway, "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			page := httpapi.Protect(http.NotFoundHandler(), authorizer{fmt.Errorf("cannot authorize: %w", tc.err)})
			page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if diff := cmp.Diff([]any{tc.status, tc.after}, []any{w.Code, w.Header().Get("Retry-After")}); diff != "" {
				t.Errorf("%s (-want +got):\n%s%s", tc.reason, diff, w.Body)
			}
		})
	}
}
