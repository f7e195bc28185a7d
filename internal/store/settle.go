package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Settle makes reads of one object at least as new as a version that the server has answered. It is for answers that
// cannot be laid over the store: see NeedsBarrier, and subresources whose answer is not the object. It waits a tenth of
// a second for the watch. Then it asks the server for the object, as the watch selects it, and lays the result over the
// store. Without a version it asks at once.
//
// If that fails, too, Settle returns the reason. Overdue is then true for the object until the watch has reached the
// version or, without a version, for Options.OverlayBound.
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
	err := errors.New("the store has no source")
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

// ask gets one object from the server and lays it over the store.
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

// Doubt makes Overdue true for an object, because a write to it may or may not have succeeded. That lasts until Settle
// has asked the server, or for Options.OverlayBound. Doubt does not block. It has no effect on an object without a name
// or in a namespace that is not watched.
func (s *Store) Doubt(k Key) {
	s.mu.Lock()
	sc := s.scopes.of(k.Namespace)
	lacking := sc != nil && sc.share.lacks(k.Namespace)
	s.mu.Unlock()
	if sc != nil && !lacking && k.Name != "" {
		s.distrust(sc, k, version{})
	}
}

// distrust makes Overdue true for an object until the scope has reached a version. Without a version that lasts for
// Options.OverlayBound.
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
	if d := ent.doubt; d == nil || ver.isZero() || ver.newer(d.ver) { // a doubt without a version takes precedence
		ent.doubt = &doubt{ver: ver, clock: s.overlay.tick(), since: time.Now()}
	}
	cur := s.root.Load()
	s.publish(root{base: cur.base, merged: cur.merged.copy()}, nil)
}

// trust ends a doubt that is not newer than began, the clock when the query of the server began.
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
