package store

import (
	"errors"
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

// noteUndecoded records that a record could not be decoded into an object of a reader. It ignores errors of the reader,
// such as another kind, or a type that protobuf cannot be decoded into.
func (c *codec) noteUndecoded(r *Record, into any, err error) {
	if errors.Is(err, errProtobuf) || c.fits(into) != nil {
		return
	}
	k, u := r.Key(), &c.undecoded
	u.mu.Lock()
	defer u.mu.Unlock()
	if was, known := u.all[k]; known && was.Version == r.Version() && was.UID == string(r.UID()) {
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
		Namespace: k.Namespace, Name: k.Name, UID: string(r.UID()), Version: r.Version(), At: time.Now(),
		Err: &DecodeError{Key: k, Type: reflect.TypeOf(into).Elem(), Err: err},
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
