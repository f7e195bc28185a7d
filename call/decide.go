package call

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/backoff"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// action is the next action after a try.
type action uint8

const (
	done     action = iota // the call returns its answer, which may be nil
	retry                  // try again after a delay
	conflict               // call OnConflict after a delay
	fail                   // the call returns its error
)

// outcome is the decision after one try. Do and Step see no other result of a try.
type outcome struct {
	action action
	after  time.Duration
	reason string  // one word for logs and metrics
	answer *Answer // with done; nil if the object is absent and NotFoundOK is set
	err    error   // of this try, unless done
	free   bool    // the retry takes no token of the budget, because it continues the same try
	reload bool    // reload the credentials before the retry
}

// progress is the state of a call after its tries so far. decide computes the next progress from it, the request, the
// policy and the newest answer, without side effects.
type progress struct {
	sent      int  // used of Policy.Retries
	retries   int  // used of Policy.Conflicts
	conflicts int  // of Policy.Conflicts
	reloaded  bool // credentials were reloaded
	inDoubt   bool // an earlier try of the present request may have been executed
	rerun     bool // a crashed process may have executed the request

	// verifying holds the refusal (409) that the next try, a read of the live object, verifies.
	verifying *verification
}

type verification struct{ err error }

// decide evaluates one answer.
func decide(r *Request, p Policy, sent []byte, pr progress, a answer, rnd func() float64) (outcome, progress) {
	pr.sent++
	if pr.verifying != nil {
		return verify(r, p, sent, pr, a, rnd)
	}
	if a.err == nil && a.code < 300 {
		if err := plausible(a); err != nil {
			return outcome{action: fail, reason: "protocol", err: err}, doubt(r, sent, pr, a)
		}
		return succeed(a, pr, false), pr
	}
	status := statusOf(a)
	err, reason := failure(a, status)
	switch {
	case a.err == nil && a.code == http.StatusNotFound && saysAbsent(status):
		if r.Verb == VerbDelete && pr.inDoubt {
			return succeed(answer{code: a.code, header: a.header}, pr, true), pr
		}
		if r.NotFoundOK {
			return outcome{action: done, reason: reason}, pr
		}
	case a.err == nil && a.code == http.StatusConflict && r.Verb == VerbCreate:
		if generated(r, sent) {
			// The generated name was taken, so the server created no object.
			return again(p, pr, a, outcome{reason: reason, err: err}, rnd)
		}
		if (pr.inDoubt || pr.rerun && changes(r, sent)) && readable(r, sent) {
			pr.verifying = &verification{err: err}
			return outcome{action: retry, reason: reason, err: err, free: true}, pr
		}
	case a.err == nil && conflicts(r, a.code):
		if pr.inDoubt && a.code == http.StatusConflict && r.Verb != VerbDelete && r.Verb != VerbDeleteCollection {
			pr.verifying = &verification{err: err}
			return outcome{action: retry, reason: reason, err: err, free: true}, pr
		}
		return conflicted(r, p, pr, outcome{reason: reason, err: err}, rnd)
	case a.err == nil && a.code == http.StatusUnauthorized && !pr.reloaded:
		pr.reloaded = true
		return outcome{action: retry, reason: reason, err: err, free: true, reload: true}, pr
	case r.Verb.write() && tooLarge(a, err): // refused by the store, so certainly not executed
		reason := string(metav1.StatusReasonRequestEntityTooLarge)
		return outcome{action: fail, reason: reason, err: fmt.Errorf("%w: %w", ErrTooLarge, err)}, pr
	case r.Verb == VerbApply && unfit(a, err):
		reason := string(metav1.StatusReasonInvalid)
		return outcome{action: fail, reason: reason, err: fmt.Errorf("%w: %w", ErrSchema, err)}, pr
	case retryable(a):
		pr = doubt(r, sent, pr, a)
		if pr.inDoubt && !repeatable(r, sent) {
			break
		}
		return again(p, pr, a, outcome{reason: reason, err: err}, rnd)
	}
	return outcome{action: fail, reason: reason, err: err}, doubt(r, sent, pr, a)
}

func succeed(a answer, pr progress, recovered bool) outcome {
	return outcome{action: done, answer: &Answer{
		Raw: a.body, ContentType: mediaType(a.header.Get("Content-Type")), Code: a.code, Header: a.header, Tries: pr.sent,
		Recovered: recovered,
	}}
}

// again returns a retry after a back-off, or a failure if no retries are left.
func again(p Policy, pr progress, a answer, o outcome, rnd func() float64) (outcome, progress) {
	if pr.retries >= max(p.Retries, 0) {
		o.action = fail
		return o, pr
	}
	o.action = retry
	o.after = p.delay(pr.retries, rnd)
	if told, ok := retryAfter(a); ok && told > 0 {
		// Retry-After replaces the back-off. The jitter spreads clients that received the same value. A value of zero is
		// ignored: it comes from proxies and from differing clocks.
		o.after = told + time.Duration(rnd()*float64(p.Base))
	}
	pr.retries++
	return o, pr
}

// conflicted returns a call of OnConflict, or a failure if there is none or no runs of it are left.
func conflicted(r *Request, p Policy, pr progress, o outcome, rnd func() float64) (outcome, progress) {
	if r.OnConflict == nil || pr.conflicts >= max(p.Conflicts, 0) {
		o.action = fail
		return o, pr
	}
	o.action, o.after = conflict, p.delay(pr.conflicts, rnd)
	pr.conflicts++
	return o, pr
}

func (p Policy) delay(attempt int, rnd func() float64) time.Duration {
	return backoff.Policy{Base: p.Base, Cap: p.Cap, Factor: 2}.Delay(attempt, rnd)
}

// doubt records whether a write without a successful answer may have been executed.
func doubt(r *Request, sent []byte, pr progress, a answer) progress {
	if !changes(r, sent) {
		return pr
	}
	switch {
	case a.err != nil:
		pr.inDoubt = pr.inDoubt || !a.unsent
	case a.code >= 500 || a.code < 300:
		pr.inDoubt = true
	}
	return pr
}

func retryable(a answer) bool {
	if a.err != nil {
		return !isTLS(a.err)
	}
	switch a.code {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// tooLarge reports whether the server, or its etcd, refused the write because of its size. The server reports the
// refusal of etcd as an internal error.
func tooLarge(a answer, err error) bool {
	if a.err != nil || a.code < 500 {
		return a.err == nil && a.code == http.StatusRequestEntityTooLarge
	}
	return strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}

// unfit reports whether the server refused an apply because it does not match the schema of the kind. The server
// refuses it before it changes anything, and reports an internal error.
func unfit(a answer, err error) bool {
	return a.err == nil && a.code >= 500 && strings.Contains(err.Error(), "failed to create typed patch object")
}

// conflicts reports whether OnConflict can handle a refusal.
func conflicts(r *Request, code int) bool {
	if !r.Verb.write() || r.Verb == VerbCreate {
		return false
	}
	return code == http.StatusConflict ||
		code == http.StatusUnprocessableEntity && r.Verb == VerbPatch && r.PatchType == types.JSONPatchType
}

// saysAbsent distinguishes the 404 for an absent object from the 404 for an unknown path.
func saysAbsent(s *metav1.Status) bool { return s != nil && s.Reason == metav1.StatusReasonNotFound }

// plausible rejects a success that no API server sends, such as the login page of a proxy.
func plausible(a answer) error {
	switch t := mediaType(a.header.Get("Content-Type")); {
	case t != JSON && t != Protobuf && len(a.body) > 0:
		return &protocolError{what: "the answer has content type " + orString(t, "unknown")}
	case t == JSON && !json.Valid(a.body):
		return &protocolError{what: "the answer is not valid json"}
	}
	return nil
}

// statusOf decodes the Status of an error answer; nil if there is none.
func statusOf(a answer) *metav1.Status {
	if a.err != nil || a.code < 300 || len(a.body) == 0 {
		return nil
	}
	var s metav1.Status
	if decode(a.body, &s) != nil || s.Kind != "Status" {
		return nil
	}
	return &s
}

const maxMessage = 512 // of an answer without a Status: proxies send whole pages

// failure returns the error of a failed try and a one-word reason.
func failure(a answer, s *metav1.Status) (error, string) {
	if a.err != nil {
		return a.err, transportReason(a.err)
	}
	if s == nil {
		text := string(a.body)
		if len(text) > maxMessage {
			text = text[:maxMessage] + "…"
		}
		s = &metav1.Status{Status: metav1.StatusFailure, Code: int32(a.code), Reason: reasonOf(a.code), Message: text}
		if text == "" {
			s.Message = "the server answered " + http.StatusText(a.code)
		}
	}
	if s.Code == 0 {
		s.Code = int32(a.code)
	}
	return &apierrors.StatusError{ErrStatus: *s}, orString(string(s.Reason), http.StatusText(a.code))
}

// reasonOf returns the reason that an API server gives with a code, for an answer without a Status. It has none for
// 404: see saysAbsent.
func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout:
		return metav1.StatusReasonTimeout
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusGone:
		return metav1.StatusReasonGone
	}
	return metav1.StatusReasonUnknown
}

// retryAfter returns the delay that the server requests in the header or in the Status.
func retryAfter(a answer) (time.Duration, bool) {
	if a.err != nil {
		return 0, false
	}
	if d, ok := backoff.RetryAfter(a.header, a.at.Add(a.took)); ok {
		return d, true
	}
	if s := statusOf(a); s != nil && s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		return min(time.Duration(s.Details.RetryAfterSeconds)*time.Second, backoff.MaxRetryAfter), true
	}
	return 0, false
}
