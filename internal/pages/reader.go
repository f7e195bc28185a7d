package pages

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/why"
)

// Authorizer decides whether the bearer of a token has an access. May returns nil, an error with the status 401 or 403
// (see access.StatusOf), or another error when it cannot decide. Behind a trusted proxy it decides about the user that
// the proxy has named (see access.Proxied). Caller returns the display name of the user.
type Authorizer interface {
	May(ctx context.Context, token string, a access.Access) error
	Caller(token string) string
}

// Readers identifies the senders of requests.
type Readers struct {
	authorizer Authorizer
	sessions   *Sessions
	open       bool            // no login is required
	whole      []access.Access // together, these permit reading of pages about the whole program
}

// NewReaders returns Readers. If open, no login is required.
func NewReaders(authorizer Authorizer, sessions *Sessions, open bool, whole []access.Access) *Readers {
	return &Readers{authorizer: authorizer, sessions: sessions, open: open, whole: whole}
}

// isOpen reports whether no login is required.
func (s *Readers) isOpen() bool { return s.open }

// Reader is the sender of a request.
type Reader struct {
	of      *Readers
	token   string
	name    string   // for display; empty without authentication
	session *Session // of the cookie, or nil
	csrf    string   // token that forms of this reader must send
	named   bool     // by a proxy, which handles login and logout
	// denied maps objects that the reader may not get to the end of the cached refusal. One page at a time is rendered
	// for a reader, so there is no lock.
	denied map[why.Object]time.Time
}

// keepDenied is how long a refusal is cached for a page with live updates.
const keepDenied = 30 * time.Second

// isDenied reports whether the reader was refused an object lately.
func (r *Reader) isDenied(of why.Object) bool { return time.Now().Before(r.denied[of]) }

// deny records that the reader was refused an object.
func (r *Reader) deny(of why.Object) {
	if r.denied == nil || len(r.denied) > 4*maxAsked {
		r.denied = map[why.Object]time.Time{}
	}
	r.denied[of] = time.Now().Add(keepDenied)
}

// identify authenticates a request by a trusted proxy, by a bearer token, or by the session cookie.
func (s *Readers) identify(r *http.Request) (*Reader, error) {
	rd := &Reader{of: s}
	if s.open {
		rd.csrf = s.sessions.formToken("anybody")
		return rd, nil
	}
	if user, ok := access.Proxied(r.Context()); ok {
		rd.named, rd.name, rd.csrf = true, user.Username, s.sessions.formToken("user "+user.Username) // not a session id
		return rd, nil
	}
	if rd.token = access.Bearer(r); rd.token == "" {
		var err error
		if rd.session, err = s.sessions.of(r); err != nil {
			return nil, err
		}
		rd.token, rd.csrf = rd.session.Token, s.sessions.formToken(rd.session.ID)
	}
	rd.name = s.authorizer.Caller(rd.token)
	return rd, nil
}

// logIn begins a session with a token that the API server knows. name is that of the user.
func (s *Readers) logIn(w http.ResponseWriter, r *http.Request, token string) (name string, err error) {
	return s.authorizer.Caller(token), s.sessions.begin(w, r, token)
}

// logOut ends the session of a reader. An error means that other replicas may not know.
func (s *Readers) logOut(w http.ResponseWriter, r *http.Request, rd *Reader) error {
	return s.sessions.end(w, r, rd.session)
}

// needLogin reports whether the sender of a request has to log in here.
func (s *Readers) needLogin(r *http.Request) bool {
	_, named := access.Proxied(r.Context())
	return !named && !s.open
}

// check returns nil if the API server knows a token, whatever its rights are.
func (s *Readers) check(ctx context.Context, token string) error {
	err := s.authorizer.May(ctx, token, access.Access{Verb: "get", Path: "/debug/overview"})
	if Refused(err) && !Unknown(err) {
		return nil
	}
	return err
}

// Name returns the name of the user for display. It is empty without authentication.
func (r *Reader) Name() string { return r.name }

// open reports whether no login is required.
func (r *Reader) open() bool { return r.of.open }

// describe adds the reader to a page.
func (r *Reader) describe(v *View) {
	v.Reader, v.Open, v.Named, v.CSRF = r.name, r.of.open, r.named, r.csrf
}

// owns reports whether a form was made for this reader.
func (r *Reader) owns(csrf string) bool {
	return r.csrf != "" && subtle.ConstantTimeCompare([]byte(csrf), []byte(r.csrf)) == 1
}

// May returns nil, an error that is Refused, or another error if the check failed.
func (r *Reader) May(ctx context.Context, a access.Access) error {
	err := r.of.authorizer.May(ctx, r.token, a)
	if err == nil {
		serve.Known(ctx)
	}
	return err
}

// Stays returns nil while the session of a reader lasts or if there is none, and an error after its end or if the check
// failed. A request that lasts calls it again and again.
func (r *Reader) Stays(ctx context.Context) error {
	if r.session == nil {
		return nil
	}
	return r.of.sessions.check(ctx, r.session)
}

// renew extends a session in use that would end before its maximum.
func (r *Reader) renew(w http.ResponseWriter, req *http.Request) {
	if r.session != nil {
		r.of.sessions.renew(w, req, r.session)
	}
}

// streamFor returns the maximum duration of a stream. The next stream renews a short session.
func (r *Reader) streamFor() time.Duration {
	if r.session != nil && r.session.short() {
		return renewAfter
	}
	return liveFor
}

// MayRun checks the right to a page about the whole program.
func (r *Reader) MayRun(ctx context.Context, page string) error {
	return r.mayAt(ctx, access.Access{Verb: "get", Path: "/debug/" + page})
}

// mayAt checks the right to a path.
func (r *Reader) mayAt(ctx context.Context, at access.Access) error {
	return access.MayRead(at, r.of.whole, func(a access.Access) error { return r.May(ctx, a) })
}

// mayPass checks the right to a page below /debug/. Browsers send cookies and the identity behind a proxy with
// cross-site requests, so a request that may change something needs a bearer token.
func (r *Reader) mayPass(req *http.Request) error {
	at := access.PathAccess(req)
	if at.Verb != "get" && !r.of.open && (r.named || access.Bearer(req) == "") {
		return &access.Problem{
			Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden),
			Detail: "a request that may change something needs the header Authorization: Bearer",
		}
	}
	return r.mayAt(access.WithClient(req.Context(), req), at)
}

// logsInHere reports whether the reader logs in at the console, as opposed to a proxy.
func (r *Reader) logsInHere() bool { return r == nil || !r.named }

// ErrNothing is the error for a missing object and for a hidden one, so that both answers are the same.
var ErrNothing = errors.New("there is no such page or object, or you may not see it")

// Refused reports whether an error denies access, as opposed to a failed check.
func Refused(err error) bool {
	status := access.StatusOf(err)
	return status == http.StatusForbidden || status == http.StatusUnauthorized
}

// Unknown reports whether an error means that the token is invalid.
func Unknown(err error) bool { return access.StatusOf(err) == http.StatusUnauthorized }

// Allowed reports whether an error does not deny access. A failed check counts as allowed.
func Allowed(err error) bool { return err == nil || !Refused(err) }
