package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// waits owns the callers that wait for a version or a slot, and the surveys that end their waits on a quiet watch. The
// writer lock guards its state.
type waits struct {
	pub       *publisher
	overlay   *overlay
	coverages coverages
	intern    *interner
	logger    *slog.Logger
	opt       *Options
	hasSource func() bool // a Cache has made a source for the store

	waiters  []*waiter
	surveys  map[string]*surveys // by namespace; "" is all namespaces
	surveyed uint64              // surveys that have begun
	running  sync.WaitGroup      // goroutines of surveys
}

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

func (w *waiter) concerns(c *coverage) bool { return w.scope == allScopes || w.scope == c.ns }

func (w *waiter) asksOf(c *coverage) bool { return !w.quiet && w.concerns(c) }

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
func (s *waits) WaitFor(ctx context.Context, version string) error {
	return s.wait(ctx, &waiter{scope: allScopes, ver: parseVersion(version)})
}

// WaitForNamespace is WaitFor for the one scope that a namespace belongs to.
func (s *waits) WaitForNamespace(ctx context.Context, namespace, version string) error {
	return s.waitIn(ctx, namespace, &waiter{ver: parseVersion(version)})
}

// Covers reports whether the store knows all changes in a namespace up to a version, own writes aside. WaitForNamespace
// would then return at once. Covers does not block and sends no request. It is false for a namespace that is not
// watched.
func (s *waits) Covers(namespace, version string) bool {
	s.pub.lock()
	defer s.pub.unlock()
	cov := s.coverages.of(namespace)
	return cov != nil && s.coverages.have(&waiter{scope: cov.ns, ver: parseVersion(version)})
}

func (s *waits) waitIn(ctx context.Context, namespace string, w *waiter) error {
	s.pub.lock()
	cov := s.coverages.of(namespace)
	s.pub.unlock()
	if cov == nil {
		return fmt.Errorf("cannot wait for %s in namespace %q: %w", w, namespace, ErrNotWatched)
	}
	w.scope = cov.ns
	return s.wait(ctx, w)
}

// WaitSlots blocks until each scope of the store holds these slots (Options.Shard) and has listed them. It fails like
// WaitFor. It sends no request.
func (s *waits) WaitSlots(ctx context.Context, slots shard.Set) error {
	if slots.IsEmpty() {
		return nil
	}
	return s.wait(ctx, &waiter{scope: allScopes, slots: slots, quiet: true})
}

// Barrier blocks until the store knows all that the server had when Barrier was called. It asks the server by a
// consistent list of the metadata. One list serves all waiters, at most once a second. Barrier fails if the server
// refuses that list, or a scope was never listed because the server refuses it. Otherwise it fails like WaitFor.
func (s *waits) Barrier(ctx context.Context) error {
	return s.barrier(ctx, s.wait, &waiter{scope: allScopes})
}

// BarrierForNamespace is Barrier for the one scope that a namespace belongs to.
func (s *waits) BarrierForNamespace(ctx context.Context, namespace string) error {
	wait := func(ctx context.Context, w *waiter) error { return s.waitIn(ctx, namespace, w) }
	return s.barrier(ctx, wait, &waiter{})
}

// barrier waits for the present state of the server. A store that cannot be surveyed gets the version from its probe.
func (s *waits) barrier(ctx context.Context, wait func(context.Context, *waiter) error, w *waiter) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot wait for the cache of %s: %w", s.opt.resource(), err)
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
func (s *waits) isSurveyed() bool {
	s.pub.lock()
	defer s.pub.unlock()
	surveyed := s.hasSource()
	for _, v := range s.surveys {
		surveyed = surveyed || v.by != nil
	}
	return surveyed
}

func (s *waits) wait(ctx context.Context, w *waiter) error {
	s.pub.lock()
	if s.coverages.have(w) {
		s.pub.unlock()
		return nil
	}
	if err := s.refusal(ctx, w); err != nil {
		defer s.pub.unlock()
		return fmt.Errorf("cannot wait for %s: %w%s", w, err, s.behind(w))
	}
	w.done, w.since, w.patient = make(chan error, 1), s.surveyed, time.Now()
	if !w.barrier {
		w.patient = w.patient.Add(waitPatience)
	}
	s.waiters = append(s.waiters, w)
	for _, v := range s.surveys {
		if w.asksOf(v.cov) {
			v.attend()
		}
	}
	s.pub.unlock()
	select {
	case err := <-w.done:
		if err != nil {
			return fmt.Errorf("cannot wait for %s: %w", w, err)
		}
		return nil
	case <-ctx.Done():
	}
	s.pub.lock()
	defer s.pub.unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(o *waiter) bool { return o == w })
	return fmt.Errorf("cannot wait for %s: %w%s", w, context.Cause(ctx), s.behind(w))
}

// refusal returns an error if a wait cannot succeed. The caller holds the writer lock.
func (s *waits) refusal(ctx context.Context, w *waiter) error {
	switch {
	case s.pub.isClosed():
		return ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	for _, cov := range s.coverages {
		if err := cov.refusal(); err != nil && w.barrier && w.concerns(cov) {
			return err
		}
	}
	return nil
}

// behind describes the scopes that w waits for. The caller holds the writer lock.
func (s *waits) behind(w *waiter) string {
	var out strings.Builder
	for ns, v := range s.surveys {
		c := v.cov
		if !w.concerns(c) || c.has(w) {
			continue
		}
		fmt.Fprintf(&out, "; namespace %q is at version %q, %s: %s %s", ns, c.version, c.status.Phase, c.status.Reason,
			c.status.Message)
		if y := v.open; y != nil {
			fmt.Fprintf(&out, "; the watch has not delivered objects of a list at version %s", y.ver)
		}
		if err := v.err; err != nil {
			fmt.Fprintf(&out, "; the server was asked: %v", err)
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// have reports whether the store has reached all that w waits for. A version that cannot be ordered has to match
// literally.
func (all coverages) have(w *waiter) bool {
	if w.ver.isZero() && !w.barrier && w.slots.IsEmpty() {
		return true
	}
	some := false
	for _, c := range all {
		if !w.concerns(c) {
			continue
		}
		some = true
		if !c.has(w) {
			return false
		}
	}
	return some
}

// has reports whether a scope has reached what w waits for. A survey since the start of the wait counts as newer than a
// version that cannot be ordered. The caller holds the writer lock.
func (c *coverage) has(w *waiter) bool {
	switch {
	case !w.slots.IsEmpty():
		return c.share != nil && c.share.has(w.slots)
	case c.vacant(): // no object can be missing
		return true
	case !c.whole():
		return false
	}
	asked := w.done != nil && c.surveyed > w.since
	if w.barrier {
		return asked
	}
	if _, ordered := c.version.compare(w.ver); !ordered && asked {
		return true
	}
	return c.version.atLeast(w.ver)
}

// notify ends the waits that are over. The caller holds the writer lock.
func (s *waits) notify() {
	for _, v := range s.surveys {
		v.check()
	}
	if len(s.waiters) > 0 {
		s.end(nil, s.coverages.have)
	}
}

// end ends the waits that over selects, with err. The caller holds the writer lock.
func (s *waits) end(err error, over func(*waiter) bool) {
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool {
		if !over(w) {
			return false
		}
		w.done <- err
		return true
	})
}

// refuse implements waitingCallers.
func (s *waits) refuse(cov *coverage, err error) {
	s.end(err, func(w *waiter) bool { return w.barrier && w.concerns(cov) })
}

// reset implements waitingCallers.
func (s *waits) reset(cov *coverage, err error) {
	s.end(err, func(w *waiter) bool { return w.concerns(cov) })
}

// survey adds the surveys of a scope. The caller holds the writer lock.
func (s *waits) survey(cov *coverage) *surveys {
	v := &surveys{cov: cov, waits: s}
	s.surveys[cov.ns] = v
	return v
}

// drop ends the surveys of a scope that is not watched any more. The caller holds the writer lock.
func (s *waits) drop(v *surveys) {
	delete(s.surveys, v.cov.ns)
	v.end()
}

// close ends all waits and surveys. The caller holds the writer lock, and calls running.Wait after releasing it.
func (s *waits) close() {
	s.end(ErrClosed, func(*waiter) bool { return true })
	for _, v := range s.surveys {
		v.end()
	}
}

// surveyor implements server.
func (s *waits) surveyor(scope string) *source.Surveyor {
	if v := s.surveys[scope]; v != nil {
		return v.by
	}
	return nil
}

// reach implements server.
func (s *waits) reach(ctx context.Context, scope string, ver version) error {
	return s.wait(ctx, &waiter{scope: scope, ver: ver, quiet: true})
}
