package httpapi

import (
	"sync"

	"github.com/fairlead-io/fairlead/operation"
)

// keys remembers which resource an idempotency key was sent for. The Scheduler finds a key that is used again for the same resource; for
// another one nobody else would, and receivers, who know the key only, would take the second request for a repetition of the first. It
// covers the latest requests to this replica, which is where a caller that confuses keys sends them.
type keys struct {
	mu     sync.Mutex
	owners map[keyOf]operation.Resource
	oldest []keyOf // a ring
	next   int
}

type keyOf struct{ namespace, id string }

// maxKeys bounds what is remembered.
const maxKeys = 1 << 14

// claim reports whether the key is free or was sent for this resource. release takes back a claim whose request was refused.
func (k *keys) claim(key keyOf, r operation.Resource) (ours bool, release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner, known := k.owners[key]; known {
		return owner == r, func() {}
	}
	if k.owners == nil {
		k.owners = make(map[keyOf]operation.Resource)
	}
	if len(k.oldest) < maxKeys {
		k.oldest = append(k.oldest, key)
	} else {
		delete(k.owners, k.oldest[k.next])
		k.oldest[k.next], k.next = key, (k.next+1)%maxKeys
	}
	k.owners[key] = r
	return true, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.owners, key)
	}
}
