package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokenTTL is the lifetime of a token without expires_in.
const tokenTTL = 10 * time.Minute

// maxToken bounds the length of an access token in bytes. It is sent in a header.
const maxToken = 16 << 10

// tokens caches an access token for each endpoint.
type tokens struct {
	mu      sync.Mutex
	entries map[string]*tokenEntry // by endpoint
}

// tokenEntry fetches one token at a time. Concurrent callers wait for it.
type tokenEntry struct {
	key   string        // digest of the inputs: another secret has another entry
	turn  chan struct{} // a lock: holds an element while free; guards token
	token accessToken   // the zero value: none
}

// accessToken is a bearer token of a token endpoint.
type accessToken struct {
	value   string
	renewAt time.Time
	refused *atomic.Bool // set after a receiver refused the token; each value has its own
}

// usable reports whether the token may be sent. refused is a token that the receiver has just refused.
func (a accessToken) usable(refused string, now time.Time) bool {
	return a.value != "" && a.value != refused && !a.refused.Load() && now.Before(a.renewAt)
}

// get returns the token of an endpoint. It calls fetch if there is no usable one in the cache; fetched tells which.
func (t *tokens) get(
	ctx context.Context, endpoint, key, refused string, fetch func() (accessToken, error),
) (token accessToken, fetched bool, err error) {
	entry := t.entry(endpoint, key)
	select {
	case <-entry.turn:
	case <-ctx.Done():
		return accessToken{}, false, fmt.Errorf("cannot get an access token: %w", ctx.Err())
	}
	defer func() { entry.turn <- struct{}{} }()
	if entry.token.usable(refused, time.Now()) {
		return entry.token, false, nil
	}
	entry.token, err = fetch()
	return entry.token, true, err
}

func (t *tokens) entry(endpoint, key string) *tokenEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[endpoint]; e != nil && e.key == key {
		return e
	}
	if t.entries == nil {
		t.entries = map[string]*tokenEntry{}
	}
	e := &tokenEntry{key: key, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	t.entries[endpoint] = e
	return e
}

// known returns the cached token, or "" if there is none or a fetch is in progress.
func (t *tokens) known(endpoint, key string) string {
	t.mu.Lock()
	e := t.entries[endpoint]
	t.mu.Unlock()
	if e == nil || e.key != key {
		return ""
	}
	select {
	case <-e.turn:
		defer func() { e.turn <- struct{}{} }()
		return e.token.value
	default:
		return ""
	}
}

func (t *tokens) forget(endpoint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, endpoint)
}

func (c credentialSource) resolveOAuth2(
	ctx context.Context, d *Definition, creds *credentials, trusted bool, refused string,
) error {
	const field = "spec.auth.oauth2"
	values, err := c.secret(ctx, d, field, d.Auth.OAuth2.Secret, keyClientID, keyClientSecret)
	if err != nil {
		return err
	}
	id, secret := string(bytes.TrimSpace(values[keyClientID])), string(bytes.TrimSpace(values[keyClientSecret]))
	creds.hide(secret, base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret))))
	key := tokenKey(d, id, secret)
	if !trusted {
		creds.hide(c.tokens.known(d.endpoint(), key))
		return nil
	}
	token, fetched, err := c.tokens.get(ctx, d.endpoint(), key, refused, func() (accessToken, error) {
		return c.fetchToken(ctx, d, creds.tls.ca, id, secret)
	})
	if err != nil {
		var known *credentialsError
		if !errors.As(err, &known) {
			err = &credentialsError{Field: field, Err: err}
		}
		return err
	}
	creds.cached, creds.refused = !fetched, token.refused
	return creds.bearer(field, token.value)
}

// fetchToken requests a token from the token endpoint of d. ca are further CAs, in PEM. The error is a
// *credentialsError.
func (c credentialSource) fetchToken(
	ctx context.Context, d *Definition, ca []byte, id, secret string,
) (accessToken, error) {
	const field = "spec.auth.oauth2"
	transport, release, err := c.transports.transport(ctx, d.Namespace, tlsMaterial{ca: ca, withSystem: true})
	if err != nil {
		return accessToken{}, &credentialsError{Field: field, Err: err}
	}
	defer release()
	o := d.Auth.OAuth2
	config := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: o.TokenURL, Scopes: o.Scopes}
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return accessToken{}, &credentialsError{
			Field: field, Permanent: refusedByServer(err),
			Err: fmt.Errorf("cannot get an access token: %w", bare(err)),
		}
	}
	if len(token.AccessToken) > maxToken {
		return accessToken{}, &credentialsError{
			Field: field,
			Err:   fmt.Errorf("cannot use the access token: it is longer than %d bytes", maxToken),
		}
	}
	if kind := token.Type(); !strings.EqualFold(kind, "bearer") {
		return accessToken{}, &credentialsError{
			Field: field, Err: errors.New("cannot use the access token: it is no bearer token"),
		}
	}
	now := time.Now()
	end := token.Expiry
	if end.IsZero() {
		end = now.Add(tokenTTL)
	}
	return accessToken{
		value: token.AccessToken, refused: new(atomic.Bool),
		renewAt: end.Add(-min(end.Sub(now)/10, time.Minute)), // a token close to its expiry could expire in transit
	}, nil
}

// refusedByServer reports whether the token endpoint refused the request, as opposed to a temporary failure.
func refusedByServer(err error) bool {
	var retrieve *oauth2.RetrieveError
	if !errors.As(err, &retrieve) || retrieve.Response == nil {
		return false
	}
	switch code := retrieve.Response.StatusCode; code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

func tokenKey(d *Definition, id, secret string) string {
	o := d.Auth.OAuth2
	h := sha256.New()
	for _, part := range append([]string{d.endpoint(), o.TokenURL, id, secret}, o.Scopes...) {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
