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

// reader is who sends a request.
type reader struct {
	c     *console
	token string
	name  string // for people; empty where nobody has to say who they are
	// session is that of the cookie; nil: there is none. It lasts until until, if it is not renewed.
	session *session
	until   time.Time
	csrf    string // what a form of this reader has to send
	open    bool   // nobody has to log in
	named   bool   // by a proxy, which is where they log in and out
	// refused are objects that this reader may not get, and until when that is not asked again (sight.go). One page at a
	// time is made for a reader.
	refused map[why.Object]time.Time
}

// may returns nil, a *httpapi.Problem, or another error where it cannot be decided.
func (r *reader) may(ctx context.Context, a httpapi.Access) error {
	err := r.c.Authorizer.May(ctx, r.token, a)
	if err == nil {
		serve.Known(ctx)
	}
	return err
}

// stays returns nil while the session of a reader lasts, if there is one, and errOver when it has ended. Another error
// says that this cannot be found out.
func (r *reader) stays(ctx context.Context) (err error) {
	if r.session != nil {
		r.until, err = r.c.logouts.check(ctx, r.session)
	}
	return err
}

// renew has a session that is used last longer, where it would end before its time.
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

// nobody tells whether an error says that no session lasts, rather than that this cannot be found out.
func nobody(err error) bool { return errors.Is(err, errNoSession) || errors.Is(err, errOver) }

// refused tells whether an error says no, rather than that nobody could be asked.
func refused(err error) bool {
	p, ok := errors.AsType[*httpapi.Problem](err)
	return ok && (p.Status == http.StatusForbidden || p.Status == http.StatusUnauthorized)
}

// unknown tells whether an error says that the token is nobody's.
func unknown(err error) bool {
	p, ok := errors.AsType[*httpapi.Problem](err)
	return ok && p.Status == http.StatusUnauthorized
}

// mayRun wants the right to pages about the whole program.
func (r *reader) mayRun(ctx context.Context, page string) error {
	return r.mayAt(ctx, httpapi.Access{Verb: "get", Path: "/debug/" + page})
}

// mayAt wants the right to a path, or, to get it, that to list all operations that are served.
func (r *reader) mayAt(ctx context.Context, at httpapi.Access) error {
	var served []string
	if r.c.Operations != nil {
		served = r.c.served()
	}
	return httpapi.MayRead(at, served, func(a httpapi.Access) error { return r.may(ctx, a) })
}

// served are the namespaces whose operations are served; one that is empty stands for all.
func (c *console) served() []string {
	if len(c.Operations.Namespaces) > 0 {
		return c.Operations.Namespaces
	}
	return []string{""}
}

// bearer returns the token of a request's header.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// read finds out who sends a request: by what a proxy says that is believed, by a bearer token, or by the cookie of a
// session.
func (c *console) read(r *http.Request) (*reader, error) {
	rd := &reader{c: c, open: c.InsecureNoAuth}
	if rd.open {
		rd.csrf = c.seals.mark("anybody")
		return rd, nil
	}
	if user, ok := httpapi.Proxied(r.Context()); ok {
		rd.named, rd.name, rd.csrf = true, user.Username, c.seals.mark("user "+user.Username) // no session is called like that
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
