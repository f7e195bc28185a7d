package webhook

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// Compiled is a Definition that is ready for use. It is immutable and safe for concurrent use.
type Compiled struct {
	def      Definition // with defaults
	warnings []string
	request  *requestTemplate
	rules    *rules
}

// Compile checks a definition and compiles its templates and expressions. The error joins a *FieldError for each
// invalid field, named as in the Webhook resource.
func Compile(d Definition) (*Compiled, error) {
	w := &Compiled{def: d.withDefaults()}
	var errs [4]error
	errs[0] = checkValues(&w.def)
	w.request, w.warnings, errs[1] = compileRequest(w.def.Request, w.def.Auth != nil)
	errs[2] = checkAuth(w.def.Auth)
	w.rules, errs[3] = compileRules(w.def.Mode, w.def.Response, w.def.Poll)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return w, nil
}

// Definition returns the definition with the defaults filled in.
func (w *Compiled) Definition() Definition { return w.def }

// Warnings returns remarks for the author of the definition: settings that are valid but probably not intended.
func (w *Compiled) Warnings() []string { return slices.Clone(w.warnings) }

// NextTry returns the delay after a Retry. tries is the number of tries so far, at least 1. The delay is exponential
// with full jitter, or that of Retry-After. NextTry returns false when the tries are used up. rnd is for example
// rand.Float64; see backoff.Policy.
func (w *Compiled) NextTry(tries int, r Result, rnd func() float64) (time.Duration, bool) {
	if tries >= w.def.Retry.MaxAttempts {
		return 0, false
	}
	policy := backoff.Policy{Base: w.def.Retry.InitialInterval, Cap: w.def.Retry.MaxInterval}
	if r.RetryAfter >= 0 {
		return max(r.RetryAfter, policy.Ceiling(0)/10, MinInterval), true
	}
	return max(policy.Delay(tries-1, rnd), MinInterval), true
}

// NextPoll returns the delay after an Accepted or Pending: the poll interval, or that of Retry-After.
func (w *Compiled) NextPoll(r Result) time.Duration {
	if r.RetryAfter >= 0 {
		// Retry-After: 0 must not cause a busy loop
		return max(r.RetryAfter, min(w.def.Poll.Interval, time.Second), MinInterval)
	}
	return w.def.Poll.Interval
}

// checkValues checks the fields that are neither templates nor expressions nor credentials.
func checkValues(d *Definition) error {
	var errs []error
	switch d.Mode {
	case Sync, Async, AsyncCallback:
	default:
		errs = append(errs, fieldError("spec.mode", "cannot be %q: must be Sync, Async or AsyncCallback", d.Mode))
	}
	for _, each := range []struct {
		field string
		value time.Duration
	}{
		{"spec.requestTimeout", d.RequestTimeout},
		{"spec.timeout", d.Timeout},
		{"spec.poll.interval", d.Poll.Interval},
		{"spec.retry.initialInterval", d.Retry.InitialInterval},
		{"spec.retry.maxInterval", d.Retry.MaxInterval},
		{"spec.breaker.openFor", d.Breaker.OpenFor},
	} {
		if each.value < 0 {
			errs = append(errs, fieldError(each.field, "cannot be %v: must be above zero", each.value))
		}
	}
	for _, each := range []struct {
		field string
		value float64
	}{
		{"spec.retry.maxAttempts", float64(d.Retry.MaxAttempts)},
		{"spec.breaker.failures", float64(d.Breaker.Failures)},
		{"spec.concurrency", float64(d.Concurrency)},
		{"spec.ratePerSecond", d.RatePerSecond},
	} {
		if !(each.value >= 0) || math.IsInf(each.value, 0) {
			errs = append(errs, fieldError(each.field, "cannot be %v: must not be negative", each.value))
		}
	}
	if !httpguts.ValidHeaderFieldName(d.CorrelationHeader) || isForbidden(d.CorrelationHeader) ||
		isProtocol(d.CorrelationHeader) ||
		strings.EqualFold(d.CorrelationHeader, "Authorization") {
		errs = append(errs, fieldError("spec.correlationHeader",
			"cannot be %q: not the name of a header, or one with a meaning of its own", d.CorrelationHeader))
	}
	return errors.Join(errs...)
}

func checkAuth(a *Auth) error {
	if a == nil {
		return nil
	}
	kinds := 0
	for _, given := range []bool{
		a.Basic != "", a.Bearer != "", a.MTLS != "", a.OAuth2 != nil,
		a.ServiceAccountToken != nil,
	} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return fieldError("spec.auth",
			"cannot be used: exactly one of basic, bearer, mtls, oauth2, serviceAccountToken must be given, not %d", kinds)
	}
	if a.OAuth2 != nil {
		if a.OAuth2.Secret == "" {
			return fieldError("spec.auth.oauth2.secretRef", "cannot be empty")
		}
		if _, err := parseTarget(a.OAuth2.TokenURL); err != nil {
			return &FieldError{Field: "spec.auth.oauth2.tokenURL", Err: err}
		}
	}
	if t := a.ServiceAccountToken; t != nil && (t.Audience == "" || t.ServiceAccountName == "") {
		return fieldError("spec.auth.serviceAccountToken", "cannot be used: audience and serviceAccountName must be given")
	}
	return nil
}
