package controller

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/fairlead-io/fairlead/internal/serve"
)

// localOnly serves only programs on this machine. It refuses requests from pages of other sites in a local browser.
// Such pages can send requests to loopback, and can read the answers after DNS rebinding.
func localOnly(next http.Handler, publicURL string) (http.Handler, error) {
	public, err := url.Parse(publicURL)
	if err != nil {
		return nil, fmt.Errorf("cannot use the public URL: %w", err)
	}
	refuse := func(w http.ResponseWriter, detail string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		// it fails only if the client has disconnected
		_, _ = fmt.Fprintf(w, `{"title":"Forbidden","status":403,"detail":%q}`+"\n", detail)
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, "with --insecure-no-auth, requests from other origins are refused")
	}))
	same := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !serve.IsLocalHost(r.Host) && serve.Hostname(r.Host) != serve.Hostname(public.Host) {
			refuse(w, "with --insecure-no-auth the host must be localhost, a loopback address or that of --public-url")
			return
		}
		same.ServeHTTP(w, r)
	}), nil
}
