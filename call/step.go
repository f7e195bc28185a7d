package call

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"weak"

	"github.com/fairlead-io/fairlead/flow"
)

// StepSpec defines the request of a step and the reactions to its result. Only Request is required. The functions run
// on the fiber like any step and return the result of a method of the fiber.
type StepSpec[P any] struct {
	Policy Policy

	// Request makes the request from the packet, before the first try and again after each handled OnConflict.
	Request func(ctx context.Context, packet *P) (Request, error)

	// OnSuccess receives the answer; by default the flow continues with the next step. The answer to a list contains the
	// items of all pages. The answer is nil if the object is absent, the request has NotFoundOK, and OnNotFound is nil.
	OnSuccess func(ctx context.Context, f *flow.Fiber[P], a *Answer) flow.Next

	// OnNotFound handles the absence of the object, which is then not an error.
	OnNotFound func(ctx context.Context, f *flow.Fiber[P]) flow.Next

	// OnConflict is called after a back-off if the server refused a write with a conflict, at most Policy.Conflicts
	// times. It usually returns a flow.Detour that reads the object again and then returns to this step. f.Retry(0) calls
	// Request at once. If OnConflict is nil, the step uses the OnConflict function of the request, if any.
	OnConflict func(ctx context.Context, f *flow.Fiber[P], c Conflict) flow.Next

	// OnFailure receives the final error; by default the step fails with it. OnFailure is not called after cancellation.
	OnFailure func(ctx context.Context, f *flow.Fiber[P], err error) flow.Next
}

// Step returns a step of a flow that makes a request. It decides as [Do] does, and parks the fiber between two tries,
// so a waiting fiber holds no goroutine and no worker. During a try the fiber runs beside the workers (flow.Blocking).
// Its code returns after the answer or timeout. Therefore no request is on the wire after the code of a preempted fiber
// has returned.
//
//	call.Step("create-service", c, call.StepSpec[Domain]{
//		Request: func(ctx context.Context, d *Domain) (call.Request, error) { return d.serviceRequest(), nil },
//	})
//
// Step fetches a list page by page (Policy.PageSize, which replaces a limit in the query). Each page is a separate call
// under the policy. A list whose continue token has expired restarts from the beginning, once. Step fetches a Table at
// once, without a limit. To read only a few objects, use [Pages] within a step.
//
// If the process crashes while the request is on the wire, the restarted fiber sends the request again. That is
// harmless for repeatable writes: an apply, an update or patch with a resourceVersion, a delete by uid. In a durable
// fiber it is also harmless for a create with a fixed name: if the name is taken, an existing object with all fields
// that were sent is the answer. Derive the names of objects from the packet. If the server must generate the name, put
// the fiber's IdempotencyKey into a label and let flow.Done look for it.
//
// The results of earlier tries are kept in memory only. A fiber that returns to the step after a restart starts with a
// new count of tries, but treats earlier writes as possibly executed. A write that may have been executed and is not
// repeatable is not sent again when the step is retried. The retry fails like the first run, with ErrOutcomeUnknown.
func Step[P any](name string, c *Client, spec StepSpec[P], opts ...flow.Option) flow.Node[P] {
	s := &stepper[P]{c: c, spec: spec}
	return flow.Step(name, s.run, opts...)
}

type stepper[P any] struct {
	c    *Client
	spec StepSpec[P]
	// calls holds the calls of parked fibers. The reference to the fiber is weak: a fiber that is cancelled while parked
	// never returns to the step. Its call is removed when the fiber is garbage collected.
	calls sync.Map // weak.Pointer[flow.Fiber[P]] → *stepCall
}

type stepCall struct {
	x       *exchange
	list    *collector // collects the pages of a list; nil for other requests
	last    outcome
	refused *Conflict // OnConflict has run, so a new request must be made first
	doubt   error     // final error of a call in doubt; no other field is set then
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

// remembered returns the call that the fiber returns to. It returns nil if the fiber enters the step newly, for example
// after a deadline of the step ended the previous call.
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

// start begins a call. last is a previous call that ended in doubt, or nil.
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

// send makes one try, and continues with further pages while their answers succeed.
func (s *stepper[P]) send(ctx context.Context, call *stepCall) (o outcome) {
	for {
		flow.Blocking(ctx, func() { o = call.x.try(ctx) })
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
		// never called; it makes decide return conflict
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

// remember keeps a call until the fiber returns or is garbage collected.
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
