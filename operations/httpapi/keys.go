package httpapi

import (
	"sync"

	"github.com/fairlead-io/fairlead/operations"
)

// keys remembers which resource an idempotency key was sent for. The Scheduler finds a key that is used again for the
// same resource; for another one nobody else would, and receivers, who know the key only, would take the second request
// for a repetition of the first. It covers the latest requests to this replica, which is where a caller that confuses
// keys sends them.
type keys struct {
	mu     sync.Mutex
	owners *memory[keyOf, *owner]
}

type keyOf struct{ namespace, id string }

// owner is the resource that has a key.
type owner struct {
	resource operations.Resource
	asking   int  // requests under way
	used     bool // there may be an operation of that key
}

// maxKeys bounds what is remembered.
const maxKeys = 1 << 14

func newKeys() *keys { return &keys{owners: newMemory[keyOf, *owner](maxKeys)} }

// claim reports whether the key is free or was sent for this resource. done tells how the request ended: used, unless
// nothing of it can have been written. A key that no request has used is free again.
func (k *keys) claim(key keyOf, r operations.Resource) (ours bool, done func(used bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.owners.get(key)
	if !ok {
		o = &owner{resource: r}
		k.owners.put(key, key.namespace, o)
	}
	if o.resource != r {
		return false, nil
	}
	o.asking++
	return true, func(used bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		o.asking--
		o.used = o.used || used
		if now, _ := k.owners.get(key); !o.used && o.asking == 0 && now == o { // or it was forgotten, and perhaps taken again
			k.owners.drop(key)
		}
	}
}
