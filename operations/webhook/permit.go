package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// Permit is the permission to send one request. It owns the slot of the gate until then. The caller must call exactly
// one of Call, Poll and Release. Afterwards the permit is used up and further calls have no effect (Call and Poll
// return Canceled).
type Permit struct {
	sender    *sender
	callbacks *callbacks
	hook      *Compiled
	gate      *gate
	leave     pass
	used      atomic.Bool
}

// Release returns the permit unused.
func (p *Permit) Release() {
	if p.used.CompareAndSwap(false, true) {
		p.finish(outcomeNone)
	}
}

func (p *Permit) finish(o outcome) {
	before := p.gate.breakerStatus()
	p.callbacks.run(p.gate.release(p.leave, o)...)
	p.callbacks.breakerUsed(&p.hook.def, p.gate, before)
}

// Call makes one try of a call and judges the answer. It returns within the definition's requestTimeout, or soon after
// ctx ends.
func (p *Permit) Call(ctx context.Context, call Call) Result {
	return p.try(ctx, "call", call, func(ctx context.Context, t *try) Result {
		t.trusted = true
		if res, ok := t.prepare(ctx, func() (err error) { t.request, err = p.hook.request.render(call); return err }); !ok {
			return res
		}
		if res, ok := t.send(ctx); !ok {
			return res
		}
		return t.judge(func() Result { return p.hook.rules.judgeCall(t.answer, t.request.url) })
	})
}

// Poll sends one request for the state of a call to the pollURL of its answer, and judges the result. It returns like
// Call.
func (p *Permit) Poll(ctx context.Context, call Call, pollURL string) Result {
	return p.try(ctx, "poll", call, func(ctx context.Context, t *try) Result {
		res, ok := t.prepare(ctx, func() (err error) {
			t.request, t.trusted, err = p.hook.request.poll(call, pollURL, p.hook.rules.trustedOrigins())
			return err
		})
		if ok {
			res, ok = t.send(ctx)
		}
		if ok {
			return t.judge(func() Result { return p.hook.rules.judgePoll(t.answer) })
		}
		if res.Verdict == Retry || (res.Verdict != Refused && res.Verdict != Canceled && errors.Is(res.Err, errCredentials)) {
			res.Verdict = Pending // the receiver's work continues regardless
		}
		return res
	})
}

func invalid(err error) Result {
	return Result{Verdict: Invalid, Message: err.Error(), Err: err, RetryAfter: -1}
}

// try runs body in a span, with the timeout of the definition, and returns the permit.
func (p *Permit) try(
	ctx context.Context, kind string, call Call, body func(context.Context, *try) Result,
) (res Result) {
	if !p.used.CompareAndSwap(false, true) {
		return Result{Verdict: Canceled, Message: "the permit is used up", Err: errCanceled, RetryAfter: -1}
	}
	if !p.sender.lifetime.begin() {
		p.finish(outcomeNone)
		return Result{Verdict: Canceled, Message: errClosed.Error(), Err: errClosed, RetryAfter: -1}
	}
	defer p.sender.lifetime.end()
	started := time.Now()
	ctx, span := p.sender.startSpan(ctx, &p.hook.def, kind, call)
	limited, cancel := context.WithTimeout(ctx, p.hook.def.RequestTimeout)
	defer cancel()
	t := &try{sender: p.sender, hook: p.hook, outer: ctx, call: call}
	counts := outcomeNone
	defer func() {
		res = t.clean(res)
		res.Duration = time.Since(started)
		t.release()
		p.gate.remember(res, started.Add(res.Duration))
		p.finish(counts)
		res.Span = t.endSpan(span, res)
	}()
	if p := protect.Call(func() { res = body(limited, t) }); p != nil { // a Resolver is user code
		res = Result{Verdict: Retry, RetryAfter: -1, Err: fmt.Errorf("cannot make the call: panic: %v", p.Value)}
		res.Message = res.Err.Error()
		return res
	}
	if ctx.Err() != nil && res.StatusCode == 0 && res.Verdict != Invalid {
		res.Verdict, res.Err = Canceled, fmt.Errorf("%w: %w", errCanceled, context.Cause(ctx))
		res.Message = res.Err.Error()
	}
	if t.answer != nil && t.trusted { // an untrusted poll URL is another host
		counts = outcomeOf(res)
	}
	return res
}
