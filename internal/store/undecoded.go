package store

import (
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
)

// undecoded remembers the objects that are kept and that a reader could not decode: nothing is decoded on the way in,
// so that such an object is found out when somebody reads it.
type undecoded struct {
	mu    sync.Mutex
	all   map[Key]source.Quarantined // of the version that was read last; at most maxQuarantined
	count int64                      // versions
}

// noteUndecoded remembers that a record could not be decoded into an object of the reader's, unless the reader is at
// fault: he wants another kind, or what cannot be made of protobuf.
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
		delete(u.all, other) // which may be mended long since
	}
	u.all[k] = source.Quarantined{
		Namespace: k.Namespace, Name: k.Name, UID: string(r.UID()), Version: r.Version(), At: time.Now(),
		Err: &DecodeError{Key: k, Type: reflect.TypeOf(into).Elem(), Err: err},
	}
}

// Undecoded returns the objects that the store has, and that could not be decoded as the Go type that somebody has read
// them as; the last 1,000 of them. Other readers may be able to. They count among Stats.Quarantined, each version once
// while it is remembered.
func (s *Store) Undecoded() (out []source.Quarantined) {
	u := &s.undecoded
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, q := range u.all {
		if now, ok := s.Get(k); !ok || now.Version() != q.Version || string(now.UID()) != q.UID {
			delete(u.all, k)
			continue
		}
		out = append(out, q)
	}
	return out
}

func (u *undecoded) counted() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}
