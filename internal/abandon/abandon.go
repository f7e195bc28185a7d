// Package abandon cancels requests of libraries that do not accept a context.
package abandon

import (
	"context"
	"net/http"

	"github.com/fairlead-io/fairlead/internal/connection"
)

// Transport cancels requests when Life is done, as well as when their own context is. A server that does not respond
// then blocks no caller.
type Transport struct {
	Next http.RoundTripper
	Life context.Context //nolint:containedctx // the requests come from a library that accepts no context
}

// With returns a function for rest.Config.Wrap.
func With(life context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return Transport{next, life} }
}

// WrappedRoundTripper lets client-go cancel requests at their timeout.
func (t Transport) WrappedRoundTripper() http.RoundTripper { return t.Next }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	forget := context.AfterFunc(t.Life, cancel)
	release := func() { forget(); cancel() }
	resp, err := t.Next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = connection.OnClose(resp.Body, release)
	return resp, nil
}
