package executor

import (
	"fmt"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// hookFacts answers questions about Webhooks; see knownHooks.
type hookFacts interface {
	// find returns the facts about the Webhooks of a namespace that the plan needs.
	find(namespace string) course.Lookup
	// times returns the timeouts of a Webhook. It returns false if the Webhook does not exist.
	times(key store.Key) (compiled.Times, bool)
	// usable returns a Webhook for calls. If it is being compiled, n is set later. Errors: compiled.ErrCompiling;
	// compiled.ErrNoWebhook; others, if the Webhook cannot be called.
	usable(key store.Key, n *news) (*webhook.Compiled, error)
	// withheld returns the credential of a Webhook that is not released, as an error, or nil.
	withheld(key store.Key) error
}

// knownHooks implements hookFacts. It has no state.
type knownHooks struct {
	compiled   *compiled.Cache
	quarantine *quarantine
	releases   *releases
	callbacks  bool // receivers can call back
}

func (k *knownHooks) find(namespace string) course.Lookup {
	return func(name string) (course.WebhookFacts, bool) {
		key := store.Key{Namespace: namespace, Name: name}
		times, ok := k.compiled.Times(key)
		switch {
		case !ok:
			return course.WebhookFacts{}, false
		case k.compiled.Is(key, k.quarantine.has):
			return course.WebhookFacts{Quarantined: true}, false
		}
		return k.releases.addTo(course.WebhookFacts{Timeout: times.Timeout, Retry: times.Retry, Poll: times.Poll}, key), true
	}
}

func (k *knownHooks) times(key store.Key) (compiled.Times, bool) { return k.compiled.Times(key) }

func (k *knownHooks) usable(key store.Key, n *news) (*webhook.Compiled, error) {
	hook, err := k.compiled.Get(key, n)
	if err == nil && hook.Definition().Mode == webhook.AsyncCallback && !k.callbacks {
		return nil, fmt.Errorf(
			"webhook %s: spec.mode: AsyncCallback needs an HTTP API that receivers can call: the controller has none", key.Name,
		)
	}
	return hook, err
}

func (k *knownHooks) withheld(key store.Key) error {
	withheld, _ := k.releases.withheld(key)
	return withheld
}
