package webhook

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
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

// render renders the request of a call. The error is a *FieldError.
func (w *Compiled) render(call Call) (*request, error) {
	if err := call.validate(); err != nil {
		return nil, err
	}
	root, err := w.root(call)
	if err != nil {
		return nil, err
	}
	r, spent := &request{header: http.Header{}}, newEffort()
	if r.url, err = w.renderURL(root, spent); err != nil {
		return nil, err
	}
	method, err := w.method.render(root, false, spent)
	if err == nil {
		r.method, err = parseMethod(method)
	}
	if err != nil {
		return nil, &FieldError{Field: "spec.request.method", Err: err}
	}
	if err := w.renderHeaders(r.header, root, spent); err != nil {
		return nil, err
	}
	bodyless := w.defaultBody && (r.method == http.MethodGet || r.method == http.MethodHead)
	if w.body == nil || bodyless {
		return r, nil
	}
	contentType := r.header.Get("Content-Type")
	body, err := w.body.render(root, contentType == "" || strings.Contains(strings.ToLower(contentType), "json"), spent)
	if err != nil {
		return nil, &FieldError{Field: "spec.request.body", Err: err}
	}
	if r.body = []byte(body); len(body) > 0 && contentType == "" {
		r.header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// root returns the data of the templates, or nil if the endpoint has none.
func (w *Compiled) root(call Call) (map[string]any, error) {
	if !w.dynamic {
		return nil, nil
	}
	return call.Data.root()
}

func (w *Compiled) renderURL(root map[string]any, spent *effort) (*url.URL, error) {
	text, err := w.url.render(root, false, spent)
	if err == nil {
		var u *url.URL
		if u, err = parseTarget(strings.TrimSpace(text)); err == nil {
			return u, nil
		}
	}
	return nil, &FieldError{Field: "spec.request.url", Err: err}
}

func (w *Compiled) renderHeaders(h http.Header, root map[string]any, spent *effort) error {
	for _, each := range w.headers {
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

// pollRequest returns the request for the state of a call. It reports whether the URL may get credentials. Headers of
// the definition may contain credentials, so they are sent only then, too.
func (w *Compiled) pollRequest(call Call, pollURL string) (r *request, trusted bool, err error) {
	if err := call.validate(); err != nil {
		return nil, false, err
	}
	u, err := parseTarget(pollURL)
	if err != nil {
		return nil, false, &FieldError{Field: "status.webhookPollURL", Err: err}
	}
	r = &request{method: http.MethodGet, url: u, header: http.Header{}}
	root, err := w.root(call)
	if err != nil {
		return nil, false, err
	}
	// The definition may have changed since the call and no longer render. The poll continues without credentials.
	spent := newEffort()
	from, _ := w.renderURL(root, spent)
	if trusted = w.trusts(u, from); trusted {
		if w.renderHeaders(r.header, root, spent) != nil {
			r.header = http.Header{}
		}
		r.header.Del("Content-Type")
	}
	return r, trusted, nil
}

// seal adds the headers that every call carries. They override those of the definition.
func (w *Compiled) seal(ctx context.Context, r *request, call Call, userAgent string, keys signature.Keys) {
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
		h.Set(w.def.CorrelationHeader, call.CorrelationID)
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
