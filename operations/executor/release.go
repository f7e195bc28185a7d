package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// releases tells which Secrets and service accounts Webhooks may use: those that their owners have released. Writers
// of Webhooks need not have the right to read Secrets or to request tokens. A missing Secret looks like one that is
// not released, since the store may hold the released ones only. So users do not learn which other Secrets exist.
type releases struct {
	any      bool // all are released
	webhooks store.View[v1alpha1.Webhook]
	secrets  *store.Store
	accounts *store.Store // nil: no account is released
}

var errNotReleased = errors.New("not released")

// secret reports whether a Secret is released.
func (r *releases) secret(secret *store.Record) bool {
	value, _ := secret.Label(v1alpha1.LabelWebhookCredentials)
	return r.any || value == "true"
}

// audiences returns the audiences for which tokens of a service account may be made.
func audiences(account *corev1.ServiceAccount) []string {
	var all []string
	for audience := range strings.SplitSeq(account.Annotations[v1alpha1.AnnotationWebhookAudiences], ",") {
		if audience = strings.TrimSpace(audience); audience != "" {
			all = append(all, audience)
		}
	}
	return all
}

// account returns an error if no token of a service account may be made for an audience.
func (r *releases) account(key store.Key, audience string) error {
	if r.any {
		return nil
	}
	account, err := store.Of[corev1.ServiceAccount](r.accounts).Get(key)
	if err == nil && slices.Contains(audiences(account), audience) {
		return nil
	}
	return fmt.Errorf("service account %s does not exist, or is %w for audience %s: its annotation %s has to name that",
		key.Name, errNotReleased, audience, v1alpha1.AnnotationWebhookAudiences)
}

// withheld returns the first credential that a Webhook names and that is not released, as an error for its owner. It
// returns nil if all are released, or the Webhook does not exist. known is false while the stores have not synced.
func (r *releases) withheld(hook store.Key) (why error, known bool) {
	if r.any {
		return nil, true
	}
	w, err := r.webhooks.Get(hook)
	if err != nil {
		return nil, true //nolint:nilerr // it was deleted
	}
	names, account := needs(w)
	for _, name := range names {
		if !r.secrets.HasSynced() {
			return nil, false
		}
		if secret, ok := r.secrets.Get(store.Key{Namespace: hook.Namespace, Name: name}); !ok || !r.secret(secret) {
			return unreleased(name), true
		}
	}
	if account == nil {
		return nil, true
	}
	if r.accounts != nil && !r.accounts.HasSynced() {
		return nil, false
	}
	return r.account(store.Key{Namespace: hook.Namespace, Name: account.ServiceAccountName}, account.Audience), true
}

// addTo adds to the facts about a Webhook whether its credentials are released.
func (r *releases) addTo(facts course.WebhookFacts, hook store.Key) course.WebhookFacts {
	why, known := r.withheld(hook)
	if facts.Withheld = !known || why != nil; why != nil {
		facts.Why = "webhook " + hook.Name + ": " + why.Error()
	}
	return facts
}

func unreleased(secret string) error {
	return fmt.Errorf("secret %s does not exist, or is %w: it has to have the label %s=true", secret, errNotReleased,
		v1alpha1.LabelWebhookCredentials)
}

// needs returns the Secrets and the service account that a Webhook names.
func needs(w *v1alpha1.Webhook) (secrets []string, account *v1alpha1.ServiceAccountTokenAuth) {
	s := &w.Spec
	if s.Signing != nil {
		secrets = append(secrets, s.Signing.SecretRef.Name)
	}
	if s.TLS != nil && s.TLS.CASecretRef != nil {
		secrets = append(secrets, s.TLS.CASecretRef.Name)
	}
	if a := s.Auth; a != nil {
		for _, by := range []*v1alpha1.SecretAuth{a.Basic, a.Bearer, a.MTLS} {
			if by != nil {
				secrets = append(secrets, by.SecretRef.Name)
			}
		}
		if a.OAuth2 != nil {
			secrets = append(secrets, a.OAuth2.SecretRef.Name)
		}
		account = a.ServiceAccountToken
	}
	return secrets, account
}

// follow watches the Secrets and service accounts until ctx ends. It calls changed for the Webhooks that name an object
// whose release has changed.
func (r *releases) follow(ctx context.Context, changed func(hook store.Key)) {
	if r.any {
		return
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { r.followSecrets(ctx, changed) })
	if r.accounts != nil {
		followers.Go(func() { r.followAccounts(ctx, changed) })
	}
}

func (r *releases) followSecrets(ctx context.Context, changed func(hook store.Key)) {
	r.followStore(ctx, r.secrets, changed, func(w *v1alpha1.Webhook, name string) bool {
		names, _ := needs(w)
		return slices.Contains(names, name) || name == "" && len(names) > 0
	}, func(secret *store.Record) string {
		return fmt.Sprint(r.secret(secret))
	})
}

func (r *releases) followAccounts(ctx context.Context, changed func(hook store.Key)) {
	r.followStore(ctx, r.accounts, changed, func(w *v1alpha1.Webhook, name string) bool {
		_, account := needs(w)
		return account != nil && (name == "" || account.ServiceAccountName == name)
	}, func(record *store.Record) string {
		account, err := store.As[corev1.ServiceAccount](record)
		if err != nil {
			return ""
		}
		return account.Annotations[v1alpha1.AnnotationWebhookAudiences]
	})
}

// followStore watches the credentials in a store until ctx ends. named reports whether a Webhook names an object, or
// any object for an empty name. released returns a text that changes with the release of an object.
func (r *releases) followStore(
	ctx context.Context, st *store.Store, changed func(hook store.Key),
	named func(w *v1alpha1.Webhook, name string) bool, released func(*store.Record) string,
) {
	follow(ctx, st.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "executor"},
		Consume: each(ctx, func(event *store.Event) {
			switch {
			case event.Type == store.Synced: // a missing Secret or account is known to be missing from now on
				for key, w := range r.webhooks.All() {
					if named(w, "") {
						changed(key)
					}
				}
			case event.Initial, event.Object == nil,
				event.Type == store.Modified && event.Prior != nil && released(event.Object) == released(event.Prior):
			default:
				for key, w := range r.webhooks.InNamespace(event.Key.Namespace) {
					if named(w, event.Key.Name) {
						changed(key)
					}
				}
			}
		}),
	}))
}
