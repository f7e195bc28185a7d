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

// action is what comes after a try.
type action uint8

const (
	done     action = iota // the call has its answer (which may be nil)
	retry                  // once more, after a while
	conflict               // ask OnConflict for the next request, after a while
	fail                   // the call has its error
)

// outcome is the decision after one try. It is all that Do and Step see of a try.
type outcome struct {
	action action
	after  time.Duration
	reason string  // one word for logs and metrics
	answer *Answer // with done; nil for an absence that is fine
	err    error   // of this try, unless done
	free   bool    // the retry needs no token of the budget: it is a part of the same try
	reload bool    // the credentials must be made new before the retry
}

// progress is what the tries so far have brought. decide is a function of it, the request, the policy and the newest
// answer; it returns the next one and touches nothing.
type progress struct {
	sent      int  // requests sent
	retries   int  // of Policy.Retries
	conflicts int  // of Policy.Conflicts
	reloaded  bool // credentials were reloaded
	inDoubt   bool // an earlier try of the present request may have been executed
	rerun     bool // so may one of a process that has crashed, of which nothing is known

	// verifying holds the refusal (409) that the next try, a read of the live object, is to settle.
	verifying *verification
}

type verification struct{ err error }

// decide judges one answer.
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
			// The server drew a name that was taken; nothing was made.
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
	case r.Verb.write() && tooLarge(a, err): // the store has refused it, so it has certainly not been executed
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

// again is a retry after back-off, as long as there are some left.
func again(p Policy, pr progress, a answer, o outcome, rnd func() float64) (outcome, progress) {
	if pr.retries >= max(p.Retries, 0) {
		o.action = fail
		return o, pr
	}
	o.action = retry
	o.after = p.delay(pr.retries, rnd)
	if told, ok := retryAfter(a); ok && told > 0 {
		// The server's word wins; a little jitter on top keeps those who were told the same from coming together. "At
		// once" is no word to take: it comes from proxies, and from clocks that differ.
		o.after = told + time.Duration(rnd()*float64(p.Base))
	}
	pr.retries++
	return o, pr
}

// conflicted asks OnConflict for the next request, where there is one and runs of it are left.
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

// doubt notes that a write may have been executed although it has no good answer.
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

// tooLarge tells the refusal of a server, or of the etcd behind it, of which a server makes an internal error.
func tooLarge(a answer, err error) bool {
	if a.err != nil || a.code < 500 {
		return a.err == nil && a.code == http.StatusRequestEntityTooLarge
	}
	return strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}

// unfit tells the refusal of an apply of what the schema of the kind does not know, or in another form. It comes before
// anything is done, and a server makes an internal error of it.
func unfit(a answer, err error) bool {
	return a.err == nil && a.code >= 500 && strings.Contains(err.Error(), "failed to create typed patch object")
}

// conflicts says whether a refusal is one that OnConflict can mend.
func conflicts(r *Request, code int) bool {
	if !r.Verb.write() || r.Verb == VerbCreate {
		return false
	}
	return code == http.StatusConflict ||
		code == http.StatusUnprocessableEntity && r.Verb == VerbPatch && r.PatchType == types.JSONPatchType
}

// saysAbsent tells the server's "there is no such object" from the 404 of a path that nobody serves.
func saysAbsent(s *metav1.Status) bool { return s != nil && s.Reason == metav1.StatusReasonNotFound }

// plausible refuses a success that no API server sends, such as the login page of a proxy.
func plausible(a answer) error {
	switch t := mediaType(a.header.Get("Content-Type")); {
	case t != JSON && t != Protobuf && len(a.body) > 0:
		return &protocolError{what: "the answer has content type " + orString(t, "unknown")}
	case t == JSON && !json.Valid(a.body):
		return &protocolError{what: "the answer is not valid json"}
	}
	return nil
}

// statusOf decodes the Status of an error answer; nil when there is none.
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

const maxMessage = 512 // of a text that is not a Status: proxies answer with whole pages

// failure words what a try met: its error and one word for it.
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

// reasonOf gives an answer without a Status the reason that an API server gives with that code. Not for 404: see
// saysAbsent.
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

// retryAfter is the server's wish, from the header or from the Status.
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
