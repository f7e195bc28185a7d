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

// Sessions are the logins of readers. The cookie of a session contains its token, sealed, so that any replica with the
// key can serve it. It is safe for concurrent use.
type Sessions struct {
	box     cipher.AEAD // seals cookies
	formKey []byte
	logouts *logouts
	log     *slog.Logger
}

// NewSessions returns Sessions. It fails if the key is too short.
func NewSessions(o SessionOptions) (*Sessions, error) {
	key := o.Key
	if len(key) == 0 {
		key = make([]byte, minSessionKey)
		_, _ = rand.Read(key) // it never fails
	}
	if len(key) < minSessionKey {
		return nil, errors.New("the session key has less than 32 bytes")
	}
	var keys [2][]byte
	for i, purpose := range []string{"session", "form"} {
		var err error
		if keys[i], err = hkdf.Key(sha256.New, key, nil, "fairlead console "+purpose, 32); err != nil {
			return nil, err
		}
	}
	block, err := aes.NewCipher(keys[0])
	if err != nil {
		return nil, err
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	return &Sessions{box: box, formKey: keys[1], logouts: newLogouts(o), log: o.Log}, err
}

// Rights returns the rights that the program needs.
func (s *Sessions) Rights() []rights.Right { return s.logouts.rights() }

// begin sets the cookie of a new session. The expiry of a JWT limits the session, but is not trusted: the API server
// reviews the token on each request.
func (s *Sessions) begin(w http.ResponseWriter, r *http.Request, token string) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	of := Session{ID: base64.RawURLEncoding.EncodeToString(id), Token: token, Until: time.Now().Add(maxSession)}
	if ends, ok := endOf(token); ok && ends.Before(of.Until) {
		of.Until = ends
	}
	return s.set(w, r, of)
}

// set sets the cookie of a new or renewed session.
func (s *Sessions) set(w http.ResponseWriter, r *http.Request, of Session) error {
	of.Issued = time.Now()
	raw, err := json.Marshal(of)
	if err != nil {
		return err
	}
	c := cookie(r.TLS != nil)
	c.Value = base64.RawURLEncoding.EncodeToString(s.box.Seal(nil, nil, raw, []byte(cookieName)))
	c.MaxAge = max(1, int(of.Until.Sub(of.Issued)/time.Second))
	http.SetCookie(w, c)
	return nil
}

// of returns the session of a request. It returns errNoSession, errOver, or another error if the check failed.
func (s *Sessions) of(r *http.Request) (*Session, error) {
	c, err := r.Cookie(cookieName)
	if err != nil || c.Value == "" {
		return nil, errNoSession
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil, errOver
	}
	of := &Session{}
	raw, err := s.box.Open(nil, nil, sealed, []byte(cookieName))
	if err != nil || json.Unmarshal(raw, of) != nil || !time.Now().Before(of.Until) {
		return nil, errOver
	}
	return of, s.check(r.Context(), of)
}

// check returns nil while a session lasts, errOver after its end, and another error if the check failed.
func (s *Sessions) check(ctx context.Context, of *Session) (err error) {
	of.ends, err = s.logouts.check(ctx, of)
	return err
}

// renew sets a new cookie for a short session, some minutes after the last one.
func (s *Sessions) renew(w http.ResponseWriter, r *http.Request, of *Session) {
	if !of.short() || time.Since(of.Issued) < renewAfter {
		return
	}
	if err := s.set(w, r, *of); err != nil {
		s.log.ErrorContext(r.Context(), "cannot renew a session of the console", "error", err)
	}
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

// formToken returns the token of forms for a session or a user: a MAC that only replicas with the same key can compute.
func (s *Sessions) formToken(of string) string {
	mac := hmac.New(sha256.New, s.formKey)
	mac.Write([]byte(of))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// loggedOut reports whether an error means that there is no valid session, as opposed to a failed check.
func loggedOut(err error) bool { return errors.Is(err, errNoSession) || errors.Is(err, errOver) }

func cookie(secure bool) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
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
