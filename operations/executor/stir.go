package executor

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// stirs wakes the operations of a namespace when Webhooks that they name appear or change: the first time at once, and
// then the less often the more there are, however often the Webhooks are edited.
type stirs struct {
	seed maphash.Seed
	mu   sync.Mutex
	due  map[string]names // by namespace
	some chan struct{}    // holds a token while there may be something new in due
}

// names is a set of names that may hold others too: a Bloom filter of one hash.
type names uint64

const (
	// stirPause is the least time between two times that the operations of a namespace are woken, stirEach what each one
	// adds to it.
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

// mark notes that a Webhook has appeared or changed.
func (s *stirs) mark(namespace, name string) {
	s.mu.Lock()
	s.due[namespace] |= s.name(name)
	s.mu.Unlock()
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// take returns the namespaces that may be woken now.
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

// next is how long until take may return one; false: it depends on mark.
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
