package console

import (
	"errors"
	"net/http"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// guard has pages below /debug/ answer only who may see them.
func (c *console) guard(pages http.Handler) http.Handler {
	return c.Proxy.Handler(c.secured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rd, err := c.read(r)
		if err == nil {
			err = c.mayPass(rd, r)
		}
		switch {
		case err == nil:
			rd.renew(w, r)
			w.Header().Del("Content-Security-Policy") // their scripts and styles are their own
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

// mayPass wants the right to the path of a request.
func (c *console) mayPass(rd *reader, r *http.Request) error {
	at := httpapi.PathAccess(r)
	if at.Verb != "get" && !rd.open && (rd.named || bearer(r) == "") { // a page of others may have had the browser send it
		return &httpapi.Problem{
			Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden),
			Detail: "what may change something has to be sent with the header Authorization: Bearer",
		}
	}
	return rd.mayAt(httpapi.WithClient(r.Context(), r), at)
}

// refuse tells a program why it gets no page.
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
