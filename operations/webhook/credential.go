package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-io/fairlead/operations/webhook/signature"
)

// Resolver provides the secrets that definitions name. It is called for every try, so it should read from a cache. It
// must be safe for concurrent use. Its errors appear in results, so they must not contain secret values. A *FieldError
// means that another try cannot succeed.
type Resolver interface {
	// Secret returns the values of a secret. The Client does not modify them.
	Secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
	// ServiceAccountToken returns a token of a service account.
	ServiceAccountToken(ctx context.Context, req TokenRequest) (string, error)
}

// TokenRequest asks for a token of a service account.
type TokenRequest struct {
	Namespace          string
	ServiceAccountName string
	Audience           string
	// Refused is a token that the receiver has just refused, if any. The Resolver must not return it from a cache.
	Refused string
}

// noResolver is the Resolver of a Client without one.
type noResolver struct{}

func (noResolver) Secret(context.Context, string, string) (map[string][]byte, error) {
	return nil, errors.New("no resolver of secrets is configured")
}

func (noResolver) ServiceAccountToken(context.Context, TokenRequest) (string, error) {
	return "", errors.New("no resolver of secrets is configured")
}

// credentials are the secrets of one try. They must not appear in output.
type credentials struct {
	authorization string
	token         string       // the renewable part of authorization
	cached        bool         // token was not fetched for this try
	refused       *atomic.Bool // marks token as refused in our cache
	keys          signature.Keys
	tls           tlsMaterial
	secrets       []string
}

func (c *credentials) hide(secrets ...string) { c.secrets = append(c.secrets, secrets...) }

// credentialSource gets the credentials of requests. Its only state is in tokens.
type credentialSource struct {
	resolver   Resolver
	tokens     *tokens
	transports *transports // to token endpoints
}

// get resolves the secrets of d. For an untrusted request it fetches no token and returns no credentials, only the
// values to mask. refused is a token that the receiver has just refused.
func (c credentialSource) get(
	ctx context.Context, d *Definition, trusted bool, refused string,
) (*credentials, error) {
	creds := &credentials{}
	err := c.resolve(ctx, d, creds, trusted, refused)
	if !trusted {
		err = nil // unavailable secrets are not needed
		creds.authorization, creds.keys = "", nil
		creds.tls.cert, creds.tls.key, creds.tls.serverName = nil, nil, ""
		creds.tls.withSystem = true // another host may have a certificate of another CA
	}
	if err != nil {
		var known *credentialsError
		if !errors.As(err, &known) {
			err = &credentialsError{Field: "spec.auth", Err: err}
		}
	}
	return creds, err
}

func (c credentialSource) resolve(
	ctx context.Context, d *Definition, creds *credentials, trusted bool, refused string,
) error {
	creds.tls.serverName = d.TLS.ServerName
	// Continue after an error, so that the other secrets are masked.
	unsure := errors.Join(c.resolveCA(ctx, d, creds), c.resolveKeys(ctx, d, creds))
	if unsure != nil {
		trusted = false // no request will be sent, so no token is needed
	}
	return errors.Join(unsure, c.resolveAuth(ctx, d, creds, trusted, refused))
}

func (c credentialSource) resolveCA(ctx context.Context, d *Definition, creds *credentials) error {
	if d.TLS.CASecret == "" {
		return nil
	}
	values, err := c.secret(ctx, d, "spec.tls.caSecretRef", d.TLS.CASecret, keyCA)
	if err != nil {
		return err
	}
	creds.tls.ca = values[keyCA]
	return nil
}

func (c credentialSource) resolveAuth(
	ctx context.Context, d *Definition, creds *credentials, trusted bool, refused string,
) error {
	switch a := d.Auth; {
	case a == nil:
	case a.Basic != "":
		return c.resolveBasic(ctx, d, creds)
	case a.Bearer != "":
		values, err := c.secret(ctx, d, "spec.auth.bearer", a.Bearer, keyToken)
		if err != nil {
			return err
		}
		return creds.bearer("spec.auth.bearer", string(bytes.TrimSpace(values[keyToken])))
	case a.MTLS != "":
		values, err := c.secret(ctx, d, "spec.auth.mtls", a.MTLS, keyTLSCert, keyTLSKey)
		if err != nil {
			return err
		}
		creds.tls.cert, creds.tls.key = values[keyTLSCert], values[keyTLSKey]
	case a.OAuth2 != nil:
		return c.resolveOAuth2(ctx, d, creds, trusted, refused)
	case a.ServiceAccountToken != nil:
		if !trusted {
			return nil
		}
		return c.resolveServiceAccount(ctx, d, creds, refused)
	}
	return nil
}

func (c credentialSource) resolveKeys(ctx context.Context, d *Definition, creds *credentials) error {
	if d.SigningSecret == "" {
		return nil
	}
	const field = "spec.signing.secretRef"
	values, err := c.secret(ctx, d, field, d.SigningSecret)
	if err != nil {
		return err
	}
	if len(values) > maxKeys { // each key signs the whole body
		return &credentialsError{
			Field: field,
			Err:   fmt.Errorf("cannot sign: secret %s has more than %d keys", d.SigningSecret, maxKeys),
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := string(bytes.TrimSpace(values[name]))
		texts = append(texts, key)
		creds.hide(key, key[strings.IndexByte(key, '_')+1:])
	}
	if len(texts) == 0 {
		return &credentialsError{Field: field, Err: fmt.Errorf("cannot sign: secret %s has no keys", d.SigningSecret)}
	}
	if creds.keys, err = signature.ParseKeys(texts...); err != nil {
		return &credentialsError{Field: field, Err: fmt.Errorf("cannot sign with secret %s: %w", d.SigningSecret, err)}
	}
	return nil
}

func (c credentialSource) resolveBasic(ctx context.Context, d *Definition, creds *credentials) error {
	const field = "spec.auth.basic"
	values, err := c.secret(ctx, d, field, d.Auth.Basic, keyUsername, keyPassword)
	if err != nil {
		return err
	}
	username := string(bytes.TrimRight(values[keyUsername], "\r\n"))
	password := string(bytes.TrimRight(values[keyPassword], "\r\n"))
	pair := base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
	creds.hide(password, pair)
	if strings.Contains(username, ":") {
		return &credentialsError{Field: field, Err: errors.New("cannot send a username with a colon (RFC 7617)")}
	}
	creds.authorization = "Basic " + pair
	return nil
}

func (c credentialSource) resolveServiceAccount(
	ctx context.Context, d *Definition, creds *credentials, refused string,
) error {
	const field = "spec.auth.serviceAccountToken"
	token, err := c.resolver.ServiceAccountToken(ctx, TokenRequest{
		Namespace:          d.Namespace,
		ServiceAccountName: d.Auth.ServiceAccountToken.ServiceAccountName,
		Audience:           d.Auth.ServiceAccountToken.Audience,
		Refused:            refused,
	})
	if err != nil {
		return &credentialsError{Field: field, Err: fmt.Errorf("cannot get a token: %w", err)}
	}
	creds.cached = token != refused // the resolver may have a cache; a second try with the same token is pointless
	return creds.bearer(field, token)
}

func (c *credentials) bearer(field, token string) error {
	c.hide(token)
	if token == "" || !httpguts.ValidHeaderFieldValue(token) {
		return &credentialsError{
			Field: field,
			Err:   errors.New("cannot send the token: it is empty or has control characters"),
		}
	}
	c.token, c.authorization = token, "Bearer "+token
	return nil
}

// secret returns the values of a secret, which must have the given keys.
func (c credentialSource) secret(
	ctx context.Context, d *Definition, field, name string, keys ...string,
) (map[string][]byte, error) {
	values, err := c.resolver.Secret(ctx, d.Namespace, name)
	if err != nil {
		return nil, &credentialsError{Field: field, Err: fmt.Errorf("cannot read secret %s: %w", name, err)}
	}
	size := 0
	for key, value := range values {
		if (len(keys) == 0 || slices.Contains(keys, key)) && key != keyCA && key != keyTLSCert && key != keyTLSKey {
			size += len(value)
		}
	}
	if size > maxSecret {
		return nil, &credentialsError{
			Field: field,
			Err:   fmt.Errorf("cannot use secret %s: its values are longer than %d bytes", name, maxSecret),
		}
	}
	for _, key := range keys {
		if len(values[key]) == 0 {
			return nil, &credentialsError{Field: field, Err: fmt.Errorf("cannot use secret %s: it has no %s", name, key)}
		}
	}
	return values, nil
}

// hideCallback masks the callback URL and the last segment of its path, which is a token.
func (c *credentials) hideCallback(callback string) {
	if callback == "" {
		return
	}
	c.hide(callback)
	if u, err := url.Parse(callback); err == nil {
		if last := u.Path[strings.LastIndexByte(u.Path, '/')+1:]; len(last) >= 16 {
			c.hide(last)
		}
	}
}
