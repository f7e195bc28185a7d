package dependent

import (
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/client"
)

// outside is the remembered state of an external resource. There is none before the first read of this process.
type outside struct {
	is         any // nil: the resource is gone
	read       time.Time
	due        time.Time // of the next read; zero until the resource was judged
	generation int64     // of the primary at the time of the read
	polls      int       // number of reads in a row that found it not ready
	since      time.Time // when this process first found it not ready; zero while it is ready
	failed     bool      // a later read or write has failed: the current state is unknown
}

// externals decides about the external resources of a primary. It sends no request.
type externals struct {
	marks    *marks
	known    *remembered
	attempts *attempts
	now      time.Time // of the round
	poked    bool      // all resources must be read
}

// compare returns the operation that is due for a resource that may be wanted, or nil. It judges the resource if there
// is none.
func (x *externals) compare(s *state) *op {
	done, err := x.attempts.result(childKey{node: s.index})
	switch {
	case s.err != nil && !s.asked:
		return nil // whether it is wanted is not known
	case s.asked && !done && x.mustRead(s):
		return externalOp(s, verbOutside)
	}
	s.err = err
	s.status = NodeStatus{State: StateProgressing}
	if err != nil || s.outside == nil || s.outside.is == nil {
		return nil
	}
	ok, err := guarded(func() (bool, error) { return s.ready(s.outside.is), nil })
	if s.outside.due.IsZero() {
		s.outside.schedule(s.external, ok)
	}
	s.until = s.outside.due
	switch {
	case err != nil:
		s.err = s.fail("judge", client.Key{}, err)
	case ok:
		s.status.State, s.outside.since = StateReady, time.Time{}
	default:
		x.limit(s)
	}
	return nil
}

// limit reports a resource that is not ready within the Timeout of its node. It is read again as before.
func (x *externals) limit(s *state) {
	if s.outside.since.IsZero() {
		s.outside.since = s.outside.read
	}
	if s.timeout == 0 {
		return
	}
	if late := s.outside.since.Add(s.timeout); x.now.Before(late) {
		s.until = sooner(s.until, late)
		return
	}
	s.err = s.fail("wait for", client.Key{}, fmt.Errorf("%w (%v)", ErrNotReady, s.timeout))
}

// schedule sets the time of the next read.
func (o *outside) schedule(e *external, ready bool) {
	if ready {
		o.polls, o.due = 0, o.read.Add(e.drift)
		return
	}
	o.polls++
	o.due = o.read.Add(e.poll.Delay(o.polls))
}

// mustRead reports whether the resource must be read and updated, or created.
func (x *externals) mustRead(s *state) bool {
	o := s.outside
	return o == nil || o.failed || o.is == nil || o.generation != x.marks.primary.GetGeneration() || x.poked ||
		!o.due.IsZero() && !x.now.Before(o.due)
}

// release returns the deletion of a resource that is not wanted, or nil if there is none or it was tried.
func (x *externals) release(s *state) *op {
	if done, _ := x.attempts.result(childKey{node: s.index}); done || !s.slot {
		return nil
	}
	return externalOp(s, verbRelease)
}

func externalOp(s *state, v verb) *op {
	return &op{state: s, want: &want{}, at: childKey{node: s.index}, verb: v}
}

// record remembers the result of an operation.
func (x *externals) record(o *op) {
	s := o.state
	switch {
	case o.err != nil:
		s.err = o.err
		if o.gone {
			x.known.outsides[s.index] = &outside{failed: true} // another resource may exist
		} else if known := x.known.outsides[s.index]; known != nil {
			known.failed = true
		}
	case o.verb == verbRelease:
		delete(x.known.outsides, s.index)
	default:
		now := &outside{is: o.outside, read: x.now, generation: x.marks.primary.GetGeneration()}
		if before := x.known.outsides[s.index]; before != nil {
			now.since = before.since
			if before.generation == now.generation {
				now.polls = before.polls
			}
		}
		x.known.outsides[s.index] = now
	}
}
