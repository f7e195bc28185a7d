package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/serve"
)

// session is the sealed content of the cookie.
type session struct {
	ID     string    `json:"i"`
	Token  string    `json:"t"`
	Until  time.Time `json:"u"`
	Issued time.Time `json:"b"` // time of the login or the last renewal
}

const (
	// maxSession bounds the duration of a login.
	maxSession = 8 * time.Hour
	// maxToken bounds the length of a token in bytes, because it must fit into a cookie.
	maxToken = 2800

	cookieName = "fairlead-console"
)

var (
	errNoSession = errors.New("nobody is logged in")
	errOver      = errors.New("the session has ended: log in again")
)

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
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	markKey, err := derive("form")
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	block, err := aes.NewCipher(boxKey)
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
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
	of := session{ID: base64.RawURLEncoding.EncodeToString(id), Token: token, Until: now.Add(maxSession)}
	if ends, ok := endOf(token); ok && ends.Before(of.Until) {
		of.Until = ends
	}
	return s.seal(of, secure, now)
}

// seal returns the cookie of a new or renewed session.
func (s *seals) seal(of session, secure bool, now time.Time) (*http.Cookie, error) {
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
func (s *seals) session(r *http.Request, now time.Time) (session, error) {
	var of session
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
		return session{}, errOver
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
