package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/source"
)

// ErrEpoch is the reason why a wait ends when the server's history went back: the version may never come.
var ErrEpoch = errors.New("the server's history was rolled back")

// ErrNotWatched is returned by waits for a namespace that no scope covers.
var ErrNotWatched = errors.New("not watched")

// Probe returns the server's current resource version, by a consistent read. A store that a source fills needs none.
type Probe func(context.Context) (version string, err error)

type waiter struct {
	ver     version
	scope   string // "*": all scopes
	done    chan error
	barrier bool      // it waits for a survey that begins after since, and for its version
	quiet   bool      // the server is not asked because of it
	since   uint64    // surveys before it began to wait
	patient time.Time // until then the watch alone is waited for
}

const allScopes = "*"

func (w *waiter) concerns(sc *scope) bool { return w.scope == allScopes || w.scope == sc.ns }
func (w *waiter) asksOf(sc *scope) bool   { return !w.quiet && w.concerns(sc) }

// WaitFor returns when the store knows everything up to version in each of its scopes, or with the reason why not: the
// context's, with the status of the scope that is behind; ErrEpoch; ErrClosed. A watch that is quiet is not waited for: what it does not
// settle within a tenth of a second a consistent list of the metadata settles, one for all who wait, and at most once a second.
func (s *Store) WaitFor(ctx context.Context, version string) error {
	return s.wait(ctx, &waiter{scope: allScopes, ver: parseVersion(version)})
}

// WaitForNamespace is WaitFor for the one scope that a namespace belongs to.
func (s *Store) WaitForNamespace(ctx context.Context, namespace, version string) error {
	return s.waitIn(ctx, namespace, &waiter{ver: parseVersion(version)})
}

// Covers says whether the store knows everything in a namespace up to a version, own writes aside: WaitForNamespace would return
// at once. It does not block, and asks nobody. It is false for a namespace that is not watched.
func (s *Store) Covers(namespace, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopeOf(namespace)
	return sc != nil && s.caughtUp(&waiter{scope: sc.ns, ver: parseVersion(version)})
}

func (s *Store) waitIn(ctx context.Context, namespace string, w *waiter) error {
	s.mu.Lock()
	sc := s.scopeOf(namespace)
	s.mu.Unlock()
	if sc == nil {
		return fmt.Errorf("cannot wait for %s in namespace %q: %w", w, namespace, ErrNotWatched)
	}
	w.scope = sc.ns
	return s.wait(ctx, w)
}

// Barrier waits until the store knows everything that the server had when it was called. It asks the server, once for all who wait and at
// most once a second, by a consistent list of the metadata. It fails when the server refuses that, or a scope was never listed
// because it does, and else as WaitFor does.
func (s *Store) Barrier(ctx context.Context) error {
	s.mu.Lock()
	surveyed := s.live.Load() != nil
	for _, sc := range s.scopes {
		surveyed = surveyed || sc.surveys.by != nil
	}
	s.mu.Unlock()
	if surveyed {
		if err := s.wait(ctx, &waiter{scope: allScopes, barrier: true}); err != nil {
			return fmt.Errorf("cannot wait for the cache of %s: %w", s.opt.Resource.GroupResource(), err)
		}
		return nil
	}
	if s.opt.Probe == nil {
		return fmt.Errorf("cannot wait for the cache of %s: the store has no source, and no probe", s.opt.Resource.GroupResource())
	}
	version, err := s.opt.Probe(ctx)
	if err != nil {
		return fmt.Errorf("cannot wait for the cache of %s: %w", s.opt.Resource.GroupResource(), err)
	}
	return s.WaitFor(ctx, version)
}

// String says what is waited for.
func (w *waiter) String() string {
	if w.barrier {
		return "what the server has"
	}
	return "version " + w.ver.String()
}

func (s *Store) wait(ctx context.Context, w *waiter) error {
	s.mu.Lock()
	if s.caughtUp(w) {
		s.mu.Unlock()
		return nil
	}
	if err := s.vain(ctx, w); err != nil {
		defer s.mu.Unlock()
		return fmt.Errorf("cannot wait for %s: %w%s", w, err, s.behind(w))
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
	return fmt.Errorf("cannot wait for %s: %w%s", w, context.Cause(ctx), s.behind(w))
}

// vain says why a wait need not begin; the caller holds s.mu.
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

// refusal says why a scope was never listed, if the server does not let it be; the caller holds s.mu.
func (sc *scope) refusal() error {
	if sc.committed || !sc.refused() {
		return nil
	}
	if sc.status.Err != nil {
		return sc.status.Err
	}
	return errors.New(string(sc.status.Reason))
}

// behind describes the scopes that w waits for; the caller holds s.mu.
func (s *Store) behind(w *waiter) string {
	var out strings.Builder
	for ns, sc := range s.scopes {
		if !w.concerns(sc) || sc.has(w) {
			continue
		}
		fmt.Fprintf(&out, "; namespace %q is at version %q, %s: %s %s", ns, sc.version, sc.status.Phase, sc.status.Reason, sc.status.Message)
		if y := sc.surveys.open; y != nil {
			fmt.Fprintf(&out, "; the watch has not brought what a list at version %s shows", y.ver)
		}
		if err := sc.surveys.err; err != nil {
			fmt.Fprintf(&out, "; the server was asked: %v", err)
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// caughtUp says whether w is over; the caller holds s.mu. A version that cannot be ordered is waited for literally.
func (s *Store) caughtUp(w *waiter) bool {
	if w.ver.isZero() && !w.barrier {
		return true
	}
	some := false
	for _, sc := range s.scopes {
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

// has says whether a scope is as far as w waits for; the caller holds s.mu. What was asked for a version that cannot be ordered is at
// least as new as that.
func (sc *scope) has(w *waiter) bool {
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
		s.endWaits(nil, s.caughtUp)
	}
}

// endWaits ends those of the waits that over selects; the caller holds s.mu.
func (s *Store) endWaits(err error, over func(*waiter) bool) {
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool {
		if !over(w) {
			return false
		}
		w.done <- err
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
	if err := sc.refusal(); err != nil {
		s.endWaits(err, func(w *waiter) bool { return w.barrier && w.concerns(sc) })
	}
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

// with says which objects of the resource are watched; "" if it is all of them.
func (o *Options) with() string {
	var with []string
	for _, sel := range []struct{ what, selector string }{{"labels", o.LabelSelector}, {"fields", o.FieldSelector}, {"the shard", o.ShardSelector}} {
		if sel.selector != "" {
			with = append(with, sel.what+" "+sel.selector)
		}
	}
	return strings.Join(with, ", ")
}

// Unlisted says of each scope that has not been listed completely what keeps it, as far as that is known, in the words of the server:
// "configmaps in team-a with labels app=web: not listed yet: Forbidden: …". It is empty once HasSynced is true.
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
		if with := s.opt.with(); with != "" {
			where += " with " + with
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
