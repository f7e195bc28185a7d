package httpapi

import (
	"sync"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations"
)

// keys remembers the resource of each idempotency key. The Scheduler detects a key that is reused for the same
// resource. Reuse for another resource is detected only here. Receivers know only the key and would mistake the second
// request for a repetition of the first. keys covers the latest requests to this replica, because a caller that
// confuses keys usually sends them to the same replica.
type keys struct {
	mu     sync.Mutex
	owners *fair.Cache[keyOf, *owner]
}

type keyOf struct{ namespace, id string }

// owner is the resource of a key.
type owner struct {
	resource operations.Resource
	asking   int  // concurrent requests
	used     bool // an operation with that key may exist
}

// maxKeys bounds the number of remembered keys.
const maxKeys = 1 << 14

func newKeys() *keys { return &keys{owners: fair.NewCache[keyOf, *owner](maxKeys)} }

// claim reports whether the key is free or belongs to r. The caller calls done when the request ends; used is false
// only if certainly no operation was written. A key that no request has used becomes free again.
func (k *keys) claim(key keyOf, r operations.Resource) (ours bool, done func(used bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.owners.Get(key)
	if !ok {
		o = &owner{resource: r}
		k.owners.Put(key, key.namespace, o)
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
		if now, _ := k.owners.Get(key); !o.used && o.asking == 0 && now == o { // unless evicted and claimed again
			k.owners.Drop(key)
		}
	}
}
