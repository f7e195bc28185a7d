package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// waiter is one wait, for a version or for a survey.
type waiter struct {
	ver     version
	scope   string // "*": all scopes
	done    chan error
	barrier bool      // waits for a survey that begins after since, and for its version
	quiet   bool      // causes no survey
	since   uint64    // number of surveys before the wait began
	slots   shard.Set // if not empty, the wait is for these alone
	patient time.Time // no survey is made for it before this time
}

// waiters are those of a store; guarded by Store.mu.
type waiters []*waiter

func (w *waiter) concerns(sc *scope) bool { return w.scope == allScopes || w.scope == sc.ns }

func (w *waiter) asksOf(sc *scope) bool { return !w.quiet && w.concerns(sc) }

// String describes the awaited state.
func (w *waiter) String() string {
	switch {
	case !w.slots.IsEmpty():
		return fmt.Sprintf("slots %s", w.slots)
	case w.barrier:
		return "what the server has"
	}
	return "version " + w.ver.String()
}

const allScopes = "*"

// waitPatience is how long a wait relies on the watch alone, before a survey asks the server.
const waitPatience = 100 * time.Millisecond

// WaitFor blocks until the store knows all changes up to version in each of its scopes. If it fails, the error wraps
// the cause of ctx, with the status of the scope that is behind, ErrEpoch or ErrClosed. If the watch is quiet for a
// tenth of a second, a consistent list of the metadata answers instead. One list serves all waiters, at most once a
// second.
func (s *Store) WaitFor(ctx context.Context, version string) error {
	return s.wait(ctx, &waiter{scope: allScopes, ver: parseVersion(version)})
}

// WaitForNamespace is WaitFor for the one scope that a namespace belongs to.
func (s *Store) WaitForNamespace(ctx context.Context, namespace, version string) error {
	return s.waitIn(ctx, namespace, &waiter{ver: parseVersion(version)})
}

// Covers reports whether the store knows all changes in a namespace up to a version, own writes aside. WaitForNamespace
// would then return at once. Covers does not block and sends no request. It is false for a namespace that is not
// watched.
func (s *Store) Covers(namespace, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(namespace)
	return sc != nil && s.scopes.have(&waiter{scope: sc.ns, ver: parseVersion(version)})
}

func (s *Store) waitIn(ctx context.Context, namespace string, w *waiter) error {
	s.mu.Lock()
	sc := s.scopes.of(namespace)
	s.mu.Unlock()
	if sc == nil {
		return fmt.Errorf("cannot wait for %s in namespace %q: %w", w, namespace, ErrNotWatched)
	}
	w.scope = sc.ns
	return s.wait(ctx, w)
}

// WaitSlots blocks until each scope of the store holds these slots (Options.Shard) and has listed them. It fails like
// WaitFor. It sends no request.
func (s *Store) WaitSlots(ctx context.Context, slots shard.Set) error {
	if slots.IsEmpty() {
		return nil
	}
	return s.wait(ctx, &waiter{scope: allScopes, slots: slots, quiet: true})
}

// Barrier blocks until the store knows all that the server had when Barrier was called. It asks the server by a
// consistent list of the metadata. One list serves all waiters, at most once a second. Barrier fails if the server
// refuses that list, or a scope was never listed because the server refuses it. Otherwise it fails like WaitFor.
func (s *Store) Barrier(ctx context.Context) error {
	return s.barrier(ctx, s.wait, &waiter{scope: allScopes})
}

// BarrierForNamespace is Barrier for the one scope that a namespace belongs to.
func (s *Store) BarrierForNamespace(ctx context.Context, namespace string) error {
	wait := func(ctx context.Context, w *waiter) error { return s.waitIn(ctx, namespace, w) }
	return s.barrier(ctx, wait, &waiter{})
}

// barrier waits for the present state of the server. A store that cannot be surveyed gets the version from its probe.
func (s *Store) barrier(ctx context.Context, wait func(context.Context, *waiter) error, w *waiter) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot wait for the cache of %s: %w", s.opt.Resource.GroupResource(), err)
		}
	}()
	if w.barrier = s.isSurveyed(); w.barrier {
		return wait(ctx, w)
	}
	if s.opt.Probe == nil {
		return errors.New("the store has no source, and no probe")
	}
	version, err := s.opt.Probe(ctx)
	if err != nil {
		return err
	}
	w.ver = parseVersion(version)
	return wait(ctx, w)
}

// isSurveyed reports whether a source can survey the server.
func (s *Store) isSurveyed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	surveyed := s.live.Load() != nil
	for _, sc := range s.scopes {
		surveyed = surveyed || sc.surveys.by != nil
	}
	return surveyed
}

func (s *Store) wait(ctx context.Context, w *waiter) error {
	s.mu.Lock()
	if s.scopes.have(w) {
		s.mu.Unlock()
		return nil
	}
	if err := s.vain(ctx, w); err != nil {
		defer s.mu.Unlock()
		return fmt.Errorf("cannot wait for %s: %w%s", w, err, s.scopes.behind(w))
	}
	w.done, w.since, w.patient = make(chan error, 1), s.surveyed, time.Now()
	if !w.barrier {
		w.patient = w.patient.Add(waitPatience)
	}
	s.waiters = append(s.waiters, w)
	for _, sc := range s.scopes {
		if w.asksOf(sc) {
			sc.attend()
		}
	}
	s.mu.Unlock()
	select {
	case err := <-w.done:
		if err != nil {
			return fmt.Errorf("cannot wait for %s: %w", w, err)
		}
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(o *waiter) bool { return o == w })
	return fmt.Errorf("cannot wait for %s: %w%s", w, context.Cause(ctx), s.scopes.behind(w))
}

// vain returns an error if a wait cannot succeed. The caller holds s.mu.
func (s *Store) vain(ctx context.Context, w *waiter) error {
	switch {
	case s.closed:
		return ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	for _, sc := range s.scopes {
		if err := sc.refusal(); err != nil && w.barrier && w.concerns(sc) {
			return err
		}
	}
	return nil
}

// behind describes the scopes that w waits for.
func (all scopes) behind(w *waiter) string {
	var out strings.Builder
	for ns, sc := range all {
		if !w.concerns(sc) || sc.has(w) {
			continue
		}
		fmt.Fprintf(&out, "; namespace %q is at version %q, %s: %s %s", ns, sc.version, sc.status.Phase, sc.status.Reason,
			sc.status.Message)
		if y := sc.surveys.open; y != nil {
			fmt.Fprintf(&out, "; the watch has not delivered objects of a list at version %s", y.ver)
		}
		if err := sc.surveys.err; err != nil {
			fmt.Fprintf(&out, "; the server was asked: %v", err)
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// have reports whether the store has reached all that w waits for. A version that cannot be ordered has to match
// literally.
func (all scopes) have(w *waiter) bool {
	if w.ver.isZero() && !w.barrier && w.slots.IsEmpty() {
		return true
	}
	some := false
	for _, sc := range all {
		if !w.concerns(sc) {
			continue
		}
		some = true
		if !sc.has(w) {
			return false
		}
	}
	return some
}

// has reports whether a scope has reached what w waits for. A survey since the start of the wait counts as newer than a
// version that cannot be ordered. The caller holds s.mu.
func (sc *scope) has(w *waiter) bool {
	switch {
	case !w.slots.IsEmpty():
		return sc.share != nil && sc.share.has(w.slots)
	case sc.vacant(): // no object can be missing
		return true
	case !sc.whole():
		return false
	}
	asked := w.done != nil && sc.surveys.reached > w.since
	if w.barrier {
		return asked
	}
	if _, ordered := sc.version.compare(w.ver); !ordered && asked {
		return true
	}
	return sc.version.atLeast(w.ver)
}

// notifyWaiters ends the waits that are over; the caller holds s.mu.
func (s *Store) notifyWaiters() {
	for _, sc := range s.scopes {
		sc.checkSurvey()
	}
	if len(s.waiters) > 0 {
		s.waiters.end(nil, s.scopes.have)
	}
}

// end ends the waits that over selects, with err.
func (ws *waiters) end(err error, over func(*waiter) bool) {
	*ws = slices.DeleteFunc(*ws, func(w *waiter) bool {
		if !over(w) {
			return false
		}
		w.done <- err
		return true
	})
}
