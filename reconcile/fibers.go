package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// fiberSet holds the fibers of a controller, by object. Methods are safe for concurrent use, and call no user code and
// no fiber with the lock held. The caller adds at most one fiber of an object at a time.
type fiberSet struct {
	slots *handover.Slots // counts the fibers; nil: replicas do not share the objects
	log   *slog.Logger

	running sync.WaitGroup // fibers that have not ended, including replaced ones

	mu sync.Mutex // guards live and the fields of fibers
	// live has the running fibers, the ended ones that no reconciliation has handled yet, and completed Undo runs until
	// the object is gone.
	live map[Key]*fiber
}

// fiber is a fiber that a controller has started for an object. Its first group of fields does not change.
type fiber struct {
	uid        types.UID
	slot       int // of its object
	generation int64
	undo       bool
	changed    func(ctx context.Context) bool // calls Fibers.Changed
	waiting    *binding.Waiting               // the request that is being retried

	handle      flow.Handle
	started     bool                            // handle is valid
	ended       bool                            // the fields below are valid
	err         error                           // its outcome
	failed      bool                            // err is a failure that must be reported
	unsaved     func(ctx context.Context) error // saves its completion; nil if already saved
	missedEvent bool                            // it has missed an event
	canceled    bool                            // cancel it once started, since its object is deleted
	moves       func(flow.Handle)               // ends it once started, since its slot leaves; may be nil
}

var (
	// errStopping is the cause that cancels fibers when the controller stops or loses leadership.
	errStopping = fmt.Errorf("the controller stops or has lost its leadership: %w", flow.ErrInterrupted)
	// errMoved is the cause that interrupts fibers whose slot leaves.
	errMoved = fmt.Errorf("its slot is handed over: %w", flow.ErrMoved)
	// errObjectGone is the cause that cancels fibers whose object no longer exists or is being deleted.
	errObjectGone = errors.New("the object is deleted")
)

// find returns a copy of the fiber of an object, or nil if there is none with this uid and undo.
func (s *fiberSet) find(k Key, uid types.UID, undo bool) *fiber {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.live[k]
	if f == nil || f.uid != uid || f.undo != undo {
		return nil
	}
	seen := *f
	return &seen
}

// repeat makes another fiber follow the running one of an object. It returns false if none is running that reads
// changes.
func (s *fiberSet) repeat(k Key, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.live[k]
	if f == nil || f.changed == nil || f.uid != uid || f.ended {
		return false
	}
	f.missedEvent = true
	return true
}

// replaced is the former fiber of an object.
type replaced struct {
	fiber *fiber // nil if there was none
	ended bool   // no reconciliation has handled its outcome
}

// add makes f the fiber of an object. It returns false if the slot of the object leaves. Otherwise the caller must call
// started or abandon. After started, ended and release must follow once the fiber ends.
func (s *fiberSet) add(k Key, f *fiber) (former replaced, ok bool) {
	if _, ok := s.slots.Enter(f.slot); !ok {
		return replaced{}, false
	}
	s.running.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if former.fiber = s.live[k]; former.fiber != nil {
		former.ended = former.fiber.ended
	}
	if s.live == nil {
		s.live = map[Key]*fiber{}
	}
	s.live[k] = f
	return former, true
}

// started records the handle of a fiber.
func (s *fiberSet) started(k Key, f *fiber, former replaced, h flow.Handle) {
	s.mu.Lock()
	f.handle, f.started = h, true
	if f.canceled {
		delete(s.live, k)
	}
	canceled, ended, end := f.canceled, f.ended, f.moves
	s.mu.Unlock()
	if former.ended {
		s.logUnhandled(k, former.fiber)
	}
	if end != nil {
		end(h)
	}
	if canceled {
		h.Cancel(errObjectGone)
	}
	if canceled && ended {
		s.logUnhandled(k, f)
	}
}

// abandon removes a fiber that could not be started. The former one is the fiber of the object again.
func (s *fiberSet) abandon(k Key, f *fiber, former replaced) {
	var h flow.Handle
	s.mu.Lock()
	if delete(s.live, k); former.fiber != nil {
		s.live[k], h = former.fiber, former.fiber.handle
	}
	canceled, end := f.canceled, f.moves
	s.mu.Unlock()
	s.release(f)
	if end != nil {
		end(h)
	}
	if canceled {
		h.Cancel(errObjectGone)
	}
}

// ended records the outcome of a fiber. It reports whether f is the fiber of its object. If keep is true, it remains so
// until a reconciliation handles the outcome.
func (s *fiberSet) ended(k Key, f *fiber, res flow.Result, unsaved func(ctx context.Context) error, keep bool) bool {
	s.mu.Lock()
	current := s.live[k] == f
	f.handle, f.ended, f.err, f.failed, f.unsaved = res.Handle, true, res.Err, res.Status == flow.Failed, unsaved
	if current && !keep {
		delete(s.live, k)
	}
	s.mu.Unlock()
	if !current || !keep {
		s.logUnhandled(k, f)
	}
	return current
}

// release ends the count of a fiber whose code has returned.
func (s *fiberSet) release(f *fiber) {
	s.slots.Leave(f.slot)
	s.running.Done()
}

// forget removes the fiber with a handle.
func (s *fiberSet) forget(k Key, h flow.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.live[k]; f != nil && f.handle == h {
		delete(s.live, k)
	}
}

// cancel cancels the fiber of an object that no longer exists or is being deleted.
func (s *fiberSet) cancel(k Key) {
	var h flow.Handle
	s.mu.Lock()
	f := s.live[k]
	if f != nil {
		if f.canceled = true; f.started {
			delete(s.live, k)
			h = f.handle
		}
	}
	ended := f != nil && f.ended
	s.mu.Unlock()
	if h.Cancel(errObjectGone); ended {
		s.logUnhandled(k, f)
	}
}

// halt cancels all fibers and waits until their code has returned. No fiber may be added meanwhile.
func (s *fiberSet) halt() {
	s.mu.Lock()
	all := s.live
	s.live = map[Key]*fiber{}
	ended := map[Key]*fiber{}
	var handles []flow.Handle
	for k, f := range all {
		if f.ended {
			ended[k] = f
		}
		handles = append(handles, f.handle)
	}
	s.mu.Unlock()
	for k, f := range ended {
		s.logUnhandled(k, f)
	}
	for _, h := range handles {
		h.Cancel(errStopping)
	}
	s.running.Wait()
}

// move calls end for the fibers of slots that leave, so that another process resumes them.
func (s *fiberSet) move(slots shard.Set, end func(flow.Handle)) {
	var handles []flow.Handle
	ended := map[Key]*fiber{}
	s.mu.Lock()
	for k, f := range s.live {
		switch {
		case !slots.Holds(f.slot):
		case f.ended:
			delete(s.live, k)
			ended[k] = f
		case f.started:
			handles = append(handles, f.handle)
		default:
			f.moves = end
		}
	}
	s.mu.Unlock()
	for k, f := range ended {
		s.logUnhandled(k, f)
	}
	for _, h := range handles {
		end(h)
	}
}

// logUnhandled logs the failure of an ended fiber that no reconciliation will handle.
func (s *fiberSet) logUnhandled(k Key, f *fiber) {
	if f.failed {
		s.log.Warn("an obsolete fiber failed", "key", k.String(), "error", f.err,
			"trail", f.handle.Info().Trail.String())
	}
}

// runs reports whether f is the fiber of its object and has not ended.
func (s *fiberSet) runs(k Key, f *fiber) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[k] == f && !f.ended
}

// count returns the number of fibers that have not ended.
func (s *fiberSet) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.live {
		if !f.ended {
			n++
		}
	}
	return n
}

// snapshot returns a copy of the running fiber of an object, or nil if there is none.
func (s *fiberSet) snapshot(k Key) *fiber {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.live[k]
	if f == nil || f.ended {
		return nil
	}
	seen := *f
	return &seen
}
