package webhook

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"golang.org/x/net/http/httpguts"
)

// Compiled is a Definition that is ready for use. It is immutable and safe for concurrent use.
type Compiled struct {
	def      Definition
	warnings []string

	method, url *text
	headers     []headerText
	body        *text // nil: none
	defaultBody bool
	dynamic     bool // a template needs data

	success, gone, retry, location, responseError *expr // nil: the default
	pollSucceeded, pollFailed, pollError          *expr

	origins []string // from constants in response.location
}

type headerText struct {
	name string
	text *text
}

// Compile checks a definition and compiles its templates and expressions. The error joins a *FieldError for each
// invalid field, named as in the Webhook resource.
func Compile(d Definition) (*Compiled, error) {
	w := &Compiled{def: d.withDefaults()}
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(w.checkNumbers())
	add(w.compileRequest())
	add(w.checkAuth())
	for _, rule := range []struct {
		into   **expr
		field  string
		source string
		want   *cel.Type
	}{
		{&w.success, "spec.response.success", d.Response.Success, cel.BoolType},
		{&w.gone, "spec.response.gone", d.Response.Gone, cel.BoolType},
		{&w.retry, "spec.response.retry", d.Response.Retry, cel.BoolType},
		{&w.location, "spec.response.location", d.Response.Location, cel.StringType},
		{&w.responseError, "spec.response.error", d.Response.Error, cel.StringType},
		{&w.pollSucceeded, "spec.poll.succeeded", d.Poll.Succeeded, cel.BoolType},
		{&w.pollFailed, "spec.poll.failed", d.Poll.Failed, cel.BoolType},
		{&w.pollError, "spec.poll.error", d.Poll.Error, cel.StringType},
	} {
		if strings.TrimSpace(rule.source) == "" {
			continue
		}
		compiled, err := compileExpr(rule.field, rule.source, rule.want)
		add(err)
		*rule.into = compiled
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if w.location != nil {
		w.origins = w.location.origins()
	}
	return w, nil
}

// Definition returns the definition with the defaults filled in.
func (w *Compiled) Definition() Definition { return w.def }

// Warnings returns remarks for the author of the definition: settings that are valid but probably not intended.
func (w *Compiled) Warnings() []string { return slices.Clone(w.warnings) }

func (w *Compiled) checkNumbers() error {
	d := w.def
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

func (w *Compiled) compileRequest() error {
	var errs []error
	parse := func(field, source string, kind kind, limit int) *text {
		t, err := parseTemplate(source, kind, limit)
		if err != nil {
			errs = append(errs, &FieldError{Field: field, Err: err})
		}
		w.dynamic = w.dynamic || t != nil && t.static == nil
		return t
	}
	r := w.def.Request
	w.method = parse("spec.request.method", r.Method, kindPlain, 64)
	if w.method != nil && w.method.static != nil {
		if _, err := parseMethod(*w.method.static); err != nil {
			errs = append(errs, &FieldError{Field: "spec.request.method", Err: err})
		}
	}
	r.URL = strings.TrimSpace(r.URL) // a YAML block scalar ends with a line break
	w.url = parse("spec.request.url", r.URL, kindURL, maxURL)
	if w.def.Auth != nil && !namesHost(r.URL) {
		errs = append(errs, fieldError("spec.request.url",
			"cannot take the host from data: the credentials would go where the data says"))
	}
	if w.url != nil && w.url.static != nil {
		if _, err := parseTarget(*w.url.static); err != nil {
			errs = append(errs, &FieldError{Field: "spec.request.url", Err: err})
		}
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		field := fmt.Sprintf("spec.request.headers[%s]", name)
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fieldError(field, "cannot be sent: not the name of a header"))
			continue
		case isForbidden(name):
			errs = append(errs, fieldError(field, "cannot be set: it belongs to the connection"))
			continue
		case seen[lower] != "":
			errs = append(errs, fieldError(field, "cannot be set twice: it differs from %s only by case", seen[lower]))
			continue
		case isProtocol(name), lower == "authorization" && w.def.Auth != nil:
			w.warnings = append(w.warnings, field+": ignored, the header is set by the protocol")
			continue
		}
		seen[lower] = name
		t := parse(field, strings.TrimSpace(r.Headers[name]), kindPlain, maxValue)
		if t != nil && t.static != nil && !httpguts.ValidHeaderFieldValue(*t.static) {
			errs = append(errs, fieldError(field, "cannot be sent: it contains control characters"))
		}
		w.headers = append(w.headers, headerText{name: name, text: t})
	}
	body := defaultBody
	if r.Body != nil {
		body = *r.Body
	}
	w.defaultBody = body == defaultBody // also if the API server filled in the default
	if body != "" {
		w.body = parse("spec.request.body", body, kindBody, maxRequest)
	}
	return errors.Join(errs...)
}

// namesHost reports whether the constant text before the first action of a URL template contains the whole host.
func namesHost(source string) bool {
	text, _, dynamic := strings.Cut(source, "{{")
	_, rest, found := strings.Cut(text, "://")
	return found && (!dynamic || strings.ContainsAny(rest, "/?#"))
}

func (w *Compiled) checkAuth() error {
	a := w.def.Auth
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

// trusts reports whether credentials may be sent to u. from is the URL of the request, nil if unknown.
func (w *Compiled) trusts(u, from *url.URL) bool {
	origin := originOf(u)
	if from != nil && origin == originOf(from) {
		return true
	}
	return slices.Contains(w.origins, origin)
}
