package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// reader is the sender of a request.
type reader struct {
	c     *console
	token string
	name  string // for display; empty without authentication
	// session is the session of the cookie, or nil. It ends at until unless it is renewed.
	session *session
	until   time.Time
	csrf    string // token that forms of this reader must send
	open    bool   // no login is required
	named   bool   // by a proxy, which handles login and logout
	// refused maps objects that this reader may not get to the end of the cached refusal (sight.go). One page at a time
	// is rendered for a reader.
	refused map[why.Object]time.Time
}

// may returns nil, a *httpapi.Problem, or another error if the check failed.
func (r *reader) may(ctx context.Context, a httpapi.Access) error {
	err := r.c.Authorizer.May(ctx, r.token, a)
	if err == nil {
		serve.Known(ctx)
	}
	return err
}

// stays returns nil while the session of a reader lasts or if there is none, and errOver after its end. Another error
// means that the check failed.
func (r *reader) stays(ctx context.Context) (err error) {
	if r.session != nil {
		r.until, err = r.c.logouts.check(ctx, r.session)
	}
	return err
}

// renew extends a session in use that would end before its maximum.
func (r *reader) renew(w http.ResponseWriter, req *http.Request) {
	now := r.c.now()
	if r.session == nil || !r.until.Before(r.session.Until) || now.Sub(r.session.Issued) < renewAfter {
		return
	}
	kept, err := r.c.seals.seal(*r.session, req.TLS != nil, now)
	if err != nil {
		r.c.log.ErrorContext(req.Context(), "cannot renew a session of the console", "error", err)
		return
	}
	http.SetCookie(w, kept)
}

// nobody reports whether an error means that there is no valid session, as opposed to a failed check.
func nobody(err error) bool { return errors.Is(err, errNoSession) || errors.Is(err, errOver) }

// refused reports whether an error denies access, as opposed to a failed check.
func refused(err error) bool {
	p, ok := errors.AsType[*httpapi.Problem](err)
	return ok && (p.Status == http.StatusForbidden || p.Status == http.StatusUnauthorized)
}

// unknown reports whether an error means that the token is invalid.
func unknown(err error) bool {
	p, ok := errors.AsType[*httpapi.Problem](err)
	return ok && p.Status == http.StatusUnauthorized
}

// mayRun checks the right to a page about the whole program.
func (r *reader) mayRun(ctx context.Context, page string) error {
	return r.mayAt(ctx, httpapi.Access{Verb: "get", Path: "/debug/" + page})
}

// mayAt checks the right to a path. For get, the right to list all served operations is enough.
func (r *reader) mayAt(ctx context.Context, at httpapi.Access) error {
	var served []string
	if r.c.Operations != nil {
		served = r.c.served()
	}
	return httpapi.MayRead(at, served, func(a httpapi.Access) error { return r.may(ctx, a) })
}

// served returns the namespaces whose operations are served. An empty name means all namespaces.
func (c *console) served() []string {
	if len(c.Operations.Namespaces) > 0 {
		return c.Operations.Namespaces
	}
	return []string{""}
}

// bearer returns the bearer token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// read authenticates a request by a trusted proxy, by a bearer token, or by the session cookie.
func (c *console) read(r *http.Request) (*reader, error) {
	rd := &reader{c: c, open: c.InsecureNoAuth}
	if rd.open {
		rd.csrf = c.seals.mark("anybody")
		return rd, nil
	}
	if user, ok := httpapi.Proxied(r.Context()); ok {
		rd.named, rd.name, rd.csrf = true, user.Username, c.seals.mark("user "+user.Username) // not a session id
		return rd, nil
	}
	if rd.token = bearer(r); rd.token == "" {
		s, err := c.seals.session(r, c.now())
		if err != nil {
			return nil, err
		}
		rd.token, rd.session, rd.csrf = s.Token, &s, c.seals.mark(s.ID)
		if err := rd.stays(r.Context()); err != nil {
			return nil, err
		}
	}
	rd.name = c.Authorizer.Caller(rd.token)
	return rd, nil
}
