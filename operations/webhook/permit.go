package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Permit is the permission to send one request. The caller must call exactly one of Call, Poll and Release. Afterwards
// the permit is used up and further calls have no effect (Call and Poll return Canceled).
type Permit struct {
	client *Client
	hook   *Compiled
	gate   *gate
	leave  pass
	used   atomic.Bool
}

// Release returns the permit unused.
func (p *Permit) Release() {
	if p.used.CompareAndSwap(false, true) {
		p.finish(outcomeNone)
	}
}

func (p *Permit) finish(o outcome) {
	before := p.gate.breakerStatus()
	p.client.notify(p.gate.release(p.leave, o)...)
	p.client.announce(p.hook, p.gate, before)
}

// Call makes one try of a call and judges the answer. It returns within the definition's requestTimeout, or soon after
// ctx ends.
func (p *Permit) Call(ctx context.Context, call Call) Result {
	return p.try(ctx, "call", call, func(ctx context.Context, t *try) Result {
		t.call, t.trusted = call, true
		if res, ok := t.prepare(ctx, func() (err error) { t.request, err = p.hook.render(call); return err }); !ok {
			return res
		}
		if res, ok := t.send(ctx); !ok {
			return res
		}
		return t.judge(func() Result { return p.hook.judgeCall(t.answer, t.request.url) })
	})
}

// Poll sends one request for the state of a call to the pollURL of its answer, and judges the result. It returns like
// Call.
func (p *Permit) Poll(ctx context.Context, call Call, pollURL string) Result {
	return p.try(ctx, "poll", call, func(ctx context.Context, t *try) Result {
		t.call = call
		res, ok := t.prepare(ctx, func() (err error) {
			t.request, t.trusted, err = p.hook.pollRequest(call, pollURL)
			return err
		})
		if ok {
			res, ok = t.send(ctx)
		}
		if ok {
			return t.judge(func() Result { return p.hook.judgePoll(t.answer) })
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

// try is the state of one try.
type try struct {
	permit  *Permit
	outer   context.Context //nolint:containedctx // of the caller, without the timeout of the request; it lives as long as the try
	call    Call
	request *request
	trusted bool
	creds   *credentials
	mask    *mask
	answer  *answer
	left    func() // returns the slot for a long answer; nil: none
}

// compute runs f in a turn of the namespace.
func (t *try) compute(ctx context.Context, p Phase, f func()) error {
	return t.permit.client.compute(ctx, &t.permit.hook.def, p, f)
}

// prepare renders the request. It reports false if no request can be sent.
func (t *try) prepare(ctx context.Context, render func() error) (Result, bool) {
	var err error
	switch waited := t.compute(ctx, Rendering, func() { err = render() }); {
	case waited != nil: // for longer than the request timeout
		err = fmt.Errorf("%w: the namespace has had no turn to make its request: %w", errNoAnswer, waited)
		return Result{Verdict: Retry, Message: err.Error(), Err: err, RetryAfter: -1}, false
	case err != nil:
		return invalid(err), false
	}
	return Result{}, true
}

// judge judges the answer. It uses the outer context, so that a long wait for a turn does not count against the answer.
func (t *try) judge(judge func() Result) (res Result) {
	err := t.compute(t.outer, Judging, func() {
		t.answer.open(t.mask)
		defer t.answer.close()
		res = judge()
	})
	if err != nil {
		return Result{Verdict: Canceled, Message: err.Error(), Err: fmt.Errorf("%w: %w", errCanceled, err), RetryAfter: -1}
	}
	return res
}

// try runs body in a span, with the timeout of the definition, and returns the permit.
func (p *Permit) try(
	ctx context.Context, what string, call Call, body func(context.Context, *try) Result,
) (res Result) {
	if !p.used.CompareAndSwap(false, true) {
		return Result{Verdict: Canceled, Message: "the permit is used up", Err: errCanceled, RetryAfter: -1}
	}
	if !p.client.begin() {
		p.finish(outcomeNone)
		return Result{Verdict: Canceled, Message: errClosed.Error(), Err: errClosed, RetryAfter: -1}
	}
	defer p.client.inFlight.Done()
	started := time.Now()
	ctx, span := p.spanOf(ctx, what, call)
	limited, cancel := context.WithTimeout(ctx, p.hook.def.RequestTimeout)
	defer cancel()
	t := &try{permit: p, outer: ctx}
	counts := outcomeNone
	defer func() {
		res = t.clean(res)
		res.Duration = time.Since(started)
		if t.left != nil {
			t.left()
		}
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

// clean masks the result once more: parsing may have decoded a secret that the receiver had spelled differently.
func (t *try) clean(res Result) Result {
	m := t.mask
	if m == nil {
		creds := &credentials{}
		creds.hideCallback(t.call.Data.CallbackURL)
		m = newMask(creds.secrets...)
		t.mask = m
	}
	if location := m.apply(res.Location); location != res.Location {
		res.Verdict, res.Location = Failed, ""
		res.Message, res.Err = "cannot use URL to poll: it contains a secret", errURL
	}
	res.Message = oneLine(m.apply(res.Message))
	res.Err = m.applyError(res.Err)
	return res
}

// send sends the request, and once more if a cached token was refused. It reports false if there is no answer to judge.
func (t *try) send(ctx context.Context) (Result, bool) {
	res, ok := t.sendWith(ctx, "")
	if !ok || t.answer.status != http.StatusUnauthorized || !t.creds.cached || t.creds.token == "" {
		return res, ok
	}
	first, firstCreds, firstMask := t.answer, t.creds, t.mask
	if again, ok := t.sendWith(ctx, firstCreds.token); again.Verdict == Canceled {
		return again, false
	} else if !ok {
		t.answer, t.creds, t.mask = first, firstCreds, firstMask // judge the refusal
	}
	return Result{}, true
}

func (t *try) sendWith(ctx context.Context, refused string) (Result, bool) {
	p := t.permit
	creds, err := p.client.credentials(ctx, p.hook, t.trusted, refused)
	creds.hideCallback(t.call.Data.CallbackURL)
	if refused != "" {
		creds.hide(refused)
	}
	t.creds, t.mask = creds, newMask(creds.secrets...)
	if err != nil {
		return noCredentials(err), false
	}
	if refused != "" && creds.token == refused {
		return Result{}, false
	}
	t.answer = p.exchange(ctx, t)
	if t.answer.status == http.StatusUnauthorized && creds.refused != nil {
		creds.refused.Store(true)
	}
	if err := t.answer.err; err != nil {
		if errors.Is(err, errTargetRefused) {
			return Result{Verdict: Refused, Message: err.Error(), Err: err, RetryAfter: -1}, false
		}
		if errors.Is(err, ErrFenced) {
			return fencedOff(err), false
		}
		if errors.Is(err, errCredentials) {
			return noCredentials(err), false
		}
	}
	return Result{}, true
}

// fencedOff returns the result of a request that was not sent because another process may be sending it.
func fencedOff(err error) Result {
	return Result{Verdict: Canceled, Message: err.Error(), Err: fmt.Errorf("%w: %w", errCanceled, err), RetryAfter: -1}
}

// noCredentials returns the result of a try without credentials. Another try may succeed after the secret is fixed,
// unless the token endpoint has refused it.
func noCredentials(err error) Result {
	if errors.Is(err, ErrFenced) {
		return fencedOff(err)
	}
	res := Result{Verdict: Retry, Message: err.Error(), Err: err, RetryAfter: -1}
	var known *credentialsError
	switch {
	case errors.Is(err, errTargetRefused):
		res.Verdict = Refused
	case errors.Is(err, ErrInvalid): // from the Resolver
		res.Verdict = Invalid
	case errors.As(err, &known) && known.Permanent:
		res.Verdict = Failed
	}
	return res
}

// noRequest reports whether no request reached the endpoint.
func (r Result) noRequest() bool { return errors.Is(r.Err, errCredentials) }

// exchange sends the request and reads the answer.
func (p *Permit) exchange(ctx context.Context, t *try) *answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rt, release, err := p.client.transport(ctx, p.hook.def.Namespace, t.creds.tls)
	if err != nil {
		return noAnswer(err)
	}
	defer release()
	req, err := t.signed(ctx)
	if err != nil {
		return noAnswer(p.silence(ctx, err))
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return noAnswer(p.silence(ctx, err))
	}
	defer resp.Body.Close()
	data, truncated, err := readBody(resp, func() error { return t.reserve(ctx, cancel) })
	if err != nil {
		return noAnswer(p.silence(ctx, err))
	}
	after, ok := backoff.RetryAfter(resp.Header, time.Now())
	if !ok {
		after = -1
	}
	return &answer{status: resp.StatusCode, header: resp.Header, raw: data, truncated: truncated, after: after}
}

// reserve waits for a slot for a long answer. It first returns the slot of the previous request of the try.
func (t *try) reserve(ctx context.Context, leave context.CancelCauseFunc) error {
	if t.left != nil {
		t.left()
	}
	var err error
	t.left, err = t.permit.client.long.acquire(ctx, t.permit.hook.def.Namespace, leave)
	return err
}

// signed returns the request to send. Signing a long body takes time, so it runs in a turn of the namespace.
func (t *try) signed(ctx context.Context) (req *http.Request, err error) {
	if len(t.creds.keys) == 0 {
		return t.httpRequest(ctx), nil
	}
	turns := t.permit.client.turns // not tenant code, so no Witness
	if err = turns.do(ctx, t.permit.hook.def.Namespace, func() { req = t.httpRequest(ctx) }); err != nil {
		err = fmt.Errorf("the namespace has had no turn to sign its request: %w", err)
	}
	return req, err
}

// httpRequest returns the request to send. It has no GetBody, so that net/http does not retry it.
func (t *try) httpRequest(ctx context.Context) *http.Request {
	w, r := t.permit.hook, t.request
	sealed := &request{method: r.method, url: r.url, header: r.header.Clone(), body: r.body}
	w.seal(ctx, sealed, t.call, t.permit.client.userAgent, t.creds.keys)
	if t.creds.authorization != "" {
		sealed.header.Set("Authorization", t.creds.authorization)
	}
	target := *r.url
	req := (&http.Request{
		Method: r.method, URL: &target, Host: target.Host, Header: sealed.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.body)),
	}).WithContext(ctx)
	if len(r.body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(r.body))
	}
	return req
}

// silence explains why no answer came.
func (p *Permit) silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errRevoked) {
		return fmt.Errorf("%w: %w", errNoAnswer, cause)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %v", errNoAnswer, p.hook.def.RequestTimeout)
	}
	err = bare(err)
	if errors.Is(err, errTargetRefused) || errors.Is(err, ErrFenced) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}
