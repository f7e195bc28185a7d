package console

import (
	"errors"
	"net/http"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// guard restricts the pages below /debug/ to authorized readers.
func (c *console) guard(pages http.Handler) http.Handler {
	return c.Proxy.Handler(c.secured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rd, err := c.read(r)
		if err == nil {
			err = c.mayPass(rd, r)
		}
		switch {
		case err == nil:
			rd.renew(w, r)
			w.Header().Del("Content-Security-Policy") // these pages have their own scripts and styles
			pages.ServeHTTP(w, r)
		case !byPerson(r):
			c.refuse(w, err)
		case rd == nil:
			c.toLogin(w, r, err)
		default:
			c.fail(w, r, rd, err)
		}
	})))
}

// mayPass checks the right to the path of a request.
func (c *console) mayPass(rd *reader, r *http.Request) error {
	at := httpapi.PathAccess(r)
	if at.Verb != "get" && !rd.open && (rd.named || bearer(r) == "") { // cross-site requests carry these
		return &httpapi.Problem{
			Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden),
			Detail: "what may change something has to be sent with the header Authorization: Bearer",
		}
	}
	return rd.mayAt(httpapi.WithClient(r.Context(), r), at)
}

// refuse answers a program without access.
func (c *console) refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*httpapi.Problem](err)
	switch {
	case ok:
		problem(w, p.Status, p.Detail)
	case errors.Is(err, errNoSession), errors.Is(err, errOver):
		problem(w, http.StatusUnauthorized, "send the header Authorization: Bearer with a token of this cluster")
	default:
		problem(w, http.StatusServiceUnavailable, err.Error())
	}
}
