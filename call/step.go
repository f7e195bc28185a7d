package call

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"weak"

	"github.com/fairlead-io/fairlead/flow"
)

// StepSpec says what a step requests and what follows from the answer. Only Request is required. The functions run on
// the fiber like any step, and what they return is made by its methods.
type StepSpec[P any] struct {
	Policy Policy

	// Request makes the request from the packet: before the first try, and again each time OnConflict has been dealt
	// with.
	Request func(ctx context.Context, packet *P) (Request, error)

	// OnSuccess gets the answer; the default goes on with the next step. The answer to a list has the items of all
	// pages. The answer is nil where the request says that absence is fine, the object is absent and there is no
	// OnNotFound.
	OnSuccess func(ctx context.Context, f *flow.Fiber[P], a *Answer) flow.Next

	// OnNotFound makes the absence of the object no failure.
	OnNotFound func(ctx context.Context, f *flow.Fiber[P]) flow.Next

	// OnConflict is called after a back-off when a write was refused with a conflict, at most Policy.Conflicts times.
	// It usually goes to a flow.Detour that reads again, which then returns to this step; f.Retry(0) asks Request at
	// once. Without it the OnConflict function of the request is used, if there is one.
	OnConflict func(ctx context.Context, f *flow.Fiber[P], c Conflict) flow.Next

	// OnFailure gets the final error; the default fails the step with it. What was cancelled is not asked.
	OnFailure func(ctx context.Context, f *flow.Fiber[P], err error) flow.Next
}

// Step is a request as a step of a flow. It decides as [Do] does, and parks the fiber while it waits between two tries:
// a fiber in retry holds no goroutine and no worker. A try holds the worker until it is answered or has timed out, so
// that no request is on the wire after the code of a preempted fiber has returned.
//
//	call.Step("create-service", c, call.StepSpec[Domain]{
//		Request: func(ctx context.Context, d *Domain) (call.Request, error) { return d.serviceRequest(), nil },
//	})
//
// A list is fetched page after page (Policy.PageSize, which replaces a limit in the query). Each page is a call of its
// own under the policy. A list whose continue token has expired starts again, once, from scratch. A Table is fetched at
// once, without a limit. To look at a few objects only, use [Pages] within a step.
//
// A process that crashes while the request is on the wire leaves no trace of it, and what comes back sends it again.
// That does no harm to a write which may be repeated: an apply, an update or patch with a resourceVersion, a delete by
// uid, and in a durable fiber a create with a fixed name: where the name is taken, an object that has all that was sent
// is the answer. So give objects names that follow from the packet; where the server has to choose them, put the
// fiber's IdempotencyKey into a label, and have flow.Done look for it.
//
// What earlier tries met is kept in memory only. A fiber that comes back to the step after a restart begins its tries
// anew, but remembers that an earlier write may have been executed. A write that may have been executed, and must not
// be twice, is not sent again when the step is retried: the retry fails as the first run did, with ErrOutcomeUnknown.
func Step[P any](name string, c *Client, spec StepSpec[P], opts ...flow.Option) flow.Node[P] {
	s := &stepper[P]{c: c, spec: spec}
	return flow.Step(name, s.run, opts...)
}

type stepper[P any] struct {
	c    *Client
	spec StepSpec[P]
	// calls holds the calls of parked fibers. The fiber is referred to weakly: a fiber that is cancelled while it is
	// parked never comes back to the step, and its call goes when the fiber does.
	calls sync.Map // weak.Pointer[flow.Fiber[P]] → *stepCall
}

type stepCall struct {
	x       *exchange
	list    *collector // of the pages of a list; nil for other requests
	last    outcome
	refused *Conflict // OnConflict has run: make a new request first
	doubt   error     // the call has ended with it, in doubt; nothing else is set
}

var errNoRequest = errors.New("cannot call: the step has no Request function")

func (s *stepper[P]) run(ctx context.Context, f *flow.Fiber[P]) flow.Next {
	key := weak.Make(f)
	call := s.remembered(f, key)
	if call == nil || call.doubt != nil {
		call, err := s.start(ctx, f, call)
		if err != nil {
			return s.failed(ctx, f, err)
		}
		return s.try(ctx, f, key, call)
	}
	if call.refused != nil {
		call.refused = nil
		r, err := s.request(ctx, f)
		if call.list = newCollector(r, s.spec.Policy); call.list != nil {
			r = call.list.next()
		}
		if err == nil {
			err = call.x.set(r)
		}
		if err != nil {
			s.calls.Delete(key)
			return s.failed(ctx, f, err)
		}
		return s.try(ctx, f, key, call)
	}
	if call.last.action == conflict && s.spec.OnConflict != nil {
		call.refused = &Conflict{Request: call.x.r, Err: call.x.error(nil), Count: call.x.pr.conflicts}
		return s.spec.OnConflict(ctx, f, *call.refused)
	}
	if err := call.x.resume(ctx, call.last); err != nil {
		s.calls.Delete(key)
		return s.failed(ctx, f, err)
	}
	return s.try(ctx, f, key, call)
}

// remembered returns the call that the fiber comes back to; nil if it enters the step anew, as after a deadline of
// the step that ended the call before.
func (s *stepper[P]) remembered(f *flow.Fiber[P], key weak.Pointer[flow.Fiber[P]]) *stepCall {
	known, ok := s.calls.Load(key)
	if !ok {
		return nil
	}
	call := known.(*stepCall)
	if f.Attempt() == 0 && call.refused == nil {
		s.calls.Delete(key)
		return nil
	}
	return call
}

// start begins a call; last is one that ended in doubt, or nil.
func (s *stepper[P]) start(ctx context.Context, f *flow.Fiber[P], last *stepCall) (*stepCall, error) {
	r, err := s.request(ctx, f)
	if err != nil {
		return nil, err
	}
	list := newCollector(r, s.spec.Policy)
	if list != nil {
		r = list.next()
	}
	x, err := s.begin(r)
	if err != nil {
		return nil, err
	}
	x.pr.inDoubt = changes(&x.r, x.w.body) && f.Attempt() > 0
	x.pr.rerun = f.Durable()
	if last != nil && !repeatable(&x.r, x.w.body) {
		return nil, last.doubt
	}
	return &stepCall{x: x, list: list}, nil
}

func (s *stepper[P]) begin(r Request) (*exchange, error) {
	p := s.spec.Policy
	p.Reported = true
	return s.c.begin(r, p)
}

// send makes one try, and as many more as there are pages that are answered at once.
func (s *stepper[P]) send(ctx context.Context, call *stepCall) (o outcome) {
	for {
		o = call.x.try(ctx)
		if call.list == nil || !call.list.take(&o) {
			return o
		}
		x, err := s.begin(call.list.next())
		if err != nil {
			return outcome{action: fail, err: err}
		}
		call.x = x
	}
}

func (s *stepper[P]) request(ctx context.Context, f *flow.Fiber[P]) (Request, error) {
	if s.spec.Request == nil {
		return Request{}, errNoRequest
	}
	r, err := s.spec.Request(ctx, f.Packet)
	if r.Verb == VerbList && isTable(r) {
		r = unlimited(r)
	}
	if s.spec.OnNotFound != nil {
		r.NotFoundOK = true
	}
	if s.spec.OnConflict != nil {
		// Never called: it tells decide that conflicts are dealt with.
		r.OnConflict = func(_ context.Context, c Conflict) (Request, error) { return c.Request, nil }
	}
	return r, err
}

func (s *stepper[P]) try(ctx context.Context, f *flow.Fiber[P], key weak.Pointer[flow.Fiber[P]],
	call *stepCall,
) flow.Next {
	call.last = s.send(ctx, call)
	switch o := call.last; o.action {
	case done:
		s.calls.Delete(key)
		switch {
		case o.answer == nil && s.spec.OnNotFound != nil:
			return s.spec.OnNotFound(ctx, f)
		case s.spec.OnSuccess != nil:
			return s.spec.OnSuccess(ctx, f, o.answer)
		}
		return f.Next()
	case fail:
		s.calls.Delete(key)
		if call.x.pr.inDoubt {
			s.remember(f, key, &stepCall{doubt: o.err})
		}
		return s.failed(ctx, f, o.err)
	}
	s.remember(f, key, call)
	if c, ok := Why(call.x.error(nil)); ok {
		f.Because(c)
	}
	return f.Retry(call.last.after)
}

// remember keeps a call until the fiber comes back or has ended.
func (s *stepper[P]) remember(f *flow.Fiber[P], key weak.Pointer[flow.Fiber[P]], call *stepCall) {
	if _, known := s.calls.Swap(key, call); !known {
		runtime.AddCleanup(f, func(key weak.Pointer[flow.Fiber[P]]) { s.calls.Delete(key) }, key)
	}
}

func (s *stepper[P]) failed(ctx context.Context, f *flow.Fiber[P], err error) flow.Next {
	if s.spec.OnFailure != nil && ctx.Err() == nil {
		return s.spec.OnFailure(ctx, f, err)
	}
	return f.Fail(err)
}
