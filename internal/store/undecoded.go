package store

import (
	"reflect"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
)

// maxQuarantined bounds the number of unreadable objects that are remembered.
const maxQuarantined = 1000

// undecoded remembers kept objects that a reader could not decode. Objects are not decoded on arrival, so such an
// object is found only when it is read.
type undecoded struct {
	mu    sync.Mutex
	all   map[Key]source.Quarantined // of the version that was read last; at most maxQuarantined
	count int64                      // number of versions
}

// add records that an object could not be decoded as t, once for each version while it is remembered.
func (u *undecoded) add(of *header, t reflect.Type, err error) {
	k, uid, version := of.Key(), string(of.UID()), of.Version()
	u.mu.Lock()
	defer u.mu.Unlock()
	if was, ok := u.all[k]; ok && was.Version == version && was.UID == uid {
		return
	}
	u.count++
	if u.all == nil {
		u.all = map[Key]source.Quarantined{}
	}
	delete(u.all, k)
	for other := range u.all {
		if len(u.all) < maxQuarantined {
			break
		}
		delete(u.all, other) // it may be readable by now
	}
	u.all[k] = source.Quarantined{
		Namespace: k.Namespace, Name: k.Name, UID: uid, Version: version, At: time.Now(),
		Err: &DecodeError{Key: k, Type: t, Err: err},
	}
}

// current returns the objects whose version get still returns, and forgets the others.
func (u *undecoded) current(get func(Key) (*Record, bool)) (out []source.Quarantined) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, q := range u.all {
		if now, ok := get(k); !ok || now.Version() != q.Version || string(now.UID()) != q.UID {
			delete(u.all, k)
			continue
		}
		out = append(out, q)
	}
	return out
}

// counted returns the number of versions.
func (u *undecoded) counted() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}
