package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// judgeCall judges the answer of a call. from is the URL of the request.
func (w *Compiled) judgeCall(a *answer, from *url.URL) Result {
	res := Result{StatusCode: a.status, RetryAfter: a.after, Truncated: a.truncated}
	if a.status == 0 {
		res.Err = a.err
		return w.judgeSilence(a, res)
	}
	gone, err := w.isGone(a)
	if err != nil {
		return res.fail(err)
	}
	res.Gone = gone
	success, err := w.isSuccess(a)
	if err != nil {
		return res.fail(err)
	}
	retry, err := w.wantsRetry(a)
	if err != nil && !success {
		return res.fail(err)
	}
	errText := w.errorText(w.responseError, a)
	switch {
	case retry && (!success || w.retry != nil): // the default rule does not override success
		res.Verdict, res.Message = Retry, a.describe(errText)
	case !success:
		res.Verdict, res.Message = Failed, a.describe(errText)
	case errText != "":
		res.Verdict, res.Message = Failed, errText
	case w.def.Mode == Async:
		return w.accept(a, res, from)
	case w.def.Mode == AsyncCallback:
		res.Verdict = Accepted
	default:
		res.Verdict = Succeeded
	}
	return res
}

func (w *Compiled) judgeSilence(a *answer, res Result) Result {
	retry, err := w.wantsRetry(a)
	if err != nil {
		return res.fail(err)
	}
	res.Verdict, res.Message = Failed, a.describe("")
	if retry {
		res.Verdict = Retry
	}
	return res
}

func (w *Compiled) accept(a *answer, res Result, from *url.URL) Result {
	location := a.headers["location"]
	if w.location != nil {
		var err error
		if location, err = w.location.text(a); err != nil {
			return res.fail(err)
		}
	}
	if location == "" {
		res.Verdict, res.Message = Failed, fmt.Sprintf("answered %d without a URL to poll", a.status)
		return res
	}
	absolute, err := resolveLocation(location, from)
	if err != nil {
		return res.fail(err)
	}
	res.Verdict, res.Location = Accepted, absolute
	return res
}

// judgePoll judges the answer of a poll. An unusable answer is not final, because the receiver's work continues
// regardless.
func (w *Compiled) judgePoll(a *answer) Result {
	res := Result{Verdict: Pending, StatusCode: a.status, RetryAfter: a.after, Truncated: a.truncated, Err: a.err}
	if busy(a.status) { // it describes the server, not the work
		res.Message = a.describe("")
		return res
	}
	failed, errFailed := w.pollSays(w.pollFailed, a, "FAILED", "ERROR")
	succeeded, errSucceeded := w.pollSays(w.pollSucceeded, a, "SUCCEEDED", "SUCCESS", "DONE")
	errText := ""
	if failed || succeeded {
		errText = w.errorText(w.pollError, a)
	}
	switch {
	case failed:
		res.Verdict, res.Message = Failed, a.describe(errText)
	case succeeded && errText != "":
		res.Verdict, res.Message = Failed, errText
	case succeeded:
		res.Verdict = Succeeded
	case errSucceeded != nil:
		res.Message = errSucceeded.Error()
	case errFailed != nil:
		res.Message = errFailed.Error()
	default:
		res.Message = w.progress(a)
	}
	return res
}

func (w *Compiled) isGone(a *answer) (bool, error) {
	if w.gone != nil {
		return w.gone.bool(a)
	}
	return a.status == 404 || a.status == 410, nil
}

func (w *Compiled) isSuccess(a *answer) (bool, error) {
	if w.success != nil {
		return w.success.bool(a)
	}
	return a.is2xx(), nil
}

func (w *Compiled) wantsRetry(a *answer) (bool, error) {
	if w.retry != nil {
		return w.retry.bool(a)
	}
	return busy(a.status), nil
}

// busy reports whether the status asks for another try. That includes no answer.
func busy(status int) bool {
	switch status {
	case 0, 408, 425, 429:
		return true
	}
	return status >= 500
}

func (w *Compiled) pollSays(rule *expr, a *answer, words ...string) (bool, error) {
	if rule != nil {
		return rule.bool(a)
	}
	status, _ := get(a.body, "status").(string)
	for _, word := range words {
		if strings.EqualFold(status, word) {
			return true, nil
		}
	}
	return false, nil
}

// errorText returns the error text, or "" if the rule fails: most answers contain no error.
func (w *Compiled) errorText(rule *expr, a *answer) string {
	if rule == nil {
		return ""
	}
	text, err := rule.text(a)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

func (r Result) fail(err error) Result {
	r.Verdict, r.Message, r.Err = Failed, err.Error(), err
	return r
}

// describe returns the message for an answer that is not a success.
func (a *answer) describe(errText string) string {
	if a.status == 0 {
		if a.err == nil {
			return errNoAnswer.Error()
		}
		return a.err.Error()
	}
	if errText != "" {
		return errText
	}
	if text := a.complaint(); text != "" {
		return fmt.Sprintf("answered %d: %s", a.status, text)
	}
	if status, ok := get(a.body, "status").(string); ok {
		return fmt.Sprintf("answered %d: status %q", a.status, status)
	}
	return fmt.Sprintf("answered %d", a.status)
}

// complaint searches the usual places of error texts: RFC 9457, OAuth, GraphQL, Google and Kubernetes errors, plain
// text.
func (a *answer) complaint() string {
	switch body := a.body.(type) {
	case string:
		if a.isHTML() {
			return ""
		}
		return body[:min(len(body), MaxMessage)]
	case map[string]any:
		for _, path := range [][]string{
			{"error"},
			{"error", "message"},
			{"detail"},
			{"error_description"},
			{"message"},
			{"title"},
		} {
			if s, ok := get(body, path...).(string); ok && s != "" {
				return s
			}
		}
	}
	return ""
}

// progress returns the message of a poll for which neither rule holds. It starts with "in progress" only if the answer
// confirms that: by a status in its body, by 202, or by a body for an explicit poll.succeeded.
func (w *Compiled) progress(a *answer) string {
	status := get(a.body, "status")
	_, isText := a.body.(string)
	switch {
	case !a.is2xx():
		return a.describe("")
	case status != nil:
		if data, err := json.Marshal(status); err == nil {
			return "in progress: status " + string(data)
		}
	case a.status == http.StatusAccepted && a.start == "":
		return "in progress: answered 202"
	case w.pollSucceeded != nil && a.start != "" && (!isText || !a.isHTML()):
		return "in progress"
	}
	return "neither poll.succeeded nor poll.failed holds: " + a.excerpt()
}

func (a *answer) isHTML() bool {
	return strings.Contains(strings.ToLower(a.headers["content-type"]), "html")
}

// excerpt describes an answer that fits no rule: status, content type and the first characters.
func (a *answer) excerpt() string {
	text := fmt.Sprintf("answered %d", a.status)
	if kind := a.headers["content-type"]; kind != "" {
		text += " (" + kind[:min(len(kind), maxKind)] + ")"
	}
	if a.start == "" {
		return text + " without a body"
	}
	return text + ": " + a.start
}
