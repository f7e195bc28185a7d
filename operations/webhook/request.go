package webhook

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-io/fairlead/operations/webhook/signature"
)

// Headers of every call, besides those of package signature.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerTraceParent    = "traceparent"
)

// request is a rendered request, without credentials.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// requestTemplate renders the requests of a definition. It is immutable.
type requestTemplate struct {
	method, url *text
	headers     []headerText
	body        *text // nil: none
	defaultBody bool
	dynamic     bool // a template needs data
}

type headerText struct {
	name string
	text *text
}

// compileRequest compiles the templates of a request. authenticated means that it is sent with credentials. The
// warnings name settings that have no effect.
func compileRequest(r Request, authenticated bool) (tmpl *requestTemplate, warnings []string, err error) {
	tmpl = &requestTemplate{}
	var errs []error
	parse := func(field, source string, kind kind, limit int) *text {
		t, err := parseTemplate(source, kind, limit)
		if err != nil {
			errs = append(errs, &FieldError{Field: field, Err: err})
		}
		tmpl.dynamic = tmpl.dynamic || t != nil && t.static == nil
		return t
	}
	tmpl.method = parse("spec.request.method", r.Method, kindPlain, 64)
	if tmpl.method != nil && tmpl.method.static != nil {
		if _, err := parseMethod(*tmpl.method.static); err != nil {
			errs = append(errs, &FieldError{Field: "spec.request.method", Err: err})
		}
	}
	r.URL = strings.TrimSpace(r.URL) // a YAML block scalar ends with a line break
	tmpl.url = parse("spec.request.url", r.URL, kindURL, maxURL)
	if authenticated && !namesHost(r.URL) {
		errs = append(errs, fieldError("spec.request.url",
			"cannot take the host from data: the credentials would go where the data says"))
	}
	if tmpl.url != nil && tmpl.url.static != nil {
		if _, err := parseTarget(*tmpl.url.static); err != nil {
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
		case isProtocol(name), lower == "authorization" && authenticated:
			warnings = append(warnings, field+": ignored, the header is set by the protocol")
			continue
		}
		seen[lower] = name
		t := parse(field, strings.TrimSpace(r.Headers[name]), kindPlain, maxValue)
		if t != nil && t.static != nil && !httpguts.ValidHeaderFieldValue(*t.static) {
			errs = append(errs, fieldError(field, "cannot be sent: it contains control characters"))
		}
		tmpl.headers = append(tmpl.headers, headerText{name: name, text: t})
	}
	body := defaultBody
	if r.Body != nil {
		body = *r.Body
	}
	tmpl.defaultBody = body == defaultBody // also if the API server filled in the default
	if body != "" {
		tmpl.body = parse("spec.request.body", body, kindBody, maxRequest)
	}
	return tmpl, warnings, errors.Join(errs...)
}

// namesHost reports whether the constant text before the first action of a URL template contains the whole host.
func namesHost(source string) bool {
	text, _, dynamic := strings.Cut(source, "{{")
	_, rest, found := strings.Cut(text, "://")
	return found && (!dynamic || strings.ContainsAny(rest, "/?#"))
}

// render renders the request of a call. The error is a *FieldError.
func (tmpl *requestTemplate) render(call Call) (*request, error) {
	if err := call.validate(); err != nil {
		return nil, err
	}
	root, err := tmpl.root(call)
	if err != nil {
		return nil, err
	}
	r, spent := &request{header: http.Header{}}, newEffort()
	if r.url, err = tmpl.renderURL(root, spent); err != nil {
		return nil, err
	}
	method, err := tmpl.method.render(root, false, spent)
	if err == nil {
		r.method, err = parseMethod(method)
	}
	if err != nil {
		return nil, &FieldError{Field: "spec.request.method", Err: err}
	}
	if err := tmpl.renderHeaders(r.header, root, spent); err != nil {
		return nil, err
	}
	bodyless := tmpl.defaultBody && (r.method == http.MethodGet || r.method == http.MethodHead)
	if tmpl.body == nil || bodyless {
		return r, nil
	}
	contentType := r.header.Get("Content-Type")
	body, err := tmpl.body.render(root, contentType == "" || strings.Contains(strings.ToLower(contentType), "json"), spent)
	if err != nil {
		return nil, &FieldError{Field: "spec.request.body", Err: err}
	}
	if r.body = []byte(body); len(body) > 0 && contentType == "" {
		r.header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// root returns the data of the templates, or nil if the endpoint has none.
func (tmpl *requestTemplate) root(call Call) (map[string]any, error) {
	if !tmpl.dynamic {
		return nil, nil
	}
	return call.Data.root()
}

func (tmpl *requestTemplate) renderURL(root map[string]any, spent *effort) (*url.URL, error) {
	text, err := tmpl.url.render(root, false, spent)
	if err == nil {
		var u *url.URL
		if u, err = parseTarget(strings.TrimSpace(text)); err == nil {
			return u, nil
		}
	}
	return nil, &FieldError{Field: "spec.request.url", Err: err}
}

func (tmpl *requestTemplate) renderHeaders(h http.Header, root map[string]any, spent *effort) error {
	for _, each := range tmpl.headers {
		value, err := each.text.render(root, false, spent)
		value = strings.TrimSpace(value)
		if err == nil && !httpguts.ValidHeaderFieldValue(value) {
			err = fmt.Errorf("cannot be sent: it contains control characters")
		}
		if err != nil {
			return &FieldError{Field: fmt.Sprintf("spec.request.headers[%s]", each.name), Err: err}
		}
		if value != "" {
			h.Set(each.name, value)
		}
	}
	return nil
}

// poll returns the request for the state of a call. It reports whether the URL may get credentials: it has the origin
// of the call's request, or one of origins. Headers of the definition may contain credentials, so they are sent only
// then, too.
func (tmpl *requestTemplate) poll(call Call, pollURL string, origins []string) (r *request, trusted bool, err error) {
	if err := call.validate(); err != nil {
		return nil, false, err
	}
	u, err := parseTarget(pollURL)
	if err != nil {
		return nil, false, &FieldError{Field: "status.webhookPollURL", Err: err}
	}
	r = &request{method: http.MethodGet, url: u, header: http.Header{}}
	root, err := tmpl.root(call)
	if err != nil {
		return nil, false, err
	}
	// The definition may have changed since the call and no longer render. The poll continues without credentials.
	spent := newEffort()
	from, _ := tmpl.renderURL(root, spent)
	if trusted = from != nil && originOf(u) == originOf(from) || slices.Contains(origins, originOf(u)); trusted {
		if tmpl.renderHeaders(r.header, root, spent) != nil {
			r.header = http.Header{}
		}
		r.header.Del("Content-Type")
	}
	return r, trusted, nil
}

// seal adds the headers that every call carries. They override those of the definition. correlation is the name of the
// header with the correlation ID.
func (r *request) seal(ctx context.Context, call Call, correlation, userAgent string, keys signature.Keys) {
	h, now := r.header, time.Now()
	// Standard Webhooks spells them in lower case; net/http writes the canonical form, which is equivalent in HTTP.
	h.Set(signature.HeaderID, call.ID)
	h.Set(headerIdempotencyKey, call.ID)
	h.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Del(signature.HeaderSignature)
	if len(keys) > 0 {
		h.Set(signature.HeaderSignature, keys.Sign(call.ID, now, r.body))
	}
	if call.CorrelationID != "" {
		h.Set(correlation, call.CorrelationID)
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", userAgent)
	}
	if h.Get("Accept") == "" {
		h.Set("Accept", "application/json, */*;q=0.5")
	}
	h.Set("Accept-Encoding", "gzip")
	setTrace(ctx, h, call.ID)
}

// setTrace propagates the trace of ctx (W3C Trace Context). Without one, the tries of a call share a trace id derived
// from the call ID.
func setTrace(ctx context.Context, h http.Header, id string) {
	h.Del("tracestate")
	if trace.SpanContextFromContext(ctx).IsValid() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
		return
	}
	sum := sha256.Sum256([]byte(id))
	var span [8]byte
	rand.Read(span[:]) // never fails
	span[0] |= 1       // all zeros is not valid
	h.Set(headerTraceParent, "00-"+hex.EncodeToString(sum[:16])+"-"+hex.EncodeToString(span[:])+"-00")
}

func parseMethod(text string) (string, error) {
	method := strings.ToUpper(strings.TrimSpace(text))
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method, nil
	}
	return "", fmt.Errorf("cannot use method %q", text)
}

// isProtocol reports whether the protocol sets the header regardless of the definition.
func isProtocol(name string) bool {
	switch strings.ToLower(name) {
	case signature.HeaderID, signature.HeaderTimestamp, signature.HeaderSignature, "idempotency-key", "traceparent",
		"tracestate", "accept-encoding":
		return true
	}
	return false
}

// isForbidden reports whether the header would change where a request goes or how it is framed.
func isForbidden(name string) bool {
	switch lower := strings.ToLower(name); lower {
	case "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
		"http2-settings", "content-encoding":
		return true
	default:
		return strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, ":")
	}
}
