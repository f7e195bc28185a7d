package abandon_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/abandon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A discovery request ends with the life of the cluster. A finished request leaves no callback behind, since discovery
// repeats requests for kinds that are not installed.
func TestTransport(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, tc := range []struct {
		reason string
		err    error
		end    func(body io.Closer, endLife func())
	}{
		{"the cluster is closed during the request", nil, func(_ io.Closer, endLife func()) { endLife() }},
		{"the response was read", nil, func(body io.Closer, _ func()) { _ = body.Close() }},
		{"the request failed", refused, func(io.Closer, func()) {}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			life, endLife := context.WithCancel(t.Context())
			defer endLife()
			var sent context.Context
			a := abandon.With(life)(roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = r.Context()
				if tc.err != nil {
					return nil, tc.err
				}
				return &http.Response{Body: io.NopCloser(strings.NewReader("{}"))}, nil
			}))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := a.RoundTrip(r)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			var body io.Closer
			if resp != nil {
				if sent.Err() != nil {
					t.Error("the request was ended before its response was read")
				}
				body = resp.Body
				defer resp.Body.Close()
			}
			tc.end(body, endLife)
			select {
			case <-sent.Done():
			case <-t.Context().Done():
			}
		})
	}
}
