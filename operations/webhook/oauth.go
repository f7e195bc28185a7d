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
	key     string        // digest of the inputs: another secret has another entry
	turn    chan struct{} // a lock: holds an element while free; guards the rest
	value   string
	kind    string
	renewAt time.Time
	refused *atomic.Bool // set after a receiver refused the token; each value has its own
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
		return e.value
	default:
		return ""
	}
}

func (t *tokens) forget(endpoint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, endpoint)
}

func (c *Client) resolveOAuth2(
	ctx context.Context, w *Compiled, creds *credentials, trusted bool, refused string,
) error {
	const field = "spec.auth.oauth2"
	o := w.def.Auth.OAuth2
	values, err := c.secret(ctx, &w.def, field, o.Secret, keyClientID, keyClientSecret)
	if err != nil {
		return err
	}
	id, secret := string(bytes.TrimSpace(values[keyClientID])), string(bytes.TrimSpace(values[keyClientSecret]))
	creds.hide(secret, base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret))))
	key := tokenKey(w, id, secret)
	if !trusted {
		creds.hide(c.tokens.known(w.def.endpoint(), key))
		return nil
	}
	entry := c.tokens.entry(w.def.endpoint(), key)
	select {
	case <-entry.turn:
	case <-ctx.Done():
		return &credentialsError{Field: field, Err: fmt.Errorf("cannot get an access token: %w", ctx.Err())}
	}
	defer func() { entry.turn <- struct{}{} }()
	creds.cached = entry.value != "" && entry.value != refused && !entry.refused.Load() && time.Now().Before(entry.renewAt)
	if !creds.cached {
		entry.value = ""
		if err := c.fetchToken(ctx, w, creds, entry, id, secret); err != nil {
			return err
		}
	}
	if err := creds.bearer(field, entry.value); err != nil {
		return err
	}
	creds.refused = entry.refused
	creds.authorization = entry.kind + " " + entry.value
	return nil
}

func (c *Client) fetchToken(
	ctx context.Context, w *Compiled, creds *credentials, entry *tokenEntry, id, secret string,
) error {
	const field = "spec.auth.oauth2"
	transport, release, err := c.transport(ctx, w.def.Namespace, tlsMaterial{ca: creds.tls.ca, withSystem: true})
	if err != nil {
		return &credentialsError{Field: field, Err: err}
	}
	defer release()
	o := w.def.Auth.OAuth2
	config := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: o.TokenURL, Scopes: o.Scopes}
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return &credentialsError{
			Field: field, Permanent: refusedByServer(err),
			Err: fmt.Errorf("cannot get an access token: %w", bare(err)),
		}
	}
	if len(token.AccessToken) > maxToken {
		return &credentialsError{
			Field: field,
			Err:   fmt.Errorf("cannot use the access token: it is longer than %d bytes", maxToken),
		}
	}
	now := time.Now()
	end := token.Expiry
	if end.IsZero() {
		end = now.Add(tokenTTL)
	}
	// A token close to its expiry could expire in transit.
	entry.renewAt = end.Add(-min(end.Sub(now)/10, time.Minute))
	entry.value, entry.kind, entry.refused = token.AccessToken, "Bearer", new(atomic.Bool)
	if kind := token.Type(); !strings.EqualFold(kind, "bearer") {
		return &credentialsError{Field: field, Err: errors.New("cannot use the access token: it is no bearer token")}
	}
	return nil
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

func tokenKey(w *Compiled, id, secret string) string {
	o := w.def.Auth.OAuth2
	h := sha256.New()
	for _, part := range append([]string{w.def.endpoint(), o.TokenURL, id, secret}, o.Scopes...) {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
