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

// tokenTTL is how long a token is used whose end the server does not tell.
const tokenTTL = 10 * time.Minute

// maxToken, bytes, is how long an access token may be; it is sent in a header.
const maxToken = 16 << 10

// tokens caches an access token for each endpoint.
type tokens struct {
	mu      sync.Mutex
	entries map[string]*tokenEntry // by endpoint
}

// tokenEntry fetches one token at a time: the others wait for the one who does.
type tokenEntry struct {
	key     string        // what the token was fetched with: another secret has another entry
	turn    chan struct{} // holds one element while nobody fetches; guards the rest
	value   string
	kind    string
	renewAt time.Time
	refused *atomic.Bool // by a receiver, so that it is not used from the cache again; each value has its own
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

// known is the token of the cache, empty if there is none or it is being fetched.
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
	// A token near its end may end on the way.
	entry.renewAt = end.Add(-min(end.Sub(now)/10, time.Minute))
	entry.value, entry.kind, entry.refused = token.AccessToken, "Bearer", new(atomic.Bool)
	if kind := token.Type(); !strings.EqualFold(kind, "bearer") {
		return &credentialsError{Field: field, Err: errors.New("cannot use the access token: it is no bearer token")}
	}
	return nil
}

// refusedByServer reports whether the token endpoint said no, as against being out of order or busy.
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
