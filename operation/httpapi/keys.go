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
	owners map[keyOf]*owner
	oldest []*owner // a ring
	next   int
}

type keyOf struct{ namespace, id string }

// owner is the resource that has a key.
type owner struct {
	key      keyOf
	resource operation.Resource
	asking   int  // requests under way
	used     bool // there may be an operation of that key
}

// maxKeys bounds what is remembered.
const maxKeys = 1 << 14

// claim reports whether the key is free or was sent for this resource. done tells how the request ended: used, unless nothing of it can have
// been written. A key that no request has used is free again.
func (k *keys) claim(key keyOf, r operation.Resource) (ours bool, done func(used bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.owners[key]
	if o == nil {
		o = k.add(key, r)
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
		if !o.used && o.asking == 0 && k.owners[key] == o {
			delete(k.owners, key)
		}
	}
}

func (k *keys) add(key keyOf, r operation.Resource) *owner {
	if k.owners == nil {
		k.owners = make(map[keyOf]*owner)
	}
	o := &owner{key: key, resource: r}
	if len(k.oldest) < maxKeys {
		k.oldest = append(k.oldest, o)
	} else {
		if old := k.oldest[k.next]; k.owners[old.key] == old { // or it was freed, and perhaps taken again
			delete(k.owners, old.key)
		}
		k.oldest[k.next], k.next = o, (k.next+1)%maxKeys
	}
	k.owners[key] = o
	return o
}
