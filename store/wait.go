package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/source"
)

// ErrEpoch is the reason why a wait ends when the server's history went back: the version may never come.
var ErrEpoch = errors.New("the server's history was rolled back")

// ErrNotWatched is returned by waits for a namespace that no scope covers.
var ErrNotWatched = errors.New("not watched")

// Probe returns the server's current resource version, by a consistent read.
type Probe func(context.Context) (version string, err error)

type waiter struct {
	ver   version
	scope string // "*": all scopes
	done  chan error
}

const allScopes = "*"

// WaitFor returns when the store knows everything up to version in each of its scopes, or with the reason why not: the
// context's, with the status of the scope that is behind; ErrEpoch; ErrClosed.
func (s *Store) WaitFor(ctx context.Context, version string) error {
	return s.wait(ctx, allScopes, version)
}

// WaitForNamespace is WaitFor for the one scope that a namespace belongs to.
func (s *Store) WaitForNamespace(ctx context.Context, namespace, version string) error {
	s.mu.Lock()
	sc := s.scopeOf(namespace)
	s.mu.Unlock()
	if sc == nil {
		return fmt.Errorf("cannot wait for version %s in namespace %q: %w", version, namespace, ErrNotWatched)
	}
	return s.wait(ctx, sc.ns, version)
}

// Barrier asks the server for its current version and waits until the store has caught up with it.
func (s *Store) Barrier(ctx context.Context) error {
	if s.opt.Probe == nil {
		return fmt.Errorf("cannot wait for the cache of %s: the store has no probe", s.opt.Resource.GroupResource())
	}
	version, err := s.opt.Probe(ctx)
	if err != nil {
		return fmt.Errorf("cannot wait for the cache of %s: %w", s.opt.Resource.GroupResource(), err)
	}
	return s.WaitFor(ctx, version)
}

func (s *Store) wait(ctx context.Context, scope, text string) error {
	w := &waiter{ver: parseVersion(text), scope: scope, done: make(chan error, 1)}
	s.mu.Lock()
	if s.caughtUp(w) {
		s.mu.Unlock()
		return nil
	}
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("cannot wait for version %s: %w", text, ErrClosed)
	}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	select {
	case err := <-w.done:
		if err != nil {
			return fmt.Errorf("cannot wait for version %s: %w", text, err)
		}
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(o *waiter) bool { return o == w })
	return fmt.Errorf("cannot wait for version %s: %w%s", text, context.Cause(ctx), s.behind(w))
}

// behind describes the scopes that w waits for; the caller holds s.mu.
func (s *Store) behind(w *waiter) string {
	var out strings.Builder
	for ns, sc := range s.scopes {
		if (w.scope == allScopes || w.scope == ns) && !sc.version.atLeast(w.ver) {
			fmt.Fprintf(&out, "; namespace %q is at version %q, %s: %s %s", ns, sc.version, sc.status.Phase, sc.status.Reason, sc.status.Message)
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// caughtUp says whether w is over; the caller holds s.mu. A version that cannot be ordered is waited for literally.
func (s *Store) caughtUp(w *waiter) bool {
	if w.ver.isZero() {
		return true
	}
	some := false
	for ns, sc := range s.scopes {
		if w.scope != allScopes && w.scope != ns {
			continue
		}
		some = true
		if !sc.version.atLeast(w.ver) {
			return false
		}
	}
	return some
}

// notifyWaiters ends the waits that are over; the caller holds s.mu.
func (s *Store) notifyWaiters() {
	if len(s.waiters) == 0 {
		return
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool {
		if !s.caughtUp(w) {
			return false
		}
		w.done <- nil
		return true
	})
}

// failWaiters ends all waits; the caller holds s.mu.
func (s *Store) failWaiters(err error) {
	for _, w := range s.waiters {
		w.done <- err
	}
	s.waiters = nil
}

// failScopeWaiters ends the waits that an epoch of a scope has made pointless; the caller holds s.mu.
func (s *Store) failScopeWaiters(ns, reason string) {
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool {
		if w.scope != allScopes && w.scope != ns {
			return false
		}
		w.done <- fmt.Errorf("%w: %s", ErrEpoch, reason)
		return true
	})
}

// Statuses returns the condition of each scope, in the order of the namespaces. Of a store of a Cache, time of contact, version
// and counters are those of now; of any other, those of the last change of condition.
func (s *Store) Statuses() []source.Status {
	live := map[string]source.Status{}
	if from := s.live.Load(); from != nil {
		for _, st := range (*from).Status() {
			live[st.Namespace] = st
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]source.Status, 0, len(s.scopes))
	for ns, sc := range s.scopes {
		st := sc.status
		st.Namespace = ns
		if now, ok := live[ns]; ok {
			st.LastContact, st.Version, st.Counters = now.LastContact, now.Version, now.Counters
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b source.Status) int { return strings.Compare(a.Namespace, b.Namespace) })
	return out
}

// Report implements source.Sink.
func (sc *scope) Report(st source.Status) {
	s := sc.s
	s.mu.Lock()
	st.Namespace = sc.ns
	sc.status = st
	sc.resuming = sc.resuming && !st.Synced
	wake := func() {}
	if !sc.dropped {
		s.status.send(st)
		if batch := s.checkSynced(); batch != nil {
			wake = s.publish(*s.root.Load(), batch)
		}
	}
	s.mu.Unlock()
	wake()
}

// statusBoard hands changes of status to those who watch them; all of it is guarded by Store.mu.
type statusBoard struct {
	watchers []*StatusWatch
	closed   bool
}

// StatusWatch receives every change of the status of a scope.
type StatusWatch struct {
	// C receives the changes. One that is not read loses the oldest of them. It is closed by Close and with the store.
	C      <-chan source.Status
	c      chan source.Status
	s      *Store
	closed bool
}

const statusBuffer = 64

// WatchStatus returns a watch of the statuses, which begins with the present ones. Close it after use.
func (s *Store) WatchStatus() *StatusWatch {
	c := make(chan source.Status, statusBuffer)
	w := &StatusWatch{C: c, c: c, s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.closed {
		w.close()
		return w
	}
	for _, sc := range s.scopes {
		if sc.status.Phase != "" {
			w.send(sc.status)
		}
	}
	s.status.watchers = append(s.status.watchers, w)
	return w
}

// Close ends the watch.
func (w *StatusWatch) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.close()
	w.s.status.watchers = slices.DeleteFunc(w.s.status.watchers, func(o *StatusWatch) bool { return o == w })
}

func (w *StatusWatch) close() {
	if !w.closed {
		w.closed = true
		close(w.c)
	}
}

func (w *StatusWatch) send(st source.Status) {
	for {
		select {
		case w.c <- st:
			return
		default:
		}
		select {
		case <-w.c:
		default:
		}
	}
}

func (b *statusBoard) send(st source.Status) {
	for _, w := range b.watchers {
		w.send(st)
	}
}

func (b *statusBoard) close() {
	b.closed = true
	for _, w := range b.watchers {
		w.close()
	}
	b.watchers = nil
}

// Unlisted says of each scope that has not been listed completely what keeps it, as far as that is known, in the words of the server:
// "configmaps in team-a: not listed yet: Forbidden: …". It is empty once HasSynced is true.
func (s *Store) Unlisted() []string {
	if s.HasSynced() {
		return nil
	}
	var out []string
	for _, st := range s.Statuses() {
		if st.Synced {
			continue
		}
		where := s.opt.Resource.GroupResource().String()
		if st.Namespace != "" {
			where += " in " + st.Namespace
		}
		why := "not listed yet"
		if st.Phase == source.Degraded {
			why += ": " + string(st.Reason)
		}
		if st.Message != "" {
			why += ": " + st.Message
		}
		out = append(out, where+": "+why)
	}
	if len(out) == 0 {
		out = append(out, s.opt.Resource.GroupResource().String()+": not listed yet")
	}
	slices.Sort(out)
	return out
}
