package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// errNoWebhook says that a Webhook does not exist.
var errNoWebhook = errors.New("webhook does not exist")

// hooks keeps Webhooks compiled, each version once. It is safe for concurrent use.
type hooks struct {
	webhooks store.View[v1alpha1.Webhook]
	compile  func(context.Context, webhook.Definition) (*webhook.Compiled, error)
	mu       sync.Mutex
	compiled map[store.Key]compiledHook
}

type compiledHook struct {
	uid        string
	generation int64
	hook       *webhook.Compiled
	err        error
}

func newHooks(webhooks store.View[v1alpha1.Webhook], compile func(context.Context, webhook.Definition) (*webhook.Compiled, error)) *hooks {
	return &hooks{webhooks: webhooks, compile: compile, compiled: make(map[store.Key]compiledHook)}
}

// get returns the Webhook ready for calls. Errors: errNoWebhook; a *webhook.FieldError that names the field.
func (h *hooks) get(namespace, name string) (*webhook.Compiled, error) {
	key := store.Key{Namespace: namespace, Name: name}
	w, err := h.webhooks.Get(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		delete(h.compiled, key)
		return nil, fmt.Errorf("%w: %s", errNoWebhook, name)
	}
	c, ok := h.compiled[key]
	if !ok || c.uid != string(w.UID) || c.generation != w.Generation {
		c = compiledHook{uid: string(w.UID), generation: w.Generation}
		if c.hook, c.err = h.compile(context.Background(), definition(w)); c.err != nil {
			c.err = fmt.Errorf("webhook %s: %w", name, c.err)
		}
		h.compiled[key] = c
	}
	return c.hook, c.err
}

// forget drops a Webhook that is no more.
func (h *hooks) forget(key store.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.compiled, key)
}

// find returns what the plan needs to know of the Webhooks of a namespace.
func (e *Executor) find(namespace string) lookup {
	return func(name string) (webhookFacts, bool) {
		if e.isQuarantined(namespace, name) {
			return webhookFacts{quarantined: true}, false
		}
		hook, err := e.hooks.get(namespace, name)
		switch {
		case errors.Is(err, errNoWebhook):
			return webhookFacts{}, false
		case err != nil:
			return webhookFacts{timeout: v1alpha1.DefaultWebhookTimeout}, true // due at once, and then judged invalid
		}
		return webhookFacts{timeout: hook.Definition().Timeout}, true
	}
}

// definition translates the resource. Fields that are not set have the defaults of package webhook, which are the same.
func definition(w *v1alpha1.Webhook) webhook.Definition {
	s := &w.Spec
	d := webhook.Definition{
		Namespace: w.Namespace, Name: w.Name, Revision: revision(w),
		Mode: webhook.Mode(s.Mode),
		Request: webhook.Request{
			Method: s.Request.Method, URL: s.Request.URL, Headers: s.Request.Headers, Body: s.Request.Body,
		},
		RequestTimeout:    s.RequestTimeout.Duration,
		CorrelationHeader: s.CorrelationHeader,
		Response: webhook.Response{
			Success: s.Response.Success, Gone: s.Response.Gone, Retry: s.Response.Retry,
			Location: s.Response.Location, Error: s.Response.Error,
		},
		Poll: webhook.Poll{
			Interval: s.Poll.Interval.Duration, Succeeded: s.Poll.Succeeded, Failed: s.Poll.Failed, Error: s.Poll.Error,
		},
		Retry: webhook.RetryPolicy{
			MaxAttempts:     int(s.Retry.MaxAttempts),
			InitialInterval: s.Retry.InitialInterval.Duration,
			MaxInterval:     s.Retry.MaxInterval.Duration,
		},
		Timeout:       s.Timeout.Duration,
		Concurrency:   int(s.Concurrency),
		RatePerSecond: float64(s.RatePerSecond),
		Breaker:       webhook.Breaker{Failures: int(s.Breaker.Failures), OpenFor: s.Breaker.OpenFor.Duration},
	}
	if s.Signing != nil {
		d.SigningSecret = s.Signing.SecretRef.Name
	}
	if s.TLS != nil {
		d.TLS.ServerName = s.TLS.ServerName
		if s.TLS.CASecretRef != nil {
			d.TLS.CASecret = s.TLS.CASecretRef.Name
		}
	}
	d.Auth = auth(s.Auth)
	return d
}

func auth(a *v1alpha1.WebhookAuth) *webhook.Auth {
	if a == nil {
		return nil
	}
	out := &webhook.Auth{}
	secret := func(s *v1alpha1.SecretAuth) string {
		if s == nil {
			return ""
		}
		return s.SecretRef.Name
	}
	out.Basic, out.Bearer, out.MTLS = secret(a.Basic), secret(a.Bearer), secret(a.MTLS)
	if o := a.OAuth2; o != nil {
		out.OAuth2 = &webhook.OAuth2{TokenURL: o.TokenURL, Scopes: o.Scopes, Secret: o.SecretRef.Name}
	}
	if t := a.ServiceAccountToken; t != nil {
		out.ServiceAccountToken = &webhook.ServiceAccountToken{Audience: t.Audience, ServiceAccountName: t.ServiceAccountName}
	}
	return out
}
