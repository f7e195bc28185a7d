package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// sender has the parts that tries share. It has no state of its own.
type sender struct {
	credentials  credentialSource
	transports   *transports
	computations computations
	long         *responseLimiter
	lifetime     *lifetime
	tracer       trace.Tracer // nil: no spans
	userAgent    string
}

// close waits for the tries in progress and closes all connections.
func (s *sender) close() {
	s.lifetime.close()
	s.transports.close()
}

// try is the state of one try. Only the goroutine of the caller uses it.
type try struct {
	sender  *sender
	hook    *Compiled
	outer   context.Context //nolint:containedctx // of the caller, without the timeout of the request
	call    Call
	request *request
	trusted bool
	creds   *credentials
	mask    *mask
	answer  *answer
	leave   func() // returns the slot for a long answer; nil: none
}

// compute runs f in a turn of the namespace.
func (t *try) compute(ctx context.Context, p Phase, f func()) error {
	return t.sender.computations.run(ctx, &t.hook.def, p, f)
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
	creds, err := t.sender.credentials.get(ctx, &t.hook.def, t.trusted, refused)
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
	t.answer = t.exchange(ctx)
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
func (t *try) exchange(ctx context.Context) *answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rt, release, err := t.sender.transports.transport(ctx, t.hook.def.Namespace, t.creds.tls)
	if err != nil {
		return noAnswer(err)
	}
	defer release()
	req, err := t.signed(ctx)
	if err != nil {
		return noAnswer(t.silence(ctx, err))
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return noAnswer(t.silence(ctx, err))
	}
	defer resp.Body.Close()
	data, truncated, err := readBody(resp, func() error { return t.reserve(ctx, cancel) })
	if err != nil {
		return noAnswer(t.silence(ctx, err))
	}
	after, ok := backoff.RetryAfter(resp.Header, time.Now())
	if !ok {
		after = -1
	}
	return &answer{status: resp.StatusCode, header: resp.Header, raw: data, truncated: truncated, after: after}
}

// reserve waits for a slot for a long answer. It first returns the slot of the previous request of the try.
func (t *try) reserve(ctx context.Context, revoke context.CancelCauseFunc) error {
	t.release()
	var err error
	t.leave, err = t.sender.long.acquire(ctx, t.hook.def.Namespace, revoke)
	return err
}

// release returns the slot for a long answer, if there is one.
func (t *try) release() {
	if t.leave != nil {
		t.leave()
	}
}

// signed returns the request to send. Signing a long body takes time, so it runs in a turn of the namespace.
func (t *try) signed(ctx context.Context) (req *http.Request, err error) {
	if len(t.creds.keys) == 0 {
		return t.httpRequest(ctx), nil
	}
	turns := t.sender.computations.turns // not tenant code, so no Witness
	if err = turns.do(ctx, t.hook.def.Namespace, func() { req = t.httpRequest(ctx) }); err != nil {
		err = fmt.Errorf("the namespace has had no turn to sign its request: %w", err)
	}
	return req, err
}

// httpRequest returns the request to send. It has no GetBody, so that net/http does not retry it.
func (t *try) httpRequest(ctx context.Context) *http.Request {
	r := t.request
	sealed := &request{method: r.method, url: r.url, header: r.header.Clone(), body: r.body}
	sealed.seal(ctx, t.call, t.hook.def.CorrelationHeader, t.sender.userAgent, t.creds.keys)
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
func (t *try) silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errRevoked) {
		return fmt.Errorf("%w: %w", errNoAnswer, cause)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %v", errNoAnswer, t.hook.def.RequestTimeout)
	}
	err = bare(err)
	if errors.Is(err, errTargetRefused) || errors.Is(err, ErrFenced) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}
