package dependent

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
)

// comparer compares the desired children with the current ones of the cache. It sends no request.
type comparer struct {
	c        *client.Client
	marks    *marks
	known    *remembered
	attempts *attempts
	now      time.Time // of the round
}

// compare compares one child and returns the operation that is due, or nil.
func (p *comparer) compare(ctx context.Context, s *state, w *want) *op {
	at := childKey{s.index, w.key}
	w.ready, w.why, w.unread, w.until, w.known = false, "", false, time.Time{}, nil
	obj, err := s.get(ctx, p.c, w.key)
	switch {
	case apierrors.IsNotFound(err):
		w.is = nil
	case err != nil:
		w.err, w.unread = s.fail("read", w.key, err), true
		return nil
	default:
		w.is, w.known = obj, p.known.entry(at, obj)
	}
	done, err := p.attempts.result(at)
	if done {
		if w.err = err; err != nil {
			return nil
		}
	}
	if w.is == nil {
		if done || len(s.blocked) > 0 {
			w.why = "it does not exist yet"
			return nil
		}
		return &op{state: s, want: w, at: at, verb: verbApply}
	}
	if w.is.GetDeletionTimestamp() != nil {
		w.err = s.fail("apply", w.key, p.marks.refuseDeleted(w.is))
		w.why = "it is being deleted and will be created again"
		return nil
	}
	known := w.known
	if err := p.marks.mayTake(w.is, s.adopt || known != nil); err != nil {
		w.err = s.fail("apply", w.key, err)
		return nil
	}
	holds, err := known.holds(w)
	if err != nil {
		w.err = s.fail("compare", w.key, err)
		return nil
	}
	if !holds && !done {
		if o := p.correct(s, w, known, at); o != nil {
			return o
		}
	}
	p.judge(s, w, known)
	return nil
}

// correct returns an apply for a child that is not as desired. If another client contends for the child, it applies
// with back-off.
func (p *comparer) correct(s *state, w *want, known *child, at childKey) *op {
	o := &op{state: s, want: w, at: at, verb: verbApply}
	if known == nil || known.want != w.sum {
		return o
	}
	o.drift = true
	if known.again >= patience && p.now.Sub(known.applied) < contentionWindow {
		w.err = s.fail("apply", w.key, ErrContended)
		if at := known.applied.Add(known.pause()); p.now.Before(at) {
			w.until = at
			return nil
		}
	}
	return o
}

// judge determines whether a child is ready, and since when it is not.
func (p *comparer) judge(s *state, w *want, known *child) {
	ok, err := guarded(func() (bool, error) { return s.ready(w.is), nil })
	if err != nil {
		w.err = s.fail("judge", w.key, err)
		return
	}
	if w.ready = ok; ok {
		if known != nil {
			known.since = time.Time{}
		}
		return
	}
	w.why = "it is not ready"
	if s.timeout == 0 || known == nil {
		return
	}
	if known.since.IsZero() {
		if created := w.is.GetCreationTimestamp(); w.is.GetGeneration() <= 1 && !created.IsZero() {
			known.since = created.Time
		} else {
			known.since = p.now
		}
	}
	if late := known.since.Add(s.timeout); p.now.Before(late) {
		w.until = late
	} else if w.err == nil {
		w.why = ""
		w.err = s.fail("wait for", w.key, fmt.Errorf("%w (%v)", ErrNotReady, s.timeout))
	}
}
