package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"cel.dev/cel-go/cel"
)

// rules judge the answers of an endpoint. They are immutable.
type rules struct {
	mode Mode

	success, gone, retry, location, responseError *expr // nil: the default
	pollSucceeded, pollFailed, pollError          *expr

	origins []string // of the URLs in constants of location, which the author trusts
}

func compileRules(mode Mode, response Response, poll Poll) (*rules, error) {
	r := &rules{mode: mode}
	var errs []error
	for _, rule := range []struct {
		into   **expr
		field  string
		source string
		want   *cel.Type
	}{
		{&r.success, "spec.response.success", response.Success, cel.BoolType},
		{&r.gone, "spec.response.gone", response.Gone, cel.BoolType},
		{&r.retry, "spec.response.retry", response.Retry, cel.BoolType},
		{&r.location, "spec.response.location", response.Location, cel.StringType},
		{&r.responseError, "spec.response.error", response.Error, cel.StringType},
		{&r.pollSucceeded, "spec.poll.succeeded", poll.Succeeded, cel.BoolType},
		{&r.pollFailed, "spec.poll.failed", poll.Failed, cel.BoolType},
		{&r.pollError, "spec.poll.error", poll.Error, cel.StringType},
	} {
		if strings.TrimSpace(rule.source) == "" {
			continue
		}
		compiled, err := compileExpr(rule.field, rule.source, rule.want)
		if err != nil {
			errs = append(errs, err)
		}
		*rule.into = compiled
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if r.location != nil {
		r.origins = r.location.origins()
	}
	return r, nil
}

// trustedOrigins returns the origins, besides that of the request, that may get credentials.
func (r *rules) trustedOrigins() []string { return r.origins }

// judgeCall judges the answer of a call. from is the URL of the request.
func (r *rules) judgeCall(a *answer, from *url.URL) Result {
	res := Result{StatusCode: a.status, RetryAfter: a.after, Truncated: a.truncated}
	if a.status == 0 {
		res.Err = a.err
		return r.judgeSilence(a, res)
	}
	gone, err := r.isGone(a)
	if err != nil {
		return res.fail(err)
	}
	res.Gone = gone
	success, err := r.isSuccess(a)
	if err != nil {
		return res.fail(err)
	}
	retry, err := r.wantsRetry(a)
	if err != nil && !success {
		return res.fail(err)
	}
	errText := r.errorText(r.responseError, a)
	switch {
	case retry && (!success || r.retry != nil): // the default rule does not override success
		res.Verdict, res.Message = Retry, a.describe(errText)
	case !success:
		res.Verdict, res.Message = Failed, a.describe(errText)
	case errText != "":
		res.Verdict, res.Message = Failed, errText
	case r.mode == Async:
		return r.accept(a, res, from)
	case r.mode == AsyncCallback:
		res.Verdict = Accepted
	default:
		res.Verdict = Succeeded
	}
	return res
}

func (r *rules) judgeSilence(a *answer, res Result) Result {
	retry, err := r.wantsRetry(a)
	if err != nil {
		return res.fail(err)
	}
	res.Verdict, res.Message = Failed, a.describe("")
	if retry {
		res.Verdict = Retry
	}
	return res
}

func (r *rules) accept(a *answer, res Result, from *url.URL) Result {
	location := a.headers["location"]
	if r.location != nil {
		var err error
		if location, err = r.location.text(a); err != nil {
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
func (r *rules) judgePoll(a *answer) Result {
	res := Result{Verdict: Pending, StatusCode: a.status, RetryAfter: a.after, Truncated: a.truncated, Err: a.err}
	if busy(a.status) { // it describes the server, not the work
		res.Message = a.describe("")
		return res
	}
	failed, errFailed := r.pollSays(r.pollFailed, a, "FAILED", "ERROR")
	succeeded, errSucceeded := r.pollSays(r.pollSucceeded, a, "SUCCEEDED", "SUCCESS", "DONE")
	errText := ""
	if failed || succeeded {
		errText = r.errorText(r.pollError, a)
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
		res.Message = r.progress(a)
	}
	return res
}

func (r *rules) isGone(a *answer) (bool, error) {
	if r.gone != nil {
		return r.gone.bool(a)
	}
	return a.status == 404 || a.status == 410, nil
}

func (r *rules) isSuccess(a *answer) (bool, error) {
	if r.success != nil {
		return r.success.bool(a)
	}
	return a.is2xx(), nil
}

func (r *rules) wantsRetry(a *answer) (bool, error) {
	if r.retry != nil {
		return r.retry.bool(a)
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

func (r *rules) pollSays(rule *expr, a *answer, words ...string) (bool, error) {
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
func (r *rules) errorText(rule *expr, a *answer) string {
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
func (r *rules) progress(a *answer) string {
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
	case r.pollSucceeded != nil && a.start != "" && (!isText || !a.isHTML()):
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
