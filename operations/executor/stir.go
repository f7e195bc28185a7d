package executor

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// stirs collects changed Webhooks, to wake the operations of a namespace that name them. The first wake-up is
// immediate. Further ones are less frequent the more operations they wake, however often the Webhooks are edited.
type stirs struct {
	seed maphash.Seed
	mu   sync.Mutex
	due  map[string]names // by namespace
	some chan struct{}    // holds a token while due may have new entries
}

// names is a set of names with false positives: a Bloom filter with one hash.
type names uint64

const (
	// stirPause is the minimal time between two wake-ups of the operations of a namespace. Each woken operation adds
	// stirEach to it.
	stirPause = time.Second
	stirEach  = time.Millisecond
)

func newStirs() *stirs {
	return &stirs{seed: maphash.MakeSeed(), due: make(map[string]names), some: make(chan struct{}, 1)}
}

func (s *stirs) name(name string) names { return 1 << (maphash.String(s.seed, name) % 64) }

// of returns the names of the Webhooks that an operation may call.
func (s *stirs) of(op *v1alpha1.Operation) (all names) {
	for _, id := range op.Spec.WebhookIDs {
		all |= s.name(id)
	}
	for _, id := range op.Spec.CompensateWebhookIDs {
		all |= s.name(id)
	}
	return all | s.name(op.Spec.NotifyWebhookID)
}

// mark records that a Webhook has appeared, changed or was deleted.
func (s *stirs) mark(namespace, name string) {
	s.mu.Lock()
	s.due[namespace] |= s.name(name)
	s.mu.Unlock()
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// take removes and returns the namespaces whose operations may be woken now.
func (s *stirs) take(notBefore map[string]time.Time) map[string]names {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[string]names)
	for namespace, changed := range s.due {
		if time.Until(notBefore[namespace]) <= 0 {
			now[namespace] = changed
			delete(s.due, namespace)
		}
	}
	return now
}

// next returns the time until take returns a namespace. ok is false if there is none before the next mark.
func (s *stirs) next(notBefore map[string]time.Time) (next time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace := range s.due {
		if left := max(0, time.Until(notBefore[namespace])); !ok || left < next {
			next, ok = left, true
		}
	}
	return next, ok
}
