package pages

import (
	"net/http"
	"strings"

	"github.com/fairlead-io/fairlead/internal/serve"
)

// policy lets a page load content only from this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure adds security headers, and refuses cross-site requests. If open, it refuses other hosts than the local one,
// against DNS rebinding.
func secure(open bool, next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, text string) { http.Error(w, text, http.StatusForbidden) }
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, "requests from pages of other sites are refused")
	}))
	same := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !strings.HasPrefix(r.URL.Path, staticPath) {
			h.Set("Cache-Control", "no-store")
		}
		if open && !serve.IsLocalHost(r.Host) {
			refuse(w, "without authentication the host must be localhost or a loopback address")
			return
		}
		same.ServeHTTP(w, r)
	})
}
