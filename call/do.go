package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Do makes one request under a policy and returns the answer.
//
// Do blocks until the call succeeds or fails, including the waits between tries. In a step of a flow it does so beside
// the workers (flow.Blocking), except for OnConflict. If ctx ends, Do returns at once. The answer is nil, without an
// error, if the object does not exist and the request has NotFoundOK. The error of a valid request is always an
// [*Error].
func Do(ctx context.Context, c *Client, r Request, p Policy) (*Answer, error) {
	x, err := c.begin(r, p)
	if err != nil {
		return nil, err
	}
	defer x.over()
	for {
		o, err := x.tryAndPause(ctx)
		switch {
		case o.action == done:
			return o.answer, nil
		case o.action == fail:
			return nil, o.err
		case err != nil:
			return nil, err
		}
		if err := x.resume(ctx, o); err != nil {
			return nil, err
		}
	}
}

// tryAndPause makes one try and waits until the next one is due, if there is one. The caller may be a step of a flow,
// which does not count as a worker meanwhile.
func (x *exchange) tryAndPause(ctx context.Context) (o outcome, err error) {
	flow.Blocking(ctx, func() {
		if o = x.try(ctx); o.action != done && o.action != fail {
			x.waits(o)
			err = x.pause(ctx, o)
		}
	})
	return o, err
}

// exchange is one call in progress. It makes one try at a time and decides the next action. Do waits between tries on
// its goroutine, and Step parks its fiber. An exchange must not be used concurrently.
type exchange struct {
	c       *Client
	r       Request
	p       Policy
	w       wire
	id      string
	begun   time.Time
	pr      progress
	past    []Failure
	lastErr error
	used    *connection.Generation // of the last try
	refused *metav1.Status         // of the last try that the server answered with a status
	told    *binding.Retried       // last value stored in Policy.Waiting
}

// begin validates and encodes a request. It sends nothing.
func (c *Client) begin(r Request, p Policy) (*exchange, error) {
	if c == nil || c.conn == nil {
		return nil, &Error{
			Verb: r.Verb, Group: r.Resource.Group, Kind: orString(r.Kind, r.Resource.Resource), Namespace: r.Namespace,
			Name: r.Name, errs: []error{ErrNotMade},
		}
	}
	x := &exchange{c: c, p: p.resolved(), id: uuid.NewString(), begun: time.Now()}
	if err := x.set(r); err != nil {
		return nil, err
	}
	x.budget().deposit(x.begun)
	return x, nil
}

func (x *exchange) set(r Request) error {
	if r.Kind == "" {
		r.Kind = r.Resource.Resource
		if r.Object != nil && r.Subresource == "" {
			r.Kind = orString(r.Object.GetObjectKind().GroupVersionKind().Kind, r.Kind)
		}
	}
	w, err := r.wire(x.c.conn.Base())
	if err != nil {
		x.r = r
		return &Error{
			Verb: r.Verb, Group: r.Resource.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
			Subresource: r.Subresource, errs: []error{err},
		}
	}
	x.r, x.w = r, w
	x.pr.inDoubt = false // the previous request may have been in doubt
	return nil
}

func (x *exchange) budget() *Budget {
	if x.p.Budget != nil {
		return x.p.Budget
	}
	return x.c.budget
}

// try makes one try and decides the next action. An outcome with fail has the final error.
func (x *exchange) try(ctx context.Context) outcome {
	if err := x.acquire(ctx); err != nil {
		return x.end(ctx, err)
	}
	defer x.used.Release()
	if err := x.fence(); err != nil {
		return x.end(ctx, err)
	}
	a := x.send(ctx)
	if ctx.Err() != nil && a.err != nil {
		return x.cancelled(ctx, a)
	}
	return x.judge(ctx, a)
}

// cancelled ends the call after the caller's context has ended a try.
func (x *exchange) cancelled(ctx context.Context, a answer) outcome {
	x.pr.sent++
	x.pr = doubt(&x.r, x.w.body, x.pr, a)
	cause := context.Cause(ctx)
	x.addFailure(Failure{At: a.at, Took: a.took, Reason: cancelled, Message: cause.Error(), ID: a.id})
	x.log(ctx, a, outcome{action: fail, reason: cancelled, err: cause})
	return x.end(ctx, cause)
}

// acquire waits for the client-side rate limit, if configured, and sets the generation for a try. The caller must
// release it.
func (x *exchange) acquire(ctx context.Context) (err error) {
	if err = x.c.limiter.Wait(ctx, connection.Calls, false); err == nil {
		x.used, err = x.c.conn.Acquire()
	}
	return err
}

// fence returns an error if no request may be sent now. It is asked last, so that no delay follows it.
func (x *exchange) fence() error {
	if x.p.Fence == nil {
		return nil
	}
	return x.p.Fence()
}

func (x *exchange) send(ctx context.Context) answer {
	r, w := &x.r, x.w
	if x.pr.verifying != nil {
		read := x.r
		read.Verb, read.Query, read.Object, read.Body = VerbGet, nil, nil, nil
		if x.r.Verb == VerbCreate {
			read.Name = identity(&x.r, x.w.body).Name
		}
		var err error
		if w, err = read.wire(x.c.conn.Base()); err != nil {
			return answer{err: err, unsent: true}
		}
		r = &read
	}
	return x.c.send(ctx, x.used, r, w, x.tryID(), x.p.Timeout, x.pr.sent)
}

func (x *exchange) tryID() string { return x.id + "-" + strconv.Itoa(x.pr.sent+1) }

// judge decides on an answer, reserves a retry in the budget, and records failures for the final error.
func (x *exchange) judge(ctx context.Context, a answer) outcome {
	var o outcome
	o, x.pr = decide(&x.r, x.p, x.w.body, x.pr, a, x.c.rand)
	if o.action == done {
		return o
	}
	x.note(a, o)
	if o.action != fail && !o.free {
		after, ok := x.budget().reserve(time.Now(), o.after)
		if !ok {
			x.c.metrics.refusedByBudget()
			x.log(ctx, a, outcome{action: fail, reason: o.reason, err: o.err})
			return x.end(ctx, ErrBudget)
		}
		o.after = after
	}
	x.log(ctx, a, o)
	if o.action == fail {
		return x.end(ctx, nil)
	}
	x.c.metrics.retried(x.r.Verb, o.reason)
	return o
}

const maxFailures = 32

func (x *exchange) note(a answer, o outcome) {
	f := Failure{At: a.at, Took: a.took, Code: a.code, Reason: o.reason, ID: a.id}
	if o.err != nil {
		f.Message = o.err.Error()
		x.lastErr = o.err
		if s, ok := errors.AsType[*apierrors.StatusError](o.err); ok {
			x.refused = &s.ErrStatus
		}
	}
	x.addFailure(f)
}

// addFailure adds a failure. Beyond maxFailures it keeps the first and the last ones.
func (x *exchange) addFailure(f Failure) {
	if len(x.past) == maxFailures {
		x.past = append(x.past[:maxFailures/2], x.past[maxFailures/2+1:]...)
	}
	x.past = append(x.past, f)
}

// cancelled is the reason of a try whose context has ended.
const cancelled = "cancelled"

func (x *exchange) log(ctx context.Context, a answer, o outcome) {
	attrs := []slog.Attr{
		slog.String("request", a.id), slog.String("verb", string(x.r.Verb)), slog.String("kind", x.r.Kind),
		slog.String("namespace", x.r.Namespace), slog.String("name", x.r.Name), slog.Int("code", a.code),
		slog.String("reason", o.reason), slog.Duration("took", a.took), slog.Any("error", o.err),
	}
	if x.r.Subresource != "" {
		attrs = append(attrs, slog.String("subresource", x.r.Subresource))
	}
	if o.action != fail {
		attrs = append(attrs, slog.Duration("retryIn", o.after))
	}
	level := slog.LevelWarn
	switch {
	case o.reason == cancelled && errors.Is(ctx.Err(), context.Canceled): // by the caller
		level = slog.LevelInfo
	case a.code == http.StatusNotFound && x.r.Verb == VerbGet, // a normal answer
		o.action == fail && x.p.Reported,
		a.code == http.StatusConflict && (x.r.ConflictsExpected || x.r.OnConflict != nil && o.action != fail):
		level = slog.LevelDebug
	}
	x.c.log.LogAttrs(ctx, level, "request failed", attrs...)
}

// pause waits on this goroutine until the next try is due.
func (x *exchange) pause(ctx context.Context, o outcome) error {
	if o.after <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < o.after {
		x.giveUp(o)
		return x.end(ctx, fmt.Errorf("the next try would come too late: %w", context.DeadlineExceeded)).err
	}
	if err := backoff.Pause(ctx, o.after); err != nil {
		x.giveUp(o)
		return x.end(ctx, err).err
	}
	return nil
}

// giveUp returns the token that the budget reserved for the next try.
func (x *exchange) giveUp(o outcome) {
	if !o.free {
		x.budget().giveBack()
	}
}

// resume reloads the credentials or calls OnConflict, if necessary before the next try.
func (x *exchange) resume(ctx context.Context, o outcome) error {
	if ctx.Err() != nil {
		x.giveUp(o)
		return x.end(ctx, context.Cause(ctx)).err
	}
	switch {
	case o.reload:
		if err := x.c.conn.Reload(x.used); err != nil {
			return x.end(ctx, fmt.Errorf("cannot reload the credentials: %w", err)).err
		}
	case o.action == conflict:
		next, err := x.onConflict(ctx)
		if err != nil {
			return x.end(ctx, err).err
		}
		if err := x.set(next); err != nil {
			return err
		}
	}
	return nil
}

// onConflict calls OnConflict and converts its panic into an error.
func (x *exchange) onConflict(ctx context.Context) (next Request, err error) {
	c := Conflict{Request: x.r, Err: x.error(nil), Count: x.pr.conflicts}
	if p := protect.Call(func() { next, err = x.r.OnConflict(ctx, c) }); p != nil {
		return Request{}, fmt.Errorf("panic in the on-conflict function: %w", p)
	}
	return next, err
}

// end returns the final outcome. why is a further reason besides the failure of the last try; it may be nil.
func (x *exchange) end(_ context.Context, why error) outcome {
	return outcome{action: fail, err: x.error(why)}
}

func (x *exchange) error(why error) *Error {
	e := &Error{
		Verb: x.r.Verb, Group: x.r.Resource.Group, Kind: x.r.Kind, Namespace: x.r.Namespace, Name: x.r.Name,
		Subresource: x.r.Subresource,
		Tries:       x.past[:len(x.past):len(x.past)], Elapsed: time.Since(x.begun), outcomeUnknown: x.pr.inDoubt,
	}
	if x.lastErr != nil {
		e.errs = append(e.errs, x.lastErr)
	}
	if why != nil {
		e.errs = append(e.errs, why)
	}
	if s := x.refused; s != nil {
		e.Code, e.Reason, e.Message = int(s.Code), s.Reason, s.Message
		if s.Details != nil {
			e.Causes = s.Details.Causes
		}
	}
	return e
}
