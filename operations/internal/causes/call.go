package causes

import (
	"cmp"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// Due returns the current calls of an operation, as record.Due does.
func Due(op *v1alpha1.Operation, known Known) []record.Target {
	return record.Due(op, func(t record.Target) bool {
		if known.Began != nil {
			return !known.Began(t).IsZero()
		}
		return record.UnderWay(op, t)
	})
}

// DueSince returns since when a call is due, at most now.
func DueSince(op *v1alpha1.Operation, t record.Target, now time.Time) time.Time {
	e := record.Entry(&op.Status, t)
	switch {
	case e == nil || e.StartedAt == nil:
		return LastStep(op)
	case e.NextAttemptAt != nil && !e.NextAttemptAt.After(now):
		return e.NextAttemptAt.Time
	}
	return e.StartedAt.Time
}

// call returns the cause for which a call waits, as far as its record shows. It returns false for a call that has not
// begun or has ended.
func call(op *v1alpha1.Operation, t record.Target, known Known, now time.Time) (told, bool) {
	e := record.Entry(&op.Status, t)
	if e == nil || e.State.Terminal() || e.AttemptID == "" {
		return told{}, false
	}
	c := told{Cause: why.Cause{Type: why.Parked, Evidence: evidence(op, e, t)}, wait: wait{failed: hasFailed(e)}}
	if e.StartedAt != nil {
		c.Since = e.StartedAt.Time
	}
	name := title(t)
	var next time.Time
	if e.NextAttemptAt != nil {
		next = e.NextAttemptAt.Time
	}
	if known.Next != nil {
		if later := known.Next(t); later.After(next) {
			next = later
		}
	}
	began := time.Time{}
	if known.Began != nil {
		began = known.Began(t)
	}
	switch {
	case !began.IsZero():
		underWay(&c, e, name, began, known.try(t.ID))
	case e.AwaitsCallback():
		c.Message, c.Until = "it waits for the callback of "+name, expiry(op, t, e, known)
		c.Advice = "Check the job at the receiver. The receiver has to report the result to the callback URL that it was " +
			"sent."
		c.Evidence["waitsFor"] = "callback"
		if c.bound = c.Until; c.bound.IsZero() {
			c.bound = c.Since.Add(v1alpha1.DefaultWebhookTimeout)
		}
		c.bound = c.bound.Add(soon)
		return c, true
	case e.WebhookPollURL != "":
		c.Message, c.Until = "it waits for "+name+", which has accepted the call, and polls it", next
		c.Advice = "Check the job at the receiver."
		if strings.HasPrefix(e.Message, goesOn) {
			c.Message = "it waits for " + name + ", which reports that the job is in progress, and polls it again"
		}
		if c.failed {
			c.Type, c.Message = why.BackOff, "a poll of "+name+" failed; the next one is at "+stamp(next)
			c.Advice = remedy(e)
			switch field := misfitting(e); {
			case field != "":
				c.Message = field + " of " + name + " cannot be evaluated on the answer to the last poll; the next one is at " +
					stamp(next)
			case strings.HasPrefix(e.Message, unjudged):
				c.Message = name + " is polled again at " + stamp(next) + ": " + e.Message
			}
			if e.RetryAfter {
				c.Type, c.Message = why.RetryAfter, name+" asked to be polled again at "+stamp(next)
			}
		}
		c.Evidence["waitsFor"] = "poll"
	case e.NextAttemptAt != nil && e.RetryAfter:
		c.Type, c.Until = why.RetryAfter, next
		c.Message = name + " asked to be called again at " + stamp(next)
		c.Advice = "Wait, or check at the receiver why it accepts no calls."
	case e.NextAttemptAt != nil:
		c.Type, c.Until = why.BackOff, next
		c.Message = name + " failed and is called again at " + stamp(next)
		c.Advice = remedy(e)
		if f, ok := ForbiddenText(e.Message); ok && strings.HasPrefix(e.Message, credentials) {
			maps.Copy(f.Evidence, c.Evidence)
			f.Since, f.Until = c.Since, c.Until
			return told{f, c.wait}, true
		}
	case known.Began != nil:
		c.Message, c.Since = "its call of "+name+" is due", DueSince(op, t, now)
		c.bound = c.Since.Add(soon)
	default:
		underWay(&c, e, name, c.Since, known.try(t.ID))
	}
	if e.WebhookPollURL != "" {
		c.Evidence["pollURL"] = e.WebhookPollURL
		if e.LastPollTimestamp != nil {
			c.Evidence["lastPoll"] = stamp(e.LastPollTimestamp.Time)
		}
	}
	if c.failed && t.Purpose == record.Compensate {
		c.Message = firstFailure(op) + "; then " + c.Message
	}
	edited(&c.Cause, e, known)
	end := expiry(op, t, e, known)
	if !c.Until.IsZero() && !end.IsZero() && end.Before(c.Until) {
		c.Message += "; its timeout expires before that, at " + stamp(end)
		c.Until = end
		c.Advice += " Raise the timeout of the Webhook or of the operation if that duration is expected."
	}
	if c.bound.IsZero() { // a declared wait, plus a moment to start the next step
		c.bound = c.Until.Add(soon)
		c.failed = c.failed && !e.RetryAfter
	}
	if last := end.Add(soon); !end.IsZero() && last.Before(c.bound) {
		c.bound = last
	}
	return c, true
}

// edited adds to a cause that the Webhook was edited after the recorded try.
func edited(c *why.Cause, e *v1alpha1.WebhookCallStatus, known Known) {
	if known.Generation == nil || e.WebhookGeneration == 0 {
		return
	}
	now := known.Generation(e.WebhookID)
	if now == 0 || now == e.WebhookGeneration {
		return
	}
	was, is := strconv.FormatInt(e.WebhookGeneration, 10), strconv.FormatInt(now, 10)
	c.Evidence["generation"], c.Evidence["newGeneration"] = was, is
	c.Message += "; the Webhook was edited since (generation " + was + " is " + is + " now): "
	switch {
	case e.WebhookPollURL != "":
		c.Message += "the recorded poll URL stays; polls use everything else of the new generation"
	case e.NextAttemptAt != nil:
		c.Message += "the next attempt uses the new generation"
	default:
		c.Message += "the current attempt uses the old generation, and the next one uses the new one"
	}
}

// underWay describes a try or poll that has begun and has not returned.
func underWay(c *told, e *v1alpha1.WebhookCallStatus, name string, began time.Time, most time.Duration) {
	c.bound = began.Add(most + soon)
	switch {
	case e.WebhookPollURL != "" && c.failed:
		c.Type, c.Message, c.Advice = why.BackOff, "it polls "+name+" again, because the last poll failed", remedy(e)
	case e.WebhookPollURL != "":
		c.Message, c.Since = "it polls "+name, began
	case c.failed:
		c.Type, c.Message, c.Advice = why.BackOff, "it calls "+name+" again, because the last attempt failed", remedy(e)
	default:
		c.Message, c.Since = "it calls "+name, began
	}
}

// try returns the maximum duration of a try of a Webhook.
func (k Known) try(hook string) time.Duration {
	if k.Try != nil {
		if most := k.Try(hook); most > 0 {
			return most
		}
	}
	return longest
}

// LastError returns the error of the last try or poll of an unfinished call, even while the next one runs. It returns
// "" if there was none, or if the call has made progress since.
func LastError(e *v1alpha1.WebhookCallStatus) string {
	if !hasFailed(e) {
		return ""
	}
	return e.Message
}

// hasFailed reports whether the last try or poll of an unfinished call has failed.
func hasFailed(e *v1alpha1.WebhookCallStatus) bool {
	switch {
	case e.State.Terminal(), e.AwaitsCallback():
		return false
	case e.WebhookPollURL != "":
		return pollFailed(e)
	}
	return e.Message != "" || e.NextAttemptAt != nil || e.RetriesCount > 0
}

// pollFailed reports whether the last poll returned no progress of the receiver.
func pollFailed(e *v1alpha1.WebhookCallStatus) bool {
	return e.LastPollTimestamp != nil && e.Message != "" && !strings.HasPrefix(e.Message, goesOn)
}

// Prefixes of messages of package webhook about polls: for an answer that confirms progress, and for an answer that
// fits no rule.
const (
	goesOn   = "in progress"
	unjudged = "neither poll.succeeded nor poll.failed holds"
)

// misfit matches the message of package webhook about an expression that cannot be evaluated on an answer.
var misfit = regexp.MustCompile(`^(?:answered \d+: )?(spec\.[\w.]+): cannot evaluate expression on this answer: `)

// misfitting returns the field of the Webhook whose expression could not be evaluated on the last answer, or "".
func misfitting(e *v1alpha1.WebhookCallStatus) string {
	if said := misfit.FindStringSubmatch(e.Message); said != nil {
		return said[1]
	}
	return ""
}

// remedies lists advice for a missing answer, by a part of the error.
var remedies = []struct{ part, advice string }{
	{"x509:", "The certificate of the receiver is not trusted. Set spec.tls.caSecretRef of the Webhook to its CA and " +
		"spec.tls.serverName to its name, or renew the certificate."},
	{"tls:", "The TLS handshake fails. Check the scheme and port of the URL, and spec.tls and spec.auth.mtls of the " +
		"Webhook."},
	{"lookup ", "The host name does not resolve. Check the URL of the Webhook and the DNS of the controller."},
	{"connection refused", "Nothing listens at the address. Check the URL of the Webhook, and that the receiver is " +
		"running."},
	{"no route to host", "The address is unreachable. Check the URL of the Webhook and the network policies."},
	{"unreachable", "The address is unreachable. Check the URL of the Webhook and the network policies."},
	{"HTTP response to HTTPS", "The receiver does not serve TLS on that port. Check the scheme and port of the URL of " +
		"the Webhook."},
	{"malformed HTTP", "The server at that address does not speak HTTP. Check the scheme and port of the URL of the " +
		"Webhook."},
	{"EOF", "The receiver closes the connection without a response. Check its log, and the proxies in front of it."},
	{"connection reset", "The receiver closes the connection without a response. Check its log, and the proxies in " +
		"front of it."},
	{"no answer within", slow},
	{"deadline exceeded", slow},
	{"timeout", slow},
}

const slow = "Check that the receiver is reachable and answers within requestTimeout of the Webhook."

// byStatus returns advice for a status, or "" if the answer itself explains it.
func byStatus(code int32) string {
	switch {
	case code == 401, code == 403, code == 407:
		return "The receiver rejects the caller. Check spec.auth and spec.signing of the Webhook, and the Secrets they name."
	case code == 404, code == 405, code == 410:
		return "The receiver does not serve that URL or method. Check the URL and the method of the Webhook."
	case code >= 300 && code < 400:
		return "Redirects are not followed. Set the URL of the Webhook to the target of the redirect."
	case code == 413:
		return "The request is too large for the receiver. Check the body of the Webhook, and the proxies in front of the " +
			"receiver."
	}
	return ""
}

// remedy returns advice for a failed try.
func remedy(e *v1alpha1.WebhookCallStatus) string {
	field := misfitting(e)
	switch {
	case field != "":
		return "Correct " + field + " of Webhook " + e.WebhookID +
			": it does not fit the response of the receiver. Test with has() " +
			"whether a field exists."
	case strings.HasPrefix(e.Message, unjudged):
		return "Check the response of the poll URL. If the response is intended, correct spec.poll.succeeded and " +
			"spec.poll.failed of Webhook " + e.WebhookID + "."
	case e.WebhookPollURL != "" && (e.LastStatusCode == 404 || e.LastStatusCode == 410):
		return "The receiver no longer knows the job at the URL that it returned. Check the job at the receiver."
	case e.LastStatusCode != 0: // the message comes from the receiver
		return cmp.Or(byStatus(e.LastStatusCode), "Check at the receiver why it returns an unexpected response.")
	}
	if strings.Contains(e.Message, "because it is being terminated") {
		return "The namespace is being deleted, so nothing can be created in it. Cancel the operation, or wait for the " +
			"deletion."
	}
	if field, _, ok := strings.Cut(e.Message, ": "); ok && strings.HasPrefix(field, "spec.") {
		return "The call needs the credentials that " + field +
			" of the Webhook names. Correct the Secret, or the server that issues the token."
	}
	for _, r := range remedies {
		if strings.Contains(e.Message, r.part) {
			return r.advice
		}
	}
	return "Check that the receiver is running and reachable from the controller."
}

// credentials is the prefix of messages about a service account token. These messages contain no text of the receiver.
const credentials = "spec.auth.serviceAccountToken: "

func evidence(op *v1alpha1.Operation, e *v1alpha1.WebhookCallStatus, t record.Target) map[string]string {
	m := map[string]string{"webhook": t.ID, "attempts": strconv.Itoa(int(e.RetriesCount) + 1)}
	if t.Purpose != record.Main {
		m["purpose"] = string(t.Purpose)
	}
	if e.LastStatusCode != 0 {
		m["status"] = strconv.Itoa(int(e.LastStatusCode))
	}
	if reason, failed := record.Failure(op); failed && t.Purpose != record.Main {
		m["after"] = reason
	}
	switch {
	case e.Message == "":
	case !e.State.Terminal() && !hasFailed(e):
		m["answer"] = e.Message
	default:
		m["error"] = e.Message
	}
	if field := misfitting(e); field != "" {
		m["field"] = field
	}
	return m
}

// title returns the name of a call for use in a sentence.
func title(t record.Target) string {
	switch t.Purpose {
	case record.Compensate:
		return "webhook " + t.ID + " (compensation)"
	case record.Notify:
		return "webhook " + t.ID + " (notification)"
	}
	return "webhook " + t.ID
}

// expiry returns when a call times out.
func expiry(op *v1alpha1.Operation, t record.Target, e *v1alpha1.WebhookCallStatus, known Known) time.Time {
	var at time.Time
	if known.Timeout != nil && e.StartedAt != nil {
		if timeout := known.Timeout(t.ID); timeout > 0 {
			at = e.StartedAt.Add(timeout)
		}
	}
	if deadline := op.Deadline(); t.Purpose == record.Main && (at.IsZero() || deadline.Before(at)) {
		return deadline
	}
	return at
}
