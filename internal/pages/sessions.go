package pages

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/rights"
)

// Session is the sealed content of the cookie.
type Session struct {
	ID     string    `json:"i"`
	Token  string    `json:"t"`
	Until  time.Time `json:"u"`
	Issued time.Time `json:"b"` // time of the login or the last renewal

	ends time.Time // unless it is renewed
}

// short reports whether the session ends before its maximum unless it is renewed.
func (s *Session) short() bool { return s.ends.Before(s.Until) }

const (
	// maxSession bounds the duration of a login.
	maxSession = 8 * time.Hour
	// minSessionKey is the minimum length of a session key in bytes.
	minSessionKey = 32
	// maxToken bounds the length of a token in bytes, because it must fit into a cookie.
	maxToken = 2800

	cookieName = "fairlead-console"
)

var (
	errNoSession = errors.New("not logged in")
	errOver      = errors.New("the session has ended: log in again")
)

// SessionOptions configures Sessions. The zero value works.
type SessionOptions struct {
	// Key seals the cookie. At least 32 bytes. Default: random, so that a restart ends all sessions.
	Key []byte
	// Calls and Namespace, if both are set, share logouts with other replicas.
	Calls     *call.Client
	Namespace string
	Log       *slog.Logger // required
}

// Sessions are the logins of readers. The cookie of a session contains its token, sealed, so that any replica with the key
// can serve it. It is safe for concurrent use.
type Sessions struct {
	seals   *seals
	logouts *logouts
	log     *slog.Logger
}

// NewSessions returns Sessions. It fails if the key is too short.
func NewSessions(o SessionOptions) (*Sessions, error) {
	if len(o.Key) > 0 && len(o.Key) < minSessionKey {
		return nil, errors.New("the session key has less than 32 bytes")
	}
	sealed, err := newSeals(o.Key)
	if err != nil {
		return nil, err
	}
	return &Sessions{seals: sealed, logouts: newLogouts(o), log: o.Log}, nil
}

// Rights returns the rights that the program needs.
func (s *Sessions) Rights() []rights.Right { return s.logouts.rights() }

// begin sets the cookie of a new session.
func (s *Sessions) begin(w http.ResponseWriter, r *http.Request, token string) error {
	kept, err := s.seals.begin(token, r.TLS != nil, time.Now())
	if err == nil {
		http.SetCookie(w, kept)
	}
	return err
}

// of returns the session of a request. It returns errNoSession, errOver, or another error if the check failed.
func (s *Sessions) of(r *http.Request) (*Session, error) {
	of, err := s.seals.session(r, time.Now())
	if err != nil {
		return nil, err
	}
	return &of, s.check(r.Context(), &of)
}

// check returns nil while a session lasts, errOver after its end, and another error if the check failed.
func (s *Sessions) check(ctx context.Context, of *Session) (err error) {
	of.ends, err = s.logouts.check(ctx, of)
	return err
}

// renew sets a new cookie for a short session, some minutes after the last one.
func (s *Sessions) renew(w http.ResponseWriter, r *http.Request, of *Session) {
	now := time.Now()
	if !of.short() || now.Sub(of.Issued) < renewAfter {
		return
	}
	kept, err := s.seals.seal(*of, r.TLS != nil, now)
	if err != nil {
		s.log.ErrorContext(r.Context(), "cannot renew a session of the console", "error", err)
		return
	}
	http.SetCookie(w, kept)
}

// end ends a session, which may be nil, and removes the cookie. An error means that other replicas may not know.
func (s *Sessions) end(w http.ResponseWriter, r *http.Request, of *Session) (err error) {
	if of != nil {
		err = s.logouts.end(r.Context(), of)
	}
	gone := cookie(r.TLS != nil)
	gone.MaxAge = -1
	w.Header().Del("Set-Cookie") // of the renewal
	http.SetCookie(w, gone)
	return err
}

// formToken returns the token of forms for a session or a user.
func (s *Sessions) formToken(of string) string { return s.seals.mark(of) }

// loggedOut reports whether an error means that there is no valid session, as opposed to a failed check.
func loggedOut(err error) bool { return errors.Is(err, errNoSession) || errors.Is(err, errOver) }

// seals seals cookies and authenticates forms.
type seals struct {
	box  cipher.AEAD
	mark func(of string) string // a MAC of the text that only replicas with the same key can compute
}

func newSeals(key []byte) (*seals, error) {
	if len(key) == 0 {
		key = make([]byte, minSessionKey)
		_, _ = rand.Read(key) // it never fails
	}
	derive := func(purpose string) ([]byte, error) {
		return hkdf.Key(sha256.New, key, nil, "fairlead console "+purpose, 32)
	}
	boxKey, err := derive("session")
	if err != nil {
		return nil, err
	}
	markKey, err := derive("form")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(boxKey)
	if err != nil {
		return nil, err
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &seals{box: box, mark: func(of string) string {
		mac := hmac.New(sha256.New, markKey)
		mac.Write([]byte(of))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}}, nil
}

// begin returns the cookie of a new session. The expiry of a JWT limits the session, but is not trusted: the API server
// reviews the token on each request.
func (s *seals) begin(token string, secure bool, now time.Time) (*http.Cookie, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	of := Session{ID: base64.RawURLEncoding.EncodeToString(id), Token: token, Until: now.Add(maxSession)}
	if ends, ok := endOf(token); ok && ends.Before(of.Until) {
		of.Until = ends
	}
	return s.seal(of, secure, now)
}

// seal returns the cookie of a new or renewed session.
func (s *seals) seal(of Session, secure bool, now time.Time) (*http.Cookie, error) {
	of.Issued = now
	raw, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	c := cookie(secure)
	c.Value = base64.RawURLEncoding.EncodeToString(s.box.Seal(nil, nil, raw, []byte(cookieName)))
	c.MaxAge = max(1, int(of.Until.Sub(now)/time.Second))
	return c, nil
}

func cookie(secure bool) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// session opens the cookie of a request.
func (s *seals) session(r *http.Request, now time.Time) (Session, error) {
	var of Session
	c, err := r.Cookie(cookieName)
	if err != nil || c.Value == "" {
		return of, errNoSession
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return of, errOver
	}
	raw, err := s.box.Open(nil, nil, sealed, []byte(cookieName))
	if err != nil || json.Unmarshal(raw, &of) != nil || !now.Before(of.Until) {
		return Session{}, errOver
	}
	return of, nil
}

// endOf returns the expiry of a JWT, without verification.
func endOf(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Exp, 0), true
}

// private reports whether the connection of a request is confidential: it is encrypted or local.
func private(r *http.Request) bool {
	return r.TLS != nil || serve.IsLocal(r)
}
