package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// secrets resolves the credentials of Webhooks: Secrets from the store, and tokens of service accounts by
// TokenRequest. It is a webhook.Resolver and safe for concurrent use.
type secrets struct {
	secrets  *store.Store
	releases *releases
	calls    *call.Client
	policy   func(namespace string) call.Policy
	now      func() time.Time
	spend    func(namespace string, cost fair.Price) // charges the share of writes of a namespace

	mu     sync.Mutex
	tokens map[string]map[tokenKey]token // by namespace
}

type tokenKey struct{ namespace, account, audience string }

type token struct {
	value string
	renew time.Time
}

// Secret implements webhook.Resolver. The returned values are shared and read-only.
func (s *secrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	select {
	case <-s.secrets.Synced():
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot read secret %s/%s: secrets are not known yet", namespace, name)
	}
	record, ok := s.secrets.Get(store.Key{Namespace: namespace, Name: name})
	if !ok || !s.releases.secret(record) {
		return nil, unreleased(name)
	}
	secret, err := store.As[corev1.Secret](record)
	if err != nil {
		return nil, fmt.Errorf("cannot read secret %s/%s: %w", namespace, name, err)
	}
	return secret.Data, nil
}

// tokenSeconds is the lifetime of a service account token. It is renewed after four fifths of that.
const tokenSeconds = 3600

var errOwnAudience = &webhook.FieldError{
	Field: "spec.auth.serviceAccountToken.audience",
	Err:   errors.New("the API server itself accepts this audience: a receiver could use the token against the cluster"),
}

// ServiceAccountToken implements webhook.Resolver.
func (s *secrets) ServiceAccountToken(ctx context.Context, req webhook.TokenRequest) (string, error) {
	if err := s.releases.account(store.Key{Namespace: req.Namespace, Name: req.ServiceAccountName},
		req.Audience); err != nil {
		return "", err
	}
	key := tokenKey{req.Namespace, req.ServiceAccountName, req.Audience}
	known := s.cached(key)
	if known.value != "" && known.value != req.Refused && s.now().Before(known.renew) {
		return known.value, nil
	}
	s.spend(req.Namespace, fair.Price{Count: 2}) // TokenRequest and TokenReview
	seconds := int64(tokenSeconds)
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: call.VerbCreate, Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		Kind: "TokenRequest", Namespace: req.Namespace, Name: req.ServiceAccountName, Subresource: "token", Idempotent: true,
		Object: &authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"},
			Spec:     authenticationv1.TokenRequestSpec{Audiences: []string{req.Audience}, ExpirationSeconds: &seconds},
		},
	}, s.policy(req.Namespace))
	if err != nil {
		return "", err
	}
	var got authenticationv1.TokenRequest
	if err := answer.Into(&got); err != nil {
		return "", err
	}
	if err := s.foreign(ctx, req.Namespace, got.Status.Token); err != nil {
		return "", err
	}
	life := got.Status.ExpirationTimestamp.Sub(s.now())
	s.keep(key, token{value: got.Status.Token, renew: s.now().Add(life * 4 / 5)})
	return got.Status.Token, nil
}

// maxTokens bounds the cached tokens of one namespace.
const maxTokens = 256

// keep caches a token. Above the bound it evicts tokens that are due for renewal, then any of the namespace.
func (s *secrets) keep(key tokenKey, t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.tokens[key.namespace]
	if space == nil {
		space = make(map[tokenKey]token)
		s.tokens[key.namespace] = space
	}
	if _, known := space[key]; !known && len(space) >= maxTokens {
		maps.DeleteFunc(space, func(_ tokenKey, t token) bool { return !s.now().Before(t.renew) })
		for other := range space {
			if len(space) < maxTokens {
				break
			}
			delete(space, other)
		}
	}
	space[key] = t
}

// forget drops the cached tokens of the namespaces that of selects.
func (s *secrets) forget(of func(namespace string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tokens, func(namespace string, _ map[tokenKey]token) bool { return of(namespace) })
}

func (s *secrets) cached(key tokenKey) token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[key.namespace][key]
}

// foreign returns an error if the API server itself accepts the token.
func (s *secrets) foreign(ctx context.Context, namespace, token string) error {
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: call.VerbCreate, Resource: authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"),
		Kind: "TokenReview", Idempotent: true,
		// No audiences: the API server checks for its own.
		Object: &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
	}, s.policy(namespace))
	if err != nil {
		return fmt.Errorf("cannot find out whether the API server accepts the token: %w", err)
	}
	var review authenticationv1.TokenReview
	if err := answer.Into(&review); err != nil {
		return err
	}
	if review.Status.Authenticated {
		return errOwnAudience
	}
	return nil
}
