package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Settle makes reads of one object at least as new as a version that the server has answered, where the answer cannot
// be laid over the store: see NeedsBarrier, and subresources whose answer is not the object. The watch has a tenth of
// a second for it; then the server is asked for this object, as the watch selects it, and what it says is laid over.
// Without a version it is asked at once.
//
// If that fails, too, the error says why, and readers are told to ask the server (Overdue) until the watch has come
// that far.
func (s *Store) Settle(ctx context.Context, k Key, version string) error {
	s.mu.Lock()
	sc := s.scopes.of(k.Namespace)
	if sc == nil || sc.share.lacks(k.Namespace) {
		s.mu.Unlock()
		return nil
	}
	by, want, began := sc.surveys.by, parseVersion(version), s.overlay.tick()
	s.mu.Unlock()
	if !want.isZero() {
		short, cancel := context.WithTimeout(ctx, waitPatience)
		defer cancel()
		if s.wait(short, &waiter{scope: sc.ns, ver: want, quiet: true}) == nil {
			return nil
		}
	}
	err := errors.New("nothing fills the store")
	if by != nil {
		err = s.ask(ctx, by, k)
	}
	if err == nil {
		s.trust(k, began)
		return nil
	}
	s.distrust(sc, k, want)
	return fmt.Errorf("cannot bring %s up to date in the cache of %s: %w", k, s.opt.Resource.GroupResource(), err)
}

// ask lays over the store what the server has of one object.
func (s *Store) ask(ctx context.Context, by *source.Surveyor, k Key) error {
	var found *Record
	version, err := by.Get(ctx, k.Namespace, k.Name, func(o *source.Object) (err error) {
		found, err = s.parse(o.Encoding, bytes.Clone(o.Raw))
		return err
	})
	switch {
	case err != nil:
		return err
	case found != nil:
		s.put(found, putting{sure: true})
	default:
		s.putAbsent(k, parseVersion(version))
	}
	return nil
}

// Doubt has readers of an object ask the server (Overdue), because a write of it may or may not have been made: until
// Settle has asked, or for as long as an own write may be laid over (Options.OverlayBound). It does not block, and does
// nothing for an object without a name or of a namespace that is not watched.
func (s *Store) Doubt(k Key) {
	s.mu.Lock()
	sc := s.scopes.of(k.Namespace)
	lacking := sc != nil && sc.share.lacks(k.Namespace)
	s.mu.Unlock()
	if sc != nil && !lacking && k.Name != "" {
		s.distrust(sc, k, version{})
	}
}

// distrust has readers of an object ask the server until the scope has come to a version; without one, for as long as
// an own write may be laid over.
func (s *Store) distrust(sc *scope, k Key, ver version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sc.dropped || sc.share.lacks(k.Namespace) {
		return
	}
	ent := s.overlay.entries[k]
	if ent == nil {
		ent = &overlaid{ns: k.Namespace}
		s.overlay.entries[k] = ent
	}
	if d := ent.doubt; d == nil || ver.isZero() || ver.newer(d.ver) { // without a version it is the graver one
		ent.doubt = &doubt{ver: ver, clock: s.overlay.tick(), since: time.Now()}
	}
	cur := s.root.Load()
	s.publish(root{base: cur.base, merged: cur.merged.copy()}, nil)
}

// trust ends a doubt that was there when the server began to be asked.
func (s *Store) trust(k Key, began uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ent := s.overlay.entries[k]
	if ent == nil || ent.doubt == nil || ent.doubt.clock > began {
		return
	}
	ent.doubt = nil
	if s.overlay.drop(k, ent) && len(s.overlay.entries) == 0 {
		base := s.root.Load().base
		s.publish(root{base: base, merged: base}, nil)
	}
}
